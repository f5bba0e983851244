"""Pairs of models in folders, and short runs of a loaded pair."""

from typing import Any

import torch
from helpers.tiny import byte_tokenizer, nearby, tiny_llama

from specdemo.pairs.pair import Pair
from specdemo.pairs.traced_run import TracedRun
from specdemo.records.limits import parse_config
from specdemo.records.trace import Run

ON_CPU = {"device": "cpu", "precision": "fp32"}


def save(model: Any, tokenizer: Any, folder: Any) -> str:
    """Write a model and its tokenizer to ``folder``; return its path for ``load_pair``."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def save_pair(
    factory: Any, noise: float = 0.05, spread: float = 0.6, dtype: torch.dtype = torch.float32
) -> list[str]:
    """Save a tiny target and a draft near it in new folders of ``tmp_path_factory``; return their paths."""
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32, spread=spread)
    models = {"target": target, "draft": nearby(target, 1, noise)}
    return [save(model.to(dtype), tokenizer, factory.mktemp(name)) for name, model in models.items()]


def own_text(model: Any, record: Run, tokens: int) -> list[int]:
    """Return transformers' own greedy text after the prompt of a run, without a cache."""
    prompt = torch.tensor([record.prompt_ids])
    written = model.generate(prompt, do_sample=False, max_new_tokens=tokens, use_cache=False)
    return written[0, prompt.shape[1] :].tolist()


def run(pair: Pair, **settings: Any) -> tuple[Run, dict[str, Any]]:
    """Return a finished run of ten tokens, and its last event."""
    settings = {"prompt": "abc", "mode": "raw", "max_new_tokens": 10, "k": 3} | settings
    traced = TracedRun(pair, parse_config(settings))
    *_, end = traced.events()
    return traced.run, end
