"""Let the target write the training text: many prompts at once, half of them greedily."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from specdemo.limits import UserError
from specdemo.training.corpus import Continuation, append_corpus, read_corpus

BATCH = 64
TEMPERATURES = (0.0, 0.0, 0.0, 0.7, 0.8, 1.0)
"""Drawn from per batch, so that half of the text is greedy, as half of the visitors' runs are."""


def generate_corpus(
    target: nn.Module, tokenizer: Any, prompts: Path, corpus: Path, max_new_tokens: int, seed: int
) -> None:
    """Write one continuation per prompt to ``corpus``; prompts already done are skipped, so it resumes.

    Args:
        prompts: Lines of ``{"mode": "chat"|"raw", "prompt"}``.
        corpus: ``.jsonl`` file to append to.

    Raises:
        UserError: A prompt line cannot be read.
    """
    rows = [_prompt_ids(tokenizer, prompts, n, line) for n, line in enumerate(_lines(prompts), 1)]
    random.Random(seed).shuffle(rows)
    done = len(read_corpus(corpus)) if corpus.is_file() else 0
    for start in tqdm(range(done - done % BATCH, len(rows), BATCH), desc="target's own text", unit="batch"):
        batch = rows[start : start + BATCH]
        rng = random.Random(seed * 1_000_003 + start)
        items = list(
            _continue(target, tokenizer, batch, rng.choice(TEMPERATURES), max_new_tokens, rng.random())
        )
        append_corpus(corpus, items[max(0, done - start) :])


@torch.inference_mode()
def _continue(
    target: nn.Module,
    tokenizer: Any,
    batch: list[list[int]],
    temperature: float,
    max_new_tokens: int,
    seed: float,
) -> Iterator[Continuation]:
    """One batch, left-padded, through transformers' own generation loop."""
    torch.manual_seed(int(seed * 2**31))
    filler = tokenizer.eos_token_id
    width = max(map(len, batch))
    ids = torch.tensor([[filler] * (width - len(row)) + row for row in batch], device=target.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch], device=target.device)
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
    )
    written = target.generate(
        ids, attention_mask=mask, max_new_tokens=max_new_tokens, pad_token_id=filler, **sampling
    )[:, width:]
    for prompt, output in zip(batch, written.tolist(), strict=True):
        end = output.index(filler) + 1 if filler in output else len(output)
        yield Continuation(prompt, output[:end], temperature)


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _prompt_ids(tokenizer: Any, path: Path, number: int, line: str) -> list[int]:
    try:
        raw = json.loads(line)
        if raw["mode"] == "raw":
            return tokenizer(raw["prompt"])["input_ids"]
        message = [{"role": "user", "content": raw["prompt"]}]
        return tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)[
            "input_ids"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f'{path}, line {number}: expected {{"mode": "chat"|"raw", "prompt"}}.') from error
