"""Teacher labels: the target's top probabilities at every position it wrote, computed once.

Storing the top of each distribution costs 6 bytes per kept token and makes every later epoch cheap:
the student never waits for the target again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from specdemo.training.corpus import Continuation, length_batches, pad

KEPT = 24
"""Target tokens kept per position."""
SHARD = 256
"""Continuations per label file."""
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class LabelledSequence:
    """One training sequence with the teacher's view of every output position.

    Attributes:
        ids: Prompt and output, shape [n].
        start: Index of the first labelled position (it predicts the first output token).
        top_ids: Target ids, shape [n - start - 1, KEPT], most probable first.
        top_probs: Their probabilities at temperature 1, same shape, float16.
    """

    ids: Tensor
    start: int
    top_ids: Tensor
    top_probs: Tensor


def label_corpus(target: nn.Module, corpus: list[Continuation], folder: Path) -> None:
    """Label ``corpus`` in shards under ``folder``; shards already there are kept, so a killed run resumes."""
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(corpus), SHARD)
    for start in tqdm(starts, desc="teacher labels", unit="shard"):
        path = folder / f"labels-{start // SHARD:05d}.pt"
        if path.exists():
            continue
        rows = _label(target, corpus[start : start + SHARD])
        partial = path.with_suffix(".partial")
        torch.save([vars(row) for row in rows], partial)
        partial.rename(path)


def read_labels(folder: Path) -> list[LabelledSequence]:
    """All labelled sequences under ``folder``, in corpus order."""
    shards = sorted(folder.glob("labels-*.pt"))
    return [LabelledSequence(**row) for shard in shards for row in torch.load(shard)]


@torch.inference_mode()
def _label(target: nn.Module, items: list[Continuation]) -> list[LabelledSequence]:
    found: dict[int, LabelledSequence] = {}
    for batch in _batches(items):
        ids = pad([items[i].ids for i in batch]).to(target.device)
        hidden = target.base_model(input_ids=ids, use_cache=False).last_hidden_state
        for row, index in enumerate(batch):
            item = items[index]
            start = len(item.prompt) - 1
            logits = target.get_output_embeddings()(hidden[row, start : len(item.ids) - 1]).float()
            probs, top = logits.softmax(-1).topk(KEPT)
            found[index] = LabelledSequence(
                ids=torch.tensor(item.ids, dtype=torch.int32),
                start=start,
                top_ids=top.to(torch.int32).cpu(),
                top_probs=probs.half().cpu(),
            )
    return [found[index] for index in range(len(items))]


def _batches(items: list[Continuation]) -> Iterator[list[int]]:
    lengths = [len(item.ids) for item in items]
    return length_batches(lengths, BATCH_TOKENS, torch.Generator().manual_seed(0))
