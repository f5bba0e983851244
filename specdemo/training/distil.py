"""Teach a student to predict its target: batches, optimiser, checkpoints, log.

The data order is a function of the seed and the step, and a checkpoint holds weights, optimiser,
step and elapsed time, so a killed run resumes where it was and, with a fixed number of steps, ends
with the same weights.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from specdemo.training import clock
from specdemo.training.objectives import OBJECTIVES
from specdemo.training.rounding import in_int4
from specdemo.training.students import Student
from specdemo.training.write import LabelledSequence, save_whole

BF16, FP32 = "bf16", "fp32"
"""Arithmetic of learning; the student's weights are fp32 in both."""
CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
BETAS = (0.9, 0.95)
STEP_DECAY = 0.8
"""Weight of each unrolled step relative to the one before, as in EAGLE-3's code."""


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one distillation; it ends after ``steps`` or, if they are None, ``seconds``.

    ``arithmetic`` is ``BF16`` or ``FP32``; ``int4`` says whether the draft may run in that on CPU.
    """

    steps: int | None
    seconds: float = 0.0
    objective: str = "kl"
    batch_tokens: int = 4096
    learning_rate: float = 8e-4
    weight_decay: float = 0.01
    warmup_steps: int = 60
    held_out: float = 0.02
    seed: int = 0
    log_every: int = 25
    checkpoint_every: int = 100
    arithmetic: str = BF16
    int4: bool = False

    def rounds(self, step: int) -> bool:
        """Whether a step learns with matrices in int4: every other one, so that both ways are learned."""
        return self.int4 and step % 2 == 1


@dataclass(frozen=True)
class Quality:
    """How a draft does on text it was not trained on, with the target's text as context.

    One entry per drafted step; a draft model, which does not read its own output here, has one.

    Attributes:
        agreement: Share of positions whose argmax is the target's.
        overlap: Mean Σ min(p, q) over the label's tokens: a lower bound of α under rejection at T = 1.
    """

    agreement: tuple[float, ...]
    overlap: tuple[float, ...]


def distil(student: Student, sequences: list[LabelledSequence], recipe: Recipe, folder: Path) -> Quality:
    """Train ``student`` in place (fp32 weights); its quality on held-out sequences.

    The borrowed embedding stays frozen. ``folder`` receives the checkpoint and a log with one JSON
    object per line: step, loss, seconds, and on checkpoints agreement and overlap.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held_out, training = _split(sequences, recipe)
    optimiser = torch.optim.AdamW(
        trainable(student), recipe.learning_rate, BETAS, weight_decay=recipe.weight_decay
    )
    step, elapsed = _restore(folder, student, optimiser)
    labels = _Labels(student)  # of the head that the checkpoint may have brought
    batches = _batches(training, recipe)
    for _ in range(step):
        next(batches)
    begun, losses, tokens = clock.now() - elapsed, [], 0
    left_s = None if recipe.steps is not None else recipe.seconds - elapsed
    meter = clock.Meter("distil", _progress(step, elapsed, recipe), left_s)
    while (progress := _progress(step, clock.now() - begun, recipe)) < 1.0:
        batch = [training[i] for i in next(batches)]
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, progress, recipe)
        losses.append(_learn(student, batch, labels, recipe, optimiser, recipe.rounds(step)))
        step, tokens = step + 1, tokens + _tokens(batch)
        elapsed = clock.now() - begun
        meter.show(_progress(step, elapsed, recipe), tokens)
        if step % recipe.log_every == 0:
            _log(folder, step=step, loss=sum(losses) / len(losses), seconds=elapsed)
            losses = []
        if step % recipe.checkpoint_every == 0:
            _save(folder, student, optimiser, step, elapsed)
            _log(folder, step=step, **asdict(evaluate(student, held_out, recipe.arithmetic)))
    meter.close(tokens)
    _save(folder, student, optimiser, step, elapsed)
    quality = evaluate(student, held_out, recipe.arithmetic)
    _log(folder, step=step, **asdict(quality))
    return quality


def timed_step(student: Student, batch: list[LabelledSequence], arithmetic: str) -> float:
    """Tokens a second of one step over ``batch`` without the optimiser's; for trials, nothing is learned."""
    trained, labels = trainable(student), _Labels(student)
    begun = clock.now()
    with in_int4(student):
        loss = _loss(student, batch, labels, Recipe(steps=1, objective="hybrid", arithmetic=arithmetic))
        torch.autograd.grad(loss, trained, allow_unused=True)
    loss.item()  # after everything that was asked for before
    return _tokens(batch) / max(1e-9, clock.now() - begun)


@torch.no_grad()
def evaluate(student: Student, sequences: list[LabelledSequence], arithmetic: str = BF16) -> Quality:
    """Agreement and overlap of ``student`` with its target over ``sequences``, step by step."""
    labels = _Labels(student)
    agreed: Counter[int] = Counter()
    shared: defaultdict[int, float] = defaultdict(float)
    positions: Counter[int] = Counter()
    for item in sequences:
        columns, p = labels.of([item])
        with _arithmetic(student, arithmetic):
            for step, found in enumerate(student.predict([item])):
                q = found.log_q.exp()
                agreed[step] += int((q.argmax(-1) == columns[found.rows, 0]).sum())
                shared[step] += (
                    q.gather(1, columns[found.rows].clamp_min(0)).minimum(p[found.rows]).sum().item()
                )
                positions[step] += len(found.rows)
    steps = sorted(positions)
    return Quality(
        tuple(agreed[step] / max(1, positions[step]) for step in steps),
        tuple(shared[step] / max(1, positions[step]) for step in steps),
    )


def frequent_ids(sequences: Iterable[LabelledSequence], size: int) -> Tensor:
    """The ``size`` most frequent output ids in increasing order."""
    counts: Counter[int] = Counter()
    for item in sequences:
        counts.update(item.output.tolist())
    return torch.tensor(sorted(token for token, _ in counts.most_common(size)))


def coverage(sequences: Iterable[LabelledSequence], id_map: Tensor) -> float:
    """The share of output tokens that are in ``id_map``."""
    known = torch.cat([torch.isin(item.output, id_map.cpu()) for item in sequences])
    return known.float().mean().item()


def length_batches(lengths: list[int], tokens: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Index batches of similar length, at most ``tokens`` padded positions each, in random order."""
    jitter = torch.rand(len(lengths), generator=generator).mul(8).tolist()
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + jitter[i])
    batches: list[list[int]] = [[]]
    for index in order:
        longest = max([lengths[index], *(lengths[i] for i in batches[-1][-1:])])
        if batches[-1] and (len(batches[-1]) + 1) * longest > tokens:
            batches.append([])
        batches[-1].append(index)
    for position in torch.randperm(len(batches), generator=generator).tolist():
        yield batches[position]


class _Labels:
    """The target's kept tokens as columns of a student's head."""

    def __init__(self, student: Student):
        self._device = student.device
        self._size = int(student.id_map.max()) + 1
        self._column_of = torch.full((self._size,), -1, device=student.device)
        self._column_of[student.id_map] = torch.arange(len(student.id_map), device=student.device)

    def of(self, batch: list[LabelledSequence]) -> tuple[Tensor, Tensor]:
        """Columns (−1: the draft has no such token) and probabilities (0 there), [positions, kept] each."""
        ids = torch.cat([item.top_ids for item in batch]).long().to(self._device)
        p = torch.cat([item.top_probs for item in batch]).float().to(self._device)
        columns = self._column_of[ids.clamp_max(self._size - 1)].masked_fill(ids >= self._size, -1)
        return columns, p * (columns >= 0)


def _learn(
    student: Student,
    batch: list[LabelledSequence],
    labels: _Labels,
    recipe: Recipe,
    optimiser: torch.optim.Optimizer,
    rounded: bool = False,
) -> float:
    """One step of the optimiser, by gradients at ``rounded`` matrices or at the whole; the loss before it."""
    optimiser.zero_grad()
    with in_int4(student) if rounded else nullcontext():
        loss = _loss(student, batch, labels, recipe)
        loss.backward()
    nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], 1.0)
    optimiser.step()
    return loss.item()


def _arithmetic(student: Student, arithmetic: str) -> torch.autocast:
    return torch.autocast(student.device.type, dtype=torch.bfloat16, enabled=arithmetic == BF16)


def _tokens(batch: list[LabelledSequence]) -> int:
    return sum(len(item.ids) for item in batch)


def _loss(student: Student, batch: list[LabelledSequence], labels: _Labels, recipe: Recipe) -> Tensor:
    columns, p = labels.of(batch)
    total, weight = torch.zeros((), device=student.device), 1.0
    with _arithmetic(student, recipe.arithmetic):
        for found in student.predict(batch):
            kept = columns[found.rows]
            log_q = found.log_q.gather(1, kept.clamp_min(0)).masked_fill(kept < 0, 0.0)
            # A token outside the head has p = 0 here, so its log q of 0 neither gains nor costs.
            # Short texts are not reached by late steps: of no position the loss is 0, its mean no number.
            losses = OBJECTIVES[recipe.objective](log_q, p[found.rows])
            total = total + weight * losses.sum() / max(1, len(losses))
            weight *= STEP_DECAY
    return total


def _split(
    sequences: list[LabelledSequence], recipe: Recipe
) -> tuple[list[LabelledSequence], list[LabelledSequence]]:
    """Held-out and training sequences, the same ones for the same seed."""
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(recipe.seed)).tolist()
    rows = max(1, round(len(sequences) * recipe.held_out))
    # A lone sequence has to serve as both.
    return [sequences[i] for i in order[:rows]], [sequences[i] for i in order[rows:] or order]


def trainable(student: Student) -> list[nn.Parameter]:
    """The student's own parameters, which from now on are the only ones with a gradient."""
    own = {id(tensor) for tensor in student.own_state().values()}
    for parameter in student.module.parameters():
        parameter.requires_grad_(id(parameter) in own)
    return [parameter for parameter in student.module.parameters() if parameter.requires_grad]


def _batches(training: list[LabelledSequence], recipe: Recipe) -> Iterator[list[int]]:
    """Endless batches; each epoch is reordered."""
    generator = torch.Generator().manual_seed(recipe.seed)
    lengths = [len(sequence.ids) for sequence in training]
    while True:
        yield from length_batches(lengths, recipe.batch_tokens, generator)


def _progress(step: int, elapsed: float, recipe: Recipe) -> float:
    """How much of the training is done, 0 to 1."""
    return step / recipe.steps if recipe.steps is not None else elapsed / recipe.seconds


def _schedule(step: int, progress: float, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    warm = min(1.0, (step + 1) / max(1, recipe.warmup_steps))
    return warm * (0.55 + 0.45 * math.cos(math.pi * progress))


def _save(
    folder: Path, student: Student, optimiser: torch.optim.Optimizer, step: int, elapsed: float
) -> None:
    state = {name: tensor.detach() for name, tensor in student.own_state().items()}
    content = {"student": state, "optimiser": optimiser.state_dict(), "step": step, "elapsed": elapsed}
    save_whole(content, folder / CHECKPOINT)


def _restore(folder: Path, student: Student, optimiser: torch.optim.Optimizer) -> tuple[int, float]:
    path = folder / CHECKPOINT
    if not path.is_file():
        return 0, 0.0
    saved = torch.load(path, map_location=student.device)
    student.module.load_state_dict(saved["student"], strict=False)
    optimiser.load_state_dict(saved["optimiser"])
    _forget_log_after(folder / LOG, saved["step"])
    return saved["step"], saved["elapsed"]


def _forget_log_after(path: Path, step: int) -> None:
    """Drop what a killed run logged behind its last checkpoint: those steps will be made again."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        path.write_text("".join(kept), encoding="utf-8")


def _log(folder: Path, **entry: object) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
