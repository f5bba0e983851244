"""Text that a target wrote, labeled with its probabilities at every token: the data for distillation on the
target's own output (Kim & Rush 2016; DistillSpec, Zhou et al. 2024).
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.records.limits import UserError
from specdemo.training.batched import BatchedDecoder, SampledBatch
from specdemo.training.budget import StageClock
from specdemo.training.text_files import WrittenText, atomic_path, file_error

KEPT = 24  # most likely tokens of the target that are kept per position
WRITTEN_SHARD = 256  # continuations that are written at the same time and saved in one file
READ_SHARD, READ_ROWS = 128, 16  # existing texts that are saved in one file, and that are read in one pass
WINDOW = 16  # shards per window; each window is sorted by length, so that batches need little padding
SHRINK_AT = 0.8  # ended rows are dropped once the share of rows that have not ended is at most this
# Chosen at random; half of the texts are greedy, like half of the visitors' runs.
TEMPERATURES = (0.0, 0.0, 0.0, 0.7, 0.8, 1.0)
SPENT = "seconds.txt"


@dataclass(frozen=True)
class LabelledSequence:
    """One training sequence with the target's probabilities at every output position."""

    ids: Tensor  # of the prompt and the output, [n]
    start: int  # index of the first labeled position, which predicts the first output token
    top_ids: Tensor  # the target's most likely ids, [n - start - 1, KEPT], most likely first
    top_probs: Tensor  # at temperature 1, like ``top_ids``, float16
    states: Tensor | None = None  # after the tapped layers at every position but the last, [n - 1, taps · d]

    @property
    def output(self) -> Tensor:
        """The ids that the target wrote."""
        return self.ids[self.start + 1 :]


def write_text(
    target: PreTrainedModel,
    prompts: list[list[int]],
    eos_ids: frozenset[int],
    folder: Path,
    max_new_tokens: int,
    seed: int,
    taps: Sequence[int] = (),
    seconds: float | None = None,
) -> None:
    """Have the target continue each prompt, and save the texts in shards; skip shards that exist already.

    The same prompts and seed give the same shards. A continuation includes the id that ended it. Hidden
    states are saved for the layers ``taps``. The limit ``seconds`` includes earlier, interrupted runs; at the
    limit, the current shard is cut short and saved, with at least one token per text.
    """
    decoder = BatchedDecoder(target, taps)
    shards = []
    for start, found in _windows(prompts, WRITTEN_SHARD, len):
        # Shuffle, so that the shards written before the time limit have all lengths. The last shard, which
        # may be smaller, stays last.
        shards += [*random.Random(start).sample(found[:-1], len(found) - 1), found[-1]]
    for number, clock in _unfinished(folder, "writing", len(shards), seconds):
        shard_seed = seed * 1_000_003 + number
        rows = _write(decoder, shards[number], eos_ids, max_new_tokens, shard_seed, clock)
        save_atomically([vars(row) for row in rows], _shard_path(folder, number))


def label_texts(
    target: PreTrainedModel,
    texts: Sequence[WrittenText],
    folder: Path,
    seed: int,
    taps: Sequence[int] = (),
    seconds: float | None = None,
    limit: int | None = None,
) -> None:
    """Have the target read texts that it wrote before, and save labeled shards; skip shards that exist.

    ``limit`` is the maximum number of texts, chosen at random; the rest is as for :func:`write_text`.
    """
    target.set_attn_implementation("sdpa")
    rng = random.Random(seed)
    usable = [text for text in texts if 0 < text.start < len(text.ids)]
    mixed = rng.sample(usable, len(usable))[:limit]
    shards = []
    for _, found in _windows(mixed, READ_SHARD, lambda text: len(text.ids)):
        shards += rng.sample(found, len(found))
    if not shards:
        raise UserError(
            "The chosen folder contains no text written by this target; write texts with `specdemo write`, "
            "or choose another folder with --text."
        )
    for number, clock in _unfinished(folder, "reading", len(shards), seconds):
        rows: list[LabelledSequence] = []
        for at in range(0, len(shards[number]), READ_ROWS):
            made = _label(target, shards[number][at : at + READ_ROWS], taps)
            rows += made
            clock.advance(sum(len(row.output) for row in made), len(made) / len(shards[number]))
            if clock.expired:
                break
        save_atomically([vars(row) for row in rows], _shard_path(folder, number))


def read_text(folder: Path) -> list[LabelledSequence]:
    """Return all sequences in ``folder``, in order. Memory-mapped files are read when data is used."""
    return [row for path in sorted(folder.glob("text-*.pt")) for row in _read_shard(path)]


def _read_shard(path: Path) -> list[LabelledSequence]:
    saved = load_saved(path)
    try:
        return [LabelledSequence(**row) for row in saved]
    except TypeError as error:
        raise _damaged(path) from error


def load_saved(path: Path) -> Any:
    """Return what :func:`save_atomically` has saved; tensors are read when they are used."""
    try:
        return torch.load(path, map_location="cpu", mmap=True)
    except OSError as error:
        raise file_error(path, error) from error
    except Exception as error:  # torch's readers of archives and pickles raise errors of many types
        raise _damaged(path) from error


def _damaged(path: Path) -> UserError:
    return UserError(
        f"{path} is damaged; delete this file, and checkpoint.pt if that file exists, then run the same "
        "command with --resume."
    )


def seconds_spent(folder: Path) -> float:
    """Return the seconds that writing or reading the text in ``folder`` took so far."""
    path = folder / SPENT
    if not path.is_file():
        return 0.0
    with suppress(ValueError):
        seconds = float(path.read_text(encoding="utf-8"))
        if 0 <= seconds < math.inf:
            return seconds
    raise UserError(
        f"{path} is damaged; write into this file the number of seconds that writing has taken so far, such "
        "as 60."
    )


def save_atomically(content: object, path: Path) -> None:
    """Save ``content`` with ``torch.save``; after an error, ``path`` is unchanged."""
    try:
        with atomic_path(path) as partial:
            torch.save(content, partial)
    except (OSError, RuntimeError) as error:
        raise file_error(path, error) from error


def top_labels(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ``KEPT`` most likely tokens of each row of ``logits`` [n, V], and their probabilities.

    Both are [n, KEPT], most likely first; the probabilities are at temperature 1, float16.
    """
    top = logits.topk(min(KEPT, logits.shape[-1]))
    return top.indices, (top.values.float() - logits.float().logsumexp(-1, keepdim=True)).exp().half()


def _unfinished(
    folder: Path, name: str, count: int, seconds: float | None
) -> Iterator[tuple[int, StageClock]]:
    """Yield each missing shard's number and the clock until the time limit; shard 0 ignores the limit."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(count) if not _shard_path(folder, number).exists()]
    clock = StageClock(name, seconds, seconds_spent(folder), count, count - len(missing))
    for done, number in enumerate(missing, count - len(missing)):
        if number and clock.expired:
            break
        clock.done = done  # a shard that was cut short counts as done
        yield number, clock
        (folder / SPENT).write_text(f"{clock.spent:.1f}\n", encoding="utf-8")
    clock.close()


@torch.inference_mode()
def _write(
    decoder: BatchedDecoder,
    prompts: list[list[int]],
    eos_ids: frozenset[int],
    limit: int,
    seed: int,
    clock: StageClock,
) -> list[LabelledSequence]:
    rng = random.Random(seed)
    generator = torch.Generator(decoder.device).manual_seed(seed)
    temperatures = [rng.choice(TEMPERATURES) for _ in prompts]
    batch = SampledBatch(decoder, prompts, limit, temperatures, eos_ids, generator)
    steps: list[tuple[Tensor, ...]] = []
    states: list[list[Tensor]] = [[] for _ in prompts]
    _append_states(states, decoder.states, list(range(len(prompts))), [len(prompt) for prompt in prompts])
    for _ in range(limit):
        ids, probs = top_labels(batch.logits)
        live, tokens = batch.sample(ids[:, 0])
        steps.append((batch.active[live], tokens[live], ids[live].int(), probs[live]))
        clock.advance(len(steps[-1][0]), 1 / limit)
        if clock.expired or not batch.advance(SHRINK_AT):
            break
        active = batch.active.tolist()
        _append_states(states, decoder.states, active, [1] * len(active))
    rows, *labels = (torch.cat(parts).cpu() for parts in zip(*steps, strict=True))
    order = rows.argsort(stable=True)
    counts = torch.bincount(rows, minlength=len(prompts)).tolist()
    by_prompt = [part[order].split(counts) for part in labels]
    sequences = []
    for prompt, output, top_ids, top_probs, own in zip(prompts, *by_prompt, states, strict=True):
        text = torch.cat([torch.tensor(prompt), output]).int()
        # A row that ended may have stayed in the batch, so cut off the states after its text.
        kept = torch.cat(own)[: len(text) - 1].clone() if own else None
        sequences.append(LabelledSequence(text, len(prompt) - 1, top_ids.clone(), top_probs.clone(), kept))
    return sequences


def _append_states(
    states: list[list[Tensor]], found: Tensor | None, rows: list[int], positions: list[int]
) -> None:
    """Append the last ``positions`` states of each row of a pass to its sequence, in bf16."""
    if found is not None:
        for row, count, own in zip(rows, positions, found.cpu(), strict=True):
            states[row].append(own[-count:].to(torch.bfloat16, copy=True))


@torch.inference_mode()
def _label(
    target: PreTrainedModel, texts: Sequence[WrittenText], taps: Sequence[int]
) -> list[LabelledSequence]:
    """Label ``texts`` in one pass. They are padded on the right, so no position attends to the padding."""
    device = next(target.parameters()).device
    padded = pad_sequence([torch.from_numpy(text.ids).long() for text in texts], batch_first=True)
    first = min(text.start for text in texts) - 1
    with hidden_states([decoder_layers(target)[index] for index in taps]) as found:
        output = target(input_ids=padded.to(device), use_cache=False, logits_to_keep=padded.shape[1] - first)
    states = torch.cat(found, -1) if found else None
    rows = []
    for row, text in enumerate(texts):
        # The logits that chose a token are at the position before it.
        top_ids, probs = top_labels(output.logits[row, text.start - 1 - first : len(text.ids) - 1 - first])
        kept = None
        if states is not None:
            kept = states[row, : len(text.ids) - 1].cpu().to(torch.bfloat16, copy=True)
        ids = torch.from_numpy(text.ids).int()
        rows.append(LabelledSequence(ids, text.start - 1, top_ids.int().cpu(), probs.cpu(), kept))
    return rows


def _windows(items: Sequence[Any], size: int, length: Callable[[Any], int]) -> Iterator[tuple[int, list]]:
    """Yield the index of each window's first item, and the window as shards of items of similar length."""
    for start in range(0, len(items), WINDOW * size):
        window = sorted(items[start : start + WINDOW * size], key=length)
        yield start, [window[at : at + size] for at in range(0, len(window), size)]


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"text-{number:05d}.pt"
