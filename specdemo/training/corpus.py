"""Writes the training text of a target (``specdemo write``), in batches with text of several kinds."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedModel

from specdemo.pairs.model_loader import loading
from specdemo.pairs.pair import encode_prompt, eos_ids_of
from specdemo.records.trace import Mode
from specdemo.training.batched import (
    BatchedDecoder,
    SampledBatch,
    batch_precision,
    load_target,
    target_folder,
)
from specdemo.training.budget import StageClock
from specdemo.training.labelled_text import TEMPERATURES
from specdemo.training.text_files import (
    TextGroup,
    WrittenText,
    claim_folder,
    load_groups,
    next_number,
    save_groups,
    text_path,
    text_paths,
)
from specdemo.training.training_prompts import (
    EDITS,
    ChatHeaders,
    PromptFilter,
    pool_ids,
    prompt_pool,
    topics,
)

ROWS = 256  # texts that are written at the same time
# Prompts per batch: proposals (about two thirds are used), of the pool, beginnings of raw text.
PROPOSED, POOLED, FREE = 1024, 512, 256
POOL_BATCHES = 64  # batches after which the prompts of the pool are used again
POOL_SEED = 77_000  # added to the seed, so that the pool differs from those on which drafts are evaluated
MAX_PROMPT = 320  # tokens of a prompt with the conversation so far; longer ones are dropped
# Limits of a proposed prompt, an answer, and a raw text.
PROPOSAL_TOKENS, ANSWER_TOKENS, FREE_TOKENS = 96, 224, 320
PROPOSAL_TEMPERATURES = (0.7, 0.8, 0.9)
FREE_TEMPERATURES = (0.6, 0.7, 0.8)
REPEATED = 24  # a text is ended if its last ``REPEATED`` tokens occur earlier in it: copies teach nothing
REPETITION_CHECK_STEPS = 16
SHRINK_AT = 0.85  # ended rows are dropped once the share of rows that have not ended is at most this
PARAGRAPH = (60, 600)  # minimum and maximum characters of a paragraph in a request for an edit
OPENINGS = ("", "The ", "How ", "A ", "Why ", "In the ", "# ", "What is ", "Chapter 1\n\n", "def ", "import ")
PROPOSED_KIND = "proposed"
BETWEEN_DOCUMENTS = "<|endoftext|>"
Prompt = list[int]


def write_corpus(
    target: str, folder: Path, tokens: int, device: torch.device, seed: int, forbidden: Sequence[str]
) -> int:
    """Write batches into ``folder`` until it contains ``tokens`` tokens of the target; return how many it
    has.

    Each finished batch is saved, and a later call continues after it. No prompt is similar to a ``forbidden``
    one, on which drafts will be measured.
    """
    claim_folder(folder, target)
    batches = [load_groups(path) for path in text_paths(folder)]
    held = sum(map(own_tokens, batches))
    if held >= tokens:
        return held
    path = target_folder(target)
    precision = batch_precision(device)
    model = load_target(path, device, precision)
    clock = StageClock("writing", total=tokens, done=held)
    writer = CorpusWriter(model, loading(AutoTokenizer.from_pretrained, path), forbidden, seed, clock)
    for groups in batches:
        writer.remember(groups)
    while held < tokens:
        number = next_number(folder)
        groups = writer.write_batch(number)
        save_groups(groups, text_path(folder, number))
        held += own_tokens(groups)
    clock.close()
    return held


def own_tokens(groups: Sequence[TextGroup]) -> int:
    """Return the number of tokens in ``groups`` that the target wrote."""
    return sum(len(text.own) for group in groups for text in group.texts)


class CorpusWriter:
    """A writer of batches. Seed, batch number and earlier batches determine the texts of a batch.

    Without a chat template, a batch has only raw text and answers to prompts of the pool.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        tokenizer: Any,
        forbidden: Sequence[str],
        seed: int,
        clock: StageClock,
    ):
        self._tokenizer, self._seed, self._clock = tokenizer, seed, clock
        self._decoder = BatchedDecoder(target)
        self._eos = eos_ids_of(target, tokenizer)
        self._filter = PromptFilter(forbidden)
        self._chat = ChatHeaders(tokenizer, self._eos) if tokenizer.chat_template else None
        self._pool = prompt_pool(POOL_BATCHES * POOLED, POOL_SEED + seed)

    def write_batch(self, number: int) -> list[TextGroup]:
        """Write one batch of 1,200 to 1,800 texts.

        It has raw text, answers to prompts of the pool and to proposed prompts, second and third turns of the
        latter, and edits of texts that the target wrote.
        """
        rng = random.Random(f"{self._seed}/{number}")
        groups = [self._free(rng), self._pooled(number, rng)]
        if self._chat:
            first = self._answers(PROPOSED_KIND, self._proposals(rng, self._chat), rng)
            second = self._answers("second turn", self._next_turns(first, rng, self._chat), rng)
            third = self._answers("third turn", self._next_turns(second, rng, self._chat), rng)
            groups += [first, second, third, self._answers("edit", self._edits(first, rng), rng)]
        return groups

    def remember(self, groups: Sequence[TextGroup]) -> None:
        """Add the proposed prompts of an earlier batch to the filter, so that they are not used again."""
        if not self._chat:
            return
        for group in groups:
            for text in group.texts if group.kind == PROPOSED_KIND else ():
                asked = text.ids[len(self._chat.user) : text.start].tolist()
                end = next((n for n, token in enumerate(asked) if token in self._eos), len(asked))
                self._filter.take(self._chat.message(asked[:end]))

    def _free(self, rng: random.Random) -> TextGroup:
        """Write raw text. Half the texts start with a few given words, the other half with none."""
        begin = self._tokenizer.get_vocab().get(BETWEEN_DOCUMENTS, min(self._eos, default=0))
        words = [word for kind in topics().values() for word in kind]
        starts = [[begin] for _ in range(FREE // 2)]
        for _ in range(FREE - FREE // 2):
            opening = rng.choice(OPENINGS) + rng.choice(words)
            starts.append([begin, *self._tokenizer(opening, add_special_tokens=False)["input_ids"]])
        return self._write("free", starts, FREE_TOKENS, FREE_TEMPERATURES, rng)

    def _pooled(self, number: int, rng: random.Random) -> TextGroup:
        at = number % POOL_BATCHES * POOLED
        items = [item for item in self._pool[at : at + POOLED] if self._filter.allows(item.prompt)]
        return self._answers("pool", [pool_ids(self._tokenizer, item) for item in items], rng)

    def _proposals(self, rng: random.Random, chat: ChatHeaders) -> list[Prompt]:
        proposed = self._write("", [chat.user] * PROPOSED, PROPOSAL_TOKENS, PROPOSAL_TEMPERATURES, rng)
        messages = [chat.message(text.own.tolist()) for text in proposed.ended_texts]
        return [self._chat_prompt(message) for message in messages if self._filter.take(message)]

    def _next_turns(self, before: TextGroup, rng: random.Random, chat: ChatHeaders) -> list[Prompt]:
        """Have the target propose the user's next message in each ended conversation of ``before``."""
        ended = [text.ids.tolist() for text in before.ended_texts]
        starts = [[*ids, *chat.next_user] for ids in ended if len(ids) <= MAX_PROMPT]
        proposed = self._write("", starts, PROPOSAL_TOKENS, PROPOSAL_TEMPERATURES, rng)
        return [
            [*text.ids.tolist(), *chat.answer]
            for text in proposed.ended_texts
            if self._filter.take(chat.message(text.own.tolist()), alone=False)
        ]

    def _edits(self, group: TextGroup, rng: random.Random) -> list[Prompt]:
        """Return requests to edit the longest paragraph of a text, for a random half of suitable texts."""
        prompts = []
        for text in group.ended_texts:
            decoded = self._tokenizer.decode(text.own.tolist(), skip_special_tokens=True)
            paragraph = max(decoded.strip().split("\n\n"), key=len)
            if PARAGRAPH[0] <= len(paragraph) <= PARAGRAPH[1] and rng.random() < 0.5:
                prompts.append(self._chat_prompt(rng.choice(EDITS).format(paragraph)))
        return prompts

    def _chat_prompt(self, message: str) -> Prompt:
        return encode_prompt(self._tokenizer, message, Mode.CHAT)

    def _answers(self, kind: str, prompts: list[Prompt], rng: random.Random) -> TextGroup:
        kept = [prompt for prompt in prompts if len(prompt) <= MAX_PROMPT]
        return self._write(kind, kept, ANSWER_TOKENS, TEMPERATURES, rng)

    @torch.inference_mode()
    def _write(
        self, kind: str, prompts: list[Prompt], limit: int, temperatures: Sequence[float], rng: random.Random
    ) -> TextGroup:
        """Have the target continue each prompt, together with prompts of similar length."""
        ordered = sorted(prompts, key=len)
        texts = []
        for at in range(0, len(ordered), ROWS):
            rows = ordered[at : at + ROWS]
            for prompt, own in zip(rows, self._continue(rows, limit, temperatures, rng), strict=True):
                ids = np.concatenate([prompt, own]).astype(np.int32)
                texts.append(WrittenText(ids, len(prompt), bool(len(own)) and int(own[-1]) in self._eos))
        return TextGroup(kind, texts)

    def _continue(
        self, prompts: list[Prompt], limit: int, temperatures: Sequence[float], rng: random.Random
    ) -> list[NDArray]:
        generator = torch.Generator(self._decoder.device).manual_seed(rng.getrandbits(48))
        of_rows = [rng.choice(temperatures) for _ in prompts]
        batch = SampledBatch(self._decoder, prompts, limit, of_rows, self._eos, generator)
        written = np.zeros((len(prompts), limit), dtype=np.int32)
        lengths = np.zeros(len(prompts), dtype=int)
        for step in range(limit):
            live, tokens = batch.sample(batch.logits.argmax(-1))
            rows = batch.active[live].cpu().numpy()
            written[rows, step], lengths[rows] = tokens[live].cpu().numpy(), step + 1
            self._clock.advance(len(rows), len(rows))
            if step % REPETITION_CHECK_STEPS == REPETITION_CHECK_STEPS - 1:
                batch.end([row for row in batch.active.tolist() if repeats(written[row, : step + 1])])
            if not batch.advance(SHRINK_AT):
                break
        return [row[:length] for row, length in zip(written, lengths, strict=True)]


def repeats(own: NDArray) -> bool:
    if len(own) <= REPEATED:
        return False
    windows = np.lib.stride_tricks.sliding_window_view(own[:-1], REPEATED)
    return bool((windows == own[-REPEATED:]).all(1).any())
