"""The target writes the training text, and every token comes with the probabilities it was chosen from.

A draft is judged by the target's choices, so it learns from the target's own text (sequence-level
distillation, Kim & Rush 2016; on-policy data as in DistillSpec, Zhou et al. 2024). The logits are at
hand while the text is written, so labels cost next to nothing, and the student never waits for the
target again.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdemo.training.batched import BatchedDecoder
from specdemo.training.disk import refused, whole
from specdemo.training.growing_batch import GrowingBatch
from specdemo.training.shard_timing import ShardTiming

KEPT = 24
"""Target tokens kept per position."""
SHARD = 256
"""Most continuations written at once and kept in one file."""
WINDOW_SHARDS = 16
"""Prompts are sorted by length within a window of so many shards, so that little of a batch is padding."""
GoOn = Callable[[int], bool]
"""Told after every step how many tokens it wrote; whether there is time for another."""
SHRINK_AT = 0.8
"""Rows that have ended leave the batch once no more than this share of it goes on."""
TEMPERATURES = (0.0, 0.0, 0.0, 0.7, 0.8, 1.0)
"""Half of the text is greedy, as half of the visitors' runs are."""


@dataclass(frozen=True)
class LabelledSequence:
    """One training sequence with the target's view of every output position.

    Attributes:
        ids: Prompt and output, shape [n].
        start: Index of the first labelled position (it predicts the first output token).
        top_ids: Target ids, shape [n - start - 1, KEPT], most probable first.
        top_probs: Their probabilities at temperature 1, same shape, float16.
        states: The target's hidden states behind the tapped layers at every position but the last,
            shape [n - 1, taps · d]; None where none were asked for.
    """

    ids: Tensor
    start: int
    top_ids: Tensor
    top_probs: Tensor
    states: Tensor | None = None

    @property
    def output(self) -> Tensor:
        """The ids the target wrote."""
        return self.ids[self.start + 1 :]

    def with_states_as(self, dtype: torch.dtype) -> "LabelledSequence":
        """The same with its states, if there are any, in ``dtype``."""
        return self if self.states is None else replace(self, states=self.states.to(dtype))


def write_text(
    target: PreTrainedModel,
    prompts: list[list[int]],
    eos_ids: frozenset[int],
    folder: Path,
    max_new_tokens: int,
    seed: int,
    taps: Sequence[int] = (),
    seconds: float | None = None,
    rows: int | None = None,
    states_as: torch.dtype | None = None,
) -> None:
    """Write one continuation per prompt in shards under ``folder``; finished shards are kept.

    Args:
        target: A causal language model on its device.
        prompts: Token ids; the same list and seed give the same shards.
        eos_ids: Ids that end a continuation; the one that occurs is part of it.
        taps: Layers whose states are kept with the text, for a feature draft to learn from.
        seconds: Time for all of it, counted over resumed runs by what each shard took. The shard at hand
            when it ends is cut short and kept; at least a token is written. None writes everything.
        rows: Continuations in a shard; ``SHARD`` by default.
        states_as: Type the states are kept in; by default the one they are computed in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    decoder = BatchedDecoder(target, taps)
    shards = list(_shards(prompts, rows or SHARD))
    missing = [number for number in range(len(shards)) if not shard_path(folder, number).exists()]
    timing = ShardTiming(folder, "target's own text", len(shards), len(missing), max_new_tokens, seconds)
    for number in missing:
        if number and not timing.another():
            break
        made = _continue(
            decoder, shards[number], eos_ids, max_new_tokens, seed * 1_000_003 + number, timing.go_on
        )
        if states_as is not None:
            made = [row.with_states_as(states_as) for row in made]
        save_whole([vars(row) for row in made], shard_path(folder, number))
        timing.end_shard()
    timing.close()


def read_text(folder: Path) -> list[LabelledSequence]:
    """Everything written under ``folder``, in order. Files are mapped: states are read when used."""
    paths = sorted(folder.glob("text-*.pt"))
    return [LabelledSequence(**row) for path in paths for row in torch.load(path, mmap=True)]


def save_whole(content: object, path: Path) -> None:
    """Write ``content`` so that ``path`` holds all of it or what it held before.

    Raises:
        UserError: The disk is full or cannot be written.
    """
    try:
        with whole(path) as partial:
            torch.save(content, partial)
    except (OSError, RuntimeError) as error:
        raise refused(path, error) from error


@torch.inference_mode()
def _continue(
    decoder: BatchedDecoder,
    prompts: list[list[int]],
    eos_ids: frozenset[int],
    limit: int,
    seed: int,
    go_on: GoOn,
) -> list[LabelledSequence]:
    """One batch from prompt to end or as far as ``go_on`` lets it, each row at a temperature of its own."""
    rng = random.Random(seed)
    generator = torch.Generator(decoder.device).manual_seed(seed)
    temperatures = [rng.choice(TEMPERATURES) for _ in prompts]
    batch = GrowingBatch(decoder, prompts, limit, temperatures, eos_ids, generator)
    steps: list[tuple[Tensor, ...]] = []
    states: list[list[Tensor]] = [[] for _ in prompts]
    _collect(states, decoder.states, [(row, len(prompt)) for row, prompt in enumerate(prompts)])
    for _ in range(limit):
        ids, probs = labels_of(batch.logits)
        live, tokens = batch.choose(ids[:, 0])
        steps.append((batch.active[live], tokens[live], ids[live].int(), probs[live]))
        if not go_on(len(steps[-1][0])) or not batch.advance(SHRINK_AT):
            break
        _collect(states, decoder.states, [(row, 1) for row in batch.active.tolist()])
    return list(_sequences(prompts, steps, states))


def _collect(states: list[list[Tensor]], found: Tensor | None, rows: list[tuple[int, int]]) -> None:
    """File a pass's states under their sequences; a row's own positions are its last ones."""
    if found is not None:
        for (row, positions), own in zip(rows, found.cpu(), strict=True):
            states[row].append(own[-positions:].clone())


def labels_of(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The ``KEPT`` most probable tokens of ``logits`` [n, V], most probable first, and their probabilities.

    Ids are int64, probabilities those at temperature 1 in float16; both [n, KEPT].
    """
    top = logits.topk(min(KEPT, logits.shape[-1]))
    return top.indices, (top.values.float() - logits.float().logsumexp(-1, keepdim=True)).exp().half()


def _sequences(
    prompts: list[list[int]], steps: list[tuple[Tensor, ...]], states: list[list[Tensor]]
) -> Iterator[LabelledSequence]:
    rows, tokens, top_ids, top_probs = (torch.cat(parts).cpu() for parts in zip(*steps, strict=True))
    order = rows.argsort(stable=True)
    counts = torch.bincount(rows, minlength=len(prompts)).tolist()
    parts = (part[order].split(counts) for part in (tokens, top_ids, top_probs))
    for prompt, output, ids, probs, own in zip(prompts, *parts, states, strict=True):
        text = torch.cat([torch.tensor(prompt), output]).int()
        # A row that ended early may have waited in the batch: its states go on behind its text.
        kept = torch.cat(own)[: len(text) - 1].clone() if own else None
        yield LabelledSequence(text, len(prompt) - 1, ids.clone(), probs.clone(), kept)


def _shards(prompts: list[list[int]], rows: int) -> Iterator[list[list[int]]]:
    """Shards of prompts alike in length, in an order of chance: a short training has short and long ones."""
    for start in range(0, len(prompts), WINDOW_SHARDS * rows):
        window = sorted(prompts[start : start + WINDOW_SHARDS * rows], key=len)
        found = [window[at : at + rows] for at in range(0, len(window), rows)]
        yield from random.Random(start).sample(found[:-1], len(found) - 1)
        yield found[-1]  # which may be a part of one only


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard is kept."""
    return folder / f"text-{number:05d}.pt"
