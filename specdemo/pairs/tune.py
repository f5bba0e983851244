"""Measure ways to compute on the real models: candidates for the target, then for its drafts.

What is decided from the figures is in ``arithmetic``, how models come about is the caller's: it hands in
functions that build them. Whatever cannot be built or run here is no candidate.
"""

from collections.abc import Callable, Iterable, Mapping

import torch

from specdemo.models.execution import WholeModel
from specdemo.models.layer_views import input_embedding
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.arithmetic import promising
from specdemo.pairs.calibrate import find_good_rows, measure_target, timed_pass
from specdemo.pairs.embedded import Progress
from specdemo.records.limits import UserError
from specdemo.records.trace import Calibration

CAPACITY = 256
"""Cache length that ways to compute are compared at: a short prompt and its answer."""
GLANCES = 3
GLANCED_ROWS = (1, 4)


def measure_targets(
    names: Iterable[str], build: Callable[[str], WholeModel], progress: Progress
) -> dict[str, Calibration]:
    """Pass costs of the target in each precision that works here and is not hopelessly slow.

    Args:
        names: Precisions.
        build: Makes the target, or some of its layers, in a precision, ready to run on the CPU.
    """
    built: dict[str, WholeModel] = {}

    def glance(name: str) -> float | None:
        progress(f"Trying {name}", 0.0)
        try:
            built[name] = build(name)
            return _first_sight(built[name])
        except (UserError, RuntimeError):
            return None

    found = promising(names, glance)
    costs = {}
    for index, name in enumerate(found):
        progress(f"Measuring passes in {name}", (index + 1) / (len(found) + 1))
        vocab = input_embedding(built[name]).num_embeddings
        good = find_good_rows(built[name], CAPACITY, vocab)
        costs[name] = measure_target(built[name], CAPACITY, vocab, good)
        del built[name]
    return costs


def measure_drafts(
    names: Iterable[str], measure: Callable[[str], Calibration], progress: Progress
) -> Mapping[str, Calibration]:
    """Costs of a round with the draft in each packing that works here."""
    costs = {}
    for name in names:
        progress(f"Measuring drafts in {name}", 0.0)
        try:
            costs[name] = measure(name)
        except (UserError, RuntimeError):
            continue
    return costs


def _first_sight(model: WholeModel) -> float:
    """Seconds of passes over one and over several tokens, the fastest of a few."""
    runtime = ModelRuntime(model)
    runtime.prepare(CAPACITY, max(GLANCED_ROWS))
    passes = (timed_pass(runtime, torch.arange(rows, device=runtime.device)) for rows in GLANCED_ROWS)
    return sum(min(seconds() for _ in range(GLANCES)) for seconds in passes)
