"""What a training computes in: tried on the machine at hand, the fastest is taken.

bf16 is fast where a CPU multiplies it and ten times slower than anything else where it does not, so
nothing but a trial tells. Every candidate keeps the target's stored numbers; one that fails here is none.
"""

import gc
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdemo.models.packed_linear import DTYPES, exact_precisions, linear_share, pack_linears
from specdemo.pairs.embedded import embedded_target, printing
from specdemo.pairs.model_loader import MOSTLY, loading
from specdemo.pairs.placement import free_ram
from specdemo.records.limits import UserError
from specdemo.shipped import EMBEDDED
from specdemo.training import clock
from specdemo.training.batched import BatchedDecoder
from specdemo.training.distil import BF16, FP32, timed_step
from specdemo.training.students import Student
from specdemo.training.write import KEPT, SHARD, LabelledSequence

FP16 = "fp16"
PREFERRED = (BF16, FP16, FP32)
"""Candidates in the order in which the first of those about equally fast is taken."""
NEARLY = 0.8
"""Speeds within this factor of the best are equal: trainings begun on one machine are to choose alike."""
HOPELESS = 0.5
"""A candidate slower than another by this factor is not tried any further."""
LEAST_ROWS = 8
TRIAL_STEPS = 2
PATIENCE_S = 2.0
"""What took longer is believed the first time."""
TRIAL_WIDTH = 96
"""Positions that a trial's steps look back on, about as many as real ones."""
TRIAL_PROMPT, TRIAL_OUTPUT = 32, 96
TRIAL_LENGTH = TRIAL_PROMPT + TRIAL_OUTPUT
"""Tokens of the made-up sequences that a learning step is tried on."""
TRIAL_BATCHES = (1, 8)
"""Sequences of the step that warms up and of the one that is timed."""
BYTES = {BF16: 2, FP16: 4.5, FP32: 4.5}
"""Memory a target takes per parameter until it is ready."""

Speeds = dict[str, float]
"""Tokens a second by arithmetic."""
T = TypeVar("T")


class TargetFiles:
    """A target on disk, in memory in one arithmetic at a time.

    Args:
        path: A folder or hub id.
        place: The device.
    """

    def __init__(self, path: str, place: torch.device):
        self.path, self.place = path, place
        self._arithmetic = ""
        self._model: PreTrainedModel | None = None

    def plain(self) -> PreTrainedModel:
        """The target in bf16 as transformers has it: drafts are cut from it."""
        return self.in_arithmetic(BF16)

    def in_arithmetic(self, name: str) -> PreTrainedModel:
        """The target ready to write in ``name``; what was handed out before must not be used any more.

        Raises:
            UserError: It cannot be loaded.
        """
        if self._model is None or self._arithmetic != name:
            self.drop()
            loaded = loading(AutoModelForCausalLM.from_pretrained, self.path, dtype=DTYPES[name])
            model: PreTrainedModel = loaded.to(self.place).eval()
            self._model = model if name == BF16 else pack_linears(model, name, name)
            self._arithmetic = name
        return self._model

    def drop(self) -> None:
        """Give the memory back."""
        self._model = None
        gc.collect()


def path_of_target(target: str) -> str:
    """The folder or hub id of ``target``; the embedded one is made ready first."""
    return str(embedded_target(printing())) if target == EMBEDDED else target


def writers(target: PreTrainedModel) -> tuple[str, ...]:
    """Arithmetics in which this target can be tried on its device, by its weights and the memory free."""
    if next(target.parameters()).device.type != "cpu":
        return (BF16,)
    parameters = sum(p.numel() for p in target.parameters())
    # None left is what it says where the system does not tell.
    room = (free_ram() or math.inf) + BYTES[BF16] * parameters
    packable = linear_share(target) >= MOSTLY
    # bf16 comes last: where it is slow, the others have shown it by then.
    return tuple(
        name
        for name in (FP16, FP32, BF16)
        if name in exact_precisions()
        and (name == BF16 or (BYTES[name] * parameters <= room and (name == FP32 or packable)))
    )


def learners(device: torch.device) -> tuple[str, ...]:
    """Arithmetics in which a student can be tried on its device."""
    return (FP32, BF16) if device.type == "cpu" else (BF16,)


def try_writing(
    files: TargetFiles, names: Sequence[str], taps: Sequence[int], longest_s: float
) -> dict[str, dict[int, float]]:
    """Time some decode steps of the target in each arithmetic, over ever more rows.

    Args:
        names: From :func:`writers`.
        longest_s: No more rows are tried once a step takes longer than this.

    Returns:
        Seconds a step by arithmetic and rows, of one row too; arithmetics that fail are left out.

    Raises:
        UserError: All of them fail.
    """
    found: dict[str, dict[int, float]] = {}
    for name in names:
        with _unless_alone(names):
            found[name] = _step_seconds(files.in_arithmetic(name), taps, longest_s, found)
    return _some(found, "written")


def try_learning(student: Student, names: Sequence[str], features: int) -> Speeds:
    """Tokens a second of a learning step in each arithmetic, over made-up sequences; nothing is learned.

    Args:
        student: Keeps its weights.
        names: From :func:`learners`.
        features: Width of the states that go with the text, 0 for none.

    Raises:
        UserError: All of them fail.
    """
    found: Speeds = {}
    for name in names:
        with _unless_alone(names):
            found[name] = _learning_speed(student, name, features, max(found.values(), default=0.0))
    return _some(found, "learned")


def _learning_speed(student: Student, name: str, features: int, best: float) -> float:
    speed = 0.0
    for count in TRIAL_BATCHES:
        speed = timed_step(student, made_up(student, count, features), name)
        if speed < HOPELESS * best or count * TRIAL_LENGTH / speed > PATIENCE_S:
            break
    return speed


def chosen(speeds: Speeds) -> str:
    """The fastest; of those about as fast the preferred one."""
    best = max(speeds.values())
    return next(name for name in PREFERRED if speeds.get(name, 0.0) >= NEARLY * best)


def made_up(student: Student, count: int, features: int) -> list[LabelledSequence]:
    """Sequences of the usual size with arbitrary tokens of the student's head."""
    generator = torch.Generator().manual_seed(0)
    ids = student.id_map.cpu()
    kept = min(KEPT, len(ids))

    def draw(*shape: int) -> Tensor:
        return ids[torch.randint(len(ids), shape, generator=generator)].int()

    return [
        LabelledSequence(
            draw(TRIAL_LENGTH),
            TRIAL_PROMPT - 1,
            draw(TRIAL_OUTPUT, kept),
            torch.full((TRIAL_OUTPUT, kept), 1 / kept).half(),
            torch.randn(TRIAL_LENGTH - 1, features, generator=generator).bfloat16() if features else None,
        )
        for _ in range(count)
    ]


@torch.inference_mode()
def _step_seconds(
    target: PreTrainedModel, taps: Sequence[int], longest_s: float, others: dict[str, dict[int, float]]
) -> dict[int, float]:
    """Seconds of a step over 1 row, ``LEAST_ROWS``, twice as many, … until it takes over ``longest_s``."""
    decoder = BatchedDecoder(target, taps)
    found: dict[int, float] = {}
    rows = 1
    while rows <= SHARD:
        found[rows] = _fastest_step(decoder, rows)
        rivals = [steps[rows] for steps in others.values() if rows in steps]
        hopeless = rows > 1 and rivals and found[rows] * HOPELESS > min(rivals)
        if rows > 1 and (found[rows] > longest_s or hopeless):
            break
        rows = max(LEAST_ROWS, 2 * rows)
    return found


def _fastest_step(decoder: BatchedDecoder, rows: int) -> float:
    decoder.begin([[0]] * rows, TRIAL_STEPS, TRIAL_WIDTH)
    tokens, seconds = torch.zeros(rows, dtype=torch.long, device=decoder.device), []
    for _ in range(TRIAL_STEPS):
        begun = clock.now()
        decoder.step(tokens)[0, 0].item()
        seconds.append(max(1e-9, clock.now() - begun))
        if seconds[0] > PATIENCE_S:
            break
    return min(seconds)


def _unless_alone(names: Sequence[str]) -> suppress:
    """Passes over an error of one candidate while there are others."""
    return suppress(*((Exception,) if len(names) > 1 else ()))


def _some(found: dict[str, T], verb: str) -> dict[str, T]:
    if not found:
        raise UserError(f"No text can be {verb} on this device; choose another --device or target.")
    return found
