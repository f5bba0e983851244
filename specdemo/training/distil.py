"""Teach the draft to predict the target: cross-entropy with the teacher's top probabilities.

The loss is forward KL up to a constant (DistillSpec, Zhou et al. 2024), over the teacher's kept tokens
that the draft can say. Steps are counted, the data order is a function of the seed and the step, and
a checkpoint holds weights, optimiser and step, so a killed run resumes where it was.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from specdemo.draft_model import ReducedHeadLlama
from specdemo.training.corpus import length_batches, pad
from specdemo.training.labels import LabelledSequence

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one distillation."""

    steps: int
    batch_tokens: int = 4096
    learning_rate: float = 8e-4
    weight_decay: float = 0.01
    warmup_steps: int = 60
    held_out: float = 0.02
    seed: int = 0
    log_every: int = 25
    checkpoint_every: int = 100


@dataclass(frozen=True)
class Quality:
    """How a draft does on text it was not trained on, with the teacher's text as context.

    Attributes:
        agreement: Share of positions whose argmax is the teacher's: α of the first drafted token.
        overlap: Mean Σ min(p, q) over the teacher's kept tokens: a lower bound of α under rejection at T = 1.
    """

    agreement: float
    overlap: float


def distil(draft: ReducedHeadLlama, labels: list[LabelledSequence], recipe: Recipe, folder: Path) -> Quality:
    """Train ``draft`` in place (fp32 weights, bf16 arithmetic) and return its quality on held-out sequences.

    The borrowed embedding stays frozen. ``folder`` receives the checkpoint and a log with one JSON
    object per line: step, loss, seconds, and on checkpoints agreement and overlap.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = max(1, round(len(labels) * recipe.held_out))
    held_out, training = labels[:rows], labels[rows:]
    column_of = _column_of(draft)
    for name, parameter in draft.named_parameters():
        parameter.requires_grad_("embed_tokens" not in name)
    trained = [parameter for parameter in draft.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(
        trained, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=recipe.weight_decay
    )
    start = _restore(folder, draft, optimiser)
    batches = _batches(training, recipe)
    for _ in range(start):
        next(batches)
    begun, losses = time.monotonic(), []
    for step in tqdm(
        range(start, recipe.steps), desc="distil", unit="step", initial=start, total=recipe.steps
    ):
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe)
        loss = _loss(draft, [training[i] for i in next(batches)], column_of)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        losses.append(loss.item())
        done = step + 1
        if done % recipe.log_every == 0:
            _log(folder, step=done, loss=sum(losses) / len(losses), seconds=time.monotonic() - begun)
            losses = []
        if done % recipe.checkpoint_every == 0 or done == recipe.steps:
            _save(folder, draft, optimiser, done)
            quality = evaluate(draft, held_out)
            _log(folder, step=done, **vars(quality))
    return evaluate(draft, held_out)


@torch.no_grad()
def evaluate(draft: ReducedHeadLlama, sequences: list[LabelledSequence]) -> Quality:
    """Agreement and overlap of ``draft`` with the teacher over ``sequences``."""
    column_of = _column_of(draft)
    agreed = overlap = positions = 0.0
    for sequence in sequences:
        probs = _log_probs(draft, [sequence])[0].exp()
        columns = column_of[sequence.top_ids.long()]
        agreed += (probs.argmax(-1) == columns[:, 0]).sum().item()
        shared = torch.minimum(_gather(probs, columns, 0.0), sequence.top_probs.float())
        overlap += shared.sum().item()
        positions += len(columns)
    return Quality(agreed / max(1.0, positions), overlap / max(1.0, positions))


def _loss(draft: ReducedHeadLlama, batch: list[LabelledSequence], column_of: Tensor) -> Tensor:
    total, positions = torch.zeros(()), 0
    for sequence, log_probs in zip(batch, _log_probs(draft, batch), strict=True):
        columns = column_of[sequence.top_ids.long()]
        weights = sequence.top_probs.float() * (columns >= 0)
        total = total - (weights * _gather(log_probs, columns, 0.0)).sum()
        positions += len(columns)
    return total / positions


def _log_probs(draft: ReducedHeadLlama, batch: list[LabelledSequence]) -> list[Tensor]:
    """Draft log-probabilities at the labelled positions of each sequence, [positions, H] each."""
    ids = pad([sequence.ids.tolist() for sequence in batch])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = draft.model(input_ids=ids, use_cache=False).last_hidden_state
        spans = [(s.start, s.start + len(s.top_ids)) for s in batch]
        kept = torch.cat([hidden[row, start:end] for row, (start, end) in enumerate(spans)])
        logits = draft.lm_head(kept)
    return list(logits.float().log_softmax(-1).split([end - start for start, end in spans]))


def _column_of(draft: ReducedHeadLlama) -> Tensor:
    """Target id -> column of the draft's head, −1 where it has none; shape [target vocabulary]."""
    column_of = torch.full((draft.config.vocab_size,), -1)
    column_of[draft.id_map] = torch.arange(len(draft.id_map))
    return column_of


def _gather(values: Tensor, columns: Tensor, missing: float) -> Tensor:
    found = values.gather(1, columns.clamp_min(0))
    return torch.where(columns >= 0, found, missing)


def _batches(training: list[LabelledSequence], recipe: Recipe) -> Iterator[list[int]]:
    """Endless batches; each epoch is reordered."""
    generator = torch.Generator().manual_seed(recipe.seed)
    lengths = [len(sequence.ids) for sequence in training]
    while True:
        yield from length_batches(lengths, recipe.batch_tokens, generator)


def _schedule(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    warm = min(1.0, (step + 1) / max(1, recipe.warmup_steps))
    return warm * (0.55 + 0.45 * math.cos(math.pi * step / recipe.steps))


def _save(folder: Path, draft: ReducedHeadLlama, optimiser: torch.optim.Optimizer, step: int) -> None:
    partial = folder / f"{CHECKPOINT}.partial"
    torch.save({"draft": draft.own_state(), "optimiser": optimiser.state_dict(), "step": step}, partial)
    partial.rename(folder / CHECKPOINT)


def _restore(folder: Path, draft: ReducedHeadLlama, optimiser: torch.optim.Optimizer) -> int:
    path = folder / CHECKPOINT
    if not path.is_file():
        return 0
    saved = torch.load(path)
    draft.load_state_dict(saved["draft"], strict=False)
    optimiser.load_state_dict(saved["optimiser"])
    return saved["step"]


def _log(folder: Path, **entry: float) -> None:
    with (folder / LOG).open("a") as file:
        file.write(json.dumps(entry) + "\n")
