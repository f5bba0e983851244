"""Distillation: training a student to predict its target's tokens, with checkpoints and a log."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from specdemo.training.budget import BATCH_TOKENS, StageClock
from specdemo.training.labelled_text import LabelledSequence, load_saved, save_atomically
from specdemo.training.students import Student

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
LOG_STEPS, CHECKPOINT_STEPS = 25, 100
BETAS, WEIGHT_DECAY, MAX_GRADIENT = (0.9, 0.95), 0.01, 1.0
STEP_DECAY = 0.8  # loss weight of each unrolled step relative to the previous step, as in EAGLE-3's code


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one distillation. The first limit reached, ``steps`` or ``seconds``, ends the
    training.
    """

    steps: int | None = None
    seconds: float | None = None
    batch_tokens: int = BATCH_TOKENS  # maximum number of positions in a batch, padding included
    learning_rate: float = 8e-4  # after the warm-up
    warmup_steps: int = 60
    held_out: float = 0.02  # share of the sequences that measure the draft
    seed: int = 0  # of the split and of the data order
    precision: str = "bf16"  # of the passes, ``bf16`` or ``fp32``; the weights are always fp32


@dataclass(frozen=True)
class Quality:
    """Figures of a draft on held-out text that the target wrote, with one entry per unrolled step.

    A draft model has one step, because here it never reads its own output.
    """

    # Share of positions at which draft and target have the same most likely token.
    agreement: tuple[float, ...]
    # Mean of Σ min(p, q) over the labels' tokens: a lower bound of α at temperature 1.
    overlap: tuple[float, ...]


def distil(student: Student, sequences: list[LabelledSequence], recipe: Recipe, folder: Path) -> Quality:
    """Train ``student`` in place for at least one step, and measure it on held-out sequences.

    Training continues from a checkpoint in ``folder``. The data order depends only on the seed and the step,
    so a run with a fixed number of steps ends with the same weights even if it was interrupted. The folder's
    log has one JSON object per line: step, loss and seconds, or at checkpoints step, agreement and overlap.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held_out, training = _split(sequences, recipe)
    optimiser = torch.optim.AdamW(
        trainable_parameters(student), recipe.learning_rate, BETAS, weight_decay=WEIGHT_DECAY
    )
    step, elapsed = _restore(folder, student, optimiser)
    columns = head_columns(student)  # after _restore, because a checkpoint may change the head
    batches = _batches(training, recipe)
    for _ in range(step):
        next(batches)
    losses: list[float] = []
    clock = StageClock("training", recipe.seconds, elapsed, recipe.steps, step)
    while step == 0 or clock.progress < 1.0:
        batch = [training[i] for i in next(batches)]
        # The rate warms up linearly and follows a cosine from its full value down to a tenth.
        warm = min(1.0, (step + 1) / max(1, recipe.warmup_steps))
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * warm * (0.55 + 0.45 * math.cos(math.pi * clock.progress))
        losses.append(train_step(student, batch, columns, recipe.precision, optimiser))
        step += 1
        clock.advance(sum(len(item.ids) for item in batch), 1)
        if step % LOG_STEPS == 0:
            _log(folder, step=step, loss=sum(losses) / len(losses), seconds=clock.spent)
            losses = []
        if step % CHECKPOINT_STEPS == 0:
            _save(folder, student, optimiser, step, clock.spent)
            _log(folder, step=step, **asdict(measure(student, held_out, recipe.precision)))
    clock.close()
    _save(folder, student, optimiser, step, clock.spent)
    quality = measure(student, held_out, recipe.precision)
    _log(folder, step=step, **asdict(quality))
    return quality


def train_step(
    student: Student,
    batch: list[LabelledSequence],
    columns: Tensor,
    precision: str,
    optimiser: torch.optim.Optimizer,
) -> float:
    """Take one optimizer step and return the loss before it."""
    optimiser.zero_grad()
    loss = batch_loss(student, batch, columns, precision)
    loss.backward()
    nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], MAX_GRADIENT)
    optimiser.step()
    return loss.item()


def batch_loss(student: Student, batch: list[LabelledSequence], columns: Tensor, precision: str) -> Tensor:
    """Return the weighted sum, over the unrolled steps, of the mean loss of each step."""
    kept, p = head_labels(batch, columns)
    total, weight = torch.zeros((), device=student.device), 1.0
    with _autocast(student, precision):
        for log_q, rows in student.predict(batch):
            own = kept[rows]
            # A token that the head does not have gets p = 0 and log q = 0, so it does not change the loss.
            log_q = log_q.gather(1, own.clamp_min(0)).masked_fill(own < 0, 0.0)
            losses = hybrid_loss(log_q, p[rows])
            # Late steps do not reach short texts; without max() the mean over no positions would be NaN.
            total = total + weight * losses.sum() / max(1, len(losses))
            weight *= STEP_DECAY
    return total


def hybrid_loss(log_q: Tensor, p: Tensor) -> Tensor:
    """Return, per position [n], half the forward KL (up to a constant) plus half the negative log acceptance.

    The KL term (DistillSpec, Zhou et al. 2024) also works for an untrained draft. The gradient of the other
    term, −log Σ min(p, q), is that of the total variation divided by the acceptance rate. ``log_q`` [n, kept]
    is the draft's, ``p`` [n, kept] the target's probabilities of the same tokens.
    """
    kl = -(p * log_q).sum(-1)
    acceptance = log_q.exp().minimum(p).sum(-1).clamp_min(1e-6)
    return 0.5 * kl - 0.5 * acceptance.log()


@torch.no_grad()
def measure(student: Student, sequences: list[LabelledSequence], precision: str = "bf16") -> Quality:
    columns = head_columns(student)
    sums: dict[int, list[float]] = {}  # per step: agreeing positions, Σ min(p, q), and positions
    for item in sequences:
        kept, p = head_labels([item], columns)
        with _autocast(student, precision):
            for step, (log_q, rows) in enumerate(student.predict([item])):
                q, own = log_q.exp(), kept[rows]
                shared = q.gather(1, own.clamp_min(0)).minimum(p[rows]).sum().item()
                agreed = int((q.argmax(-1) == own[:, 0]).sum())
                before = sums.get(step, [0.0, 0.0, 0.0])
                sums[step] = [a + b for a, b in zip(before, (agreed, shared, len(rows)), strict=True)]
    return Quality(
        agreement=tuple(agreed / max(1, positions) for agreed, _, positions in sums.values()),
        overlap=tuple(shared / max(1, positions) for _, shared, positions in sums.values()),
    )


def head_columns(student: Student) -> Tensor:
    """Return a tensor that maps each target id to its column in the student's head, or to −1."""
    columns = torch.full((int(student.id_map.max()) + 2,), -1, device=student.device)
    columns[student.id_map] = torch.arange(len(student.id_map), device=student.device)
    return columns


def head_labels(batch: list[LabelledSequence], columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the head columns and the target's probabilities of the kept tokens, [positions, kept] each.

    A token that the head does not have gets column −1 and probability 0.
    """
    ids = torch.cat([item.top_ids for item in batch]).long().to(columns.device)
    p = torch.cat([item.top_probs for item in batch]).float().to(columns.device)
    kept = columns[ids.clamp_max(len(columns) - 1)]
    return kept, p * (kept >= 0)


def frequent_ids(sequences: Iterable[LabelledSequence], size: int) -> Tensor:
    """Return the ``size`` most frequent ids of the output tokens, in ascending order."""
    counts: Counter[int] = Counter()
    for item in sequences:
        counts.update(item.output.tolist())
    return torch.tensor(sorted(token for token, _ in counts.most_common(size)))


def coverage(sequences: Iterable[LabelledSequence], id_map: Tensor) -> float:
    """Return the share of output tokens, 0 to 1, whose ids are in ``id_map``."""
    known = torch.cat([torch.isin(item.output, id_map.cpu()) for item in sequences])
    return known.float().mean().item()


def length_batches(lengths: list[int], tokens: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Yield batches of indices of sequences of similar length, in random order.

    With padding, a batch takes at most ``tokens`` positions.
    """
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


def trainable_parameters(student: Student) -> list[nn.Parameter]:
    """Return the parameters that belong to the student, and turn off gradients for those of the target."""
    own = {id(tensor) for tensor in student.own_state().values()}
    for parameter in student.module.parameters():
        parameter.requires_grad_(id(parameter) in own)
    return [parameter for parameter in student.module.parameters() if parameter.requires_grad]


def _autocast(student: Student, precision: str) -> torch.autocast:
    return torch.autocast(student.device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def _split(
    sequences: list[LabelledSequence], recipe: Recipe
) -> tuple[list[LabelledSequence], list[LabelledSequence]]:
    """Split the sequences at random by the seed; return the held-out and the training sequences."""
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(recipe.seed)).tolist()
    rows = max(1, round(len(sequences) * recipe.held_out))
    # If there is only one sequence, both lists contain it.
    return [sequences[i] for i in order[:rows]], [sequences[i] for i in order[rows:] or order]


def _batches(training: list[LabelledSequence], recipe: Recipe) -> Iterator[list[int]]:
    """Yield batches endlessly, with a different order in each epoch."""
    generator = torch.Generator().manual_seed(recipe.seed)
    lengths = [len(sequence.ids) for sequence in training]
    while True:
        yield from length_batches(lengths, recipe.batch_tokens, generator)


def _save(
    folder: Path, student: Student, optimiser: torch.optim.Optimizer, step: int, elapsed: float
) -> None:
    state = {name: tensor.detach() for name, tensor in student.own_state().items()}
    content = {"student": state, "optimiser": optimiser.state_dict(), "step": step, "elapsed": elapsed}
    save_atomically(content, folder / CHECKPOINT)


def _restore(folder: Path, student: Student, optimiser: torch.optim.Optimizer) -> tuple[int, float]:
    step, elapsed = 0, 0.0
    path = folder / CHECKPOINT
    if path.is_file():
        saved = load_saved(path)
        student.module.load_state_dict(saved["student"], strict=False)
        optimiser.load_state_dict(saved["optimiser"])
        step, elapsed = saved["step"], saved["elapsed"]
    # Remove log entries after the checkpoint, because these steps will run again. A killed process may have
    # cut the last line.
    log = folder / LOG
    if log.is_file():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        log.write_text("".join(line for line in lines if _step_of(line) <= step), encoding="utf-8")
    return step, elapsed


def _step_of(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf


def _log(folder: Path, **entry: object) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
