"""The training text: continuations that the target wrote itself, as token ids.

A draft is judged by the target's choices, so it learns from the target's own text
(sequence-level distillation, Kim & Rush 2016; on-policy data as in DistillSpec, Zhou et al. 2024).
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Continuation:
    """What the target wrote after one prompt, both as token ids."""

    prompt: list[int]
    output: list[int]
    temperature: float

    @property
    def ids(self) -> list[int]:
        """Prompt and output in one sequence."""
        return self.prompt + self.output


def read_corpus(path: Path) -> list[Continuation]:
    """Read a ``.jsonl`` or ``.jsonl.gz`` corpus, skipping empty continuations."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        rows = (json.loads(line) for line in file if line.strip())
        found = [Continuation(r["prompt"], r["output"], r["temperature"]) for r in rows]
    return [item for item in found if item.prompt and item.output]


def append_corpus(path: Path, items: Iterable[Continuation]) -> None:
    """Append to a ``.jsonl`` corpus; a killed run loses at most the batch in hand."""
    with path.open("a", encoding="utf-8") as file:
        for item in items:
            file.write(json.dumps(asdict(item)) + "\n")


def frequent_ids(corpus: Iterable[Continuation], size: int) -> tuple[Tensor, float]:
    """The ``size`` most frequent output ids in increasing order, and the share of output they cover."""
    counts = Counter(token for item in corpus for token in item.output)
    kept = counts.most_common(size)
    coverage = sum(count for _, count in kept) / max(1, counts.total())
    return torch.tensor(sorted(token for token, _ in kept)), coverage


def length_batches(lengths: list[int], tokens: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Index batches of similar length, at most ``tokens`` padded positions each, in random order."""
    jitter = torch.rand(len(lengths), generator=generator).mul(8).tolist()
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + jitter[i])
    batches: list[list[int]] = [[]]
    for index in order:
        if batches[-1] and (len(batches[-1]) + 1) * lengths[index] > tokens:
            batches.append([])
        batches[-1].append(index)
    for position in torch.randperm(len(batches), generator=generator).tolist():
        yield batches[position]


def pad(rows: list[list[int]]) -> Tensor:
    """Right-pad id rows with 0 to one tensor [rows, longest]; causal attention never looks at the padding."""
    width = max(len(row) for row in rows)
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])
