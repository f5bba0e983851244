"""The target reads texts it wrote before, for the probabilities it gives them: labels for a training."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.records.limits import UserError
from specdemo.training.n_grams import WrittenText
from specdemo.training.shard_timing import ShardTiming
from specdemo.training.write import LabelledSequence, labels_of, save_whole, shard_path

SHARD, ROWS = 128, 16
"""Texts in a file, and in a pass: all alike in length, so that little of a pass is padding."""
WINDOW = 16
"""Files' worth of texts, drawn by chance, among which those of one length are put together."""


def label_texts(
    target: PreTrainedModel,
    texts: Sequence[WrittenText],
    folder: Path,
    seed: int,
    taps: Sequence[int] = (),
    seconds: float | None = None,
    states_as: torch.dtype | None = None,
    most: int | None = None,
) -> None:
    """Keep ``texts`` with labels in ``folder``, in shards for ``read_text``; finished shards are kept.

    Args:
        target: A causal language model on its device.
        texts: Of the target; the same list and seed give the same shards.
        taps, seconds, states_as: As for ``write_text``.
        most: How many texts, drawn by chance; by default all.

    Raises:
        UserError: None of the texts has tokens of the target's own behind a prompt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target.set_attn_implementation("sdpa")
    shards = list(_shards([text for text in texts if 0 < text.start < len(text.ids)], seed, most))
    if not shards:
        raise UserError("The texts hold no tokens of the target's own; write some with specdemo write.")
    missing = [number for number in range(len(shards)) if not shard_path(folder, number).exists()]
    timing = ShardTiming(
        folder, "target reads its text", len(shards), len(missing), -(-SHARD // ROWS), seconds
    )
    for number in missing:
        if number and not timing.another():
            break
        made = []
        for at in range(0, len(shards[number]), ROWS):
            made += _label(target, shards[number][at : at + ROWS], taps)
            if not timing.go_on(sum(len(row.output) for row in made[at:])):
                break
        if states_as is not None:
            made = [row.with_states_as(states_as) for row in made]
        save_whole([vars(row) for row in made], shard_path(folder, number))
        timing.end_shard()
    timing.close()


@torch.inference_mode()
def _label(
    target: PreTrainedModel, texts: Sequence[WrittenText], taps: Sequence[int]
) -> list[LabelledSequence]:
    """One pass over all of ``texts``, padded behind, where no position sees it."""
    device = next(target.parameters()).device
    width = max(len(text.ids) for text in texts)
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = torch.from_numpy(text.ids)
    first = min(text.start for text in texts) - 1
    with hidden_states([decoder_layers(target)[index] for index in taps]) as found:
        output = target(input_ids=ids.to(device), use_cache=False, logits_to_keep=width - first)
    states = torch.cat(found, -1) if found else None
    return [
        _labelled(text, output.logits[row, text.start - 1 - first : len(text.ids) - 1 - first], states, row)
        for row, text in enumerate(texts)
    ]


def _labelled(text: WrittenText, logits: Tensor, states: Tensor | None, row: int) -> LabelledSequence:
    """``logits`` [outputs, V] are those each of the text's own tokens was chosen from."""
    top_ids, probs = labels_of(logits)
    kept = states[row, : len(text.ids) - 1].cpu().clone() if states is not None else None
    ids = torch.from_numpy(text.ids).int()
    return LabelledSequence(ids, text.start - 1, top_ids.int().cpu(), probs.cpu(), kept)


def _shards(texts: list[WrittenText], seed: int, most: int | None) -> Iterator[list[WrittenText]]:
    """Texts alike in length; the order of the shards is one of chance, so that a part of them is like all."""
    rng = random.Random(seed)
    mixed = rng.sample(texts, len(texts))[:most]
    for at in range(0, len(mixed), WINDOW * SHARD):
        window = sorted(mixed[at : at + WINDOW * SHARD], key=lambda text: len(text.ids))
        found = [window[start : start + SHARD] for start in range(0, len(window), SHARD)]
        yield from rng.sample(found, len(found))
