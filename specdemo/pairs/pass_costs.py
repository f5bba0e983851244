"""What the passes of a pair cost: measured when first asked for, the target's kept from start to start."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from specdemo.models.execution import WholeModel
from specdemo.pairs.calibrate import calibration_from, find_good_rows, measure_target, refreshed
from specdemo.pairs.measurements import Measurements
from specdemo.records.trace import Calibration


@dataclass
class PassCosts:
    """Costs by cache length (positions) and drafter kind; the empty kind is the target alone.

    Attributes:
        known: What was measured.
        measurements: Where the target's are kept from start to start, if anywhere.
        identity: Name of the target's files there.
    """

    known: dict[tuple[int, str], Calibration] = field(default_factory=dict)
    measurements: Measurements | None = None
    identity: str = ""

    def of_target(self, target: WholeModel, vocab: int, capacity: int, name: tuple[str, ...]) -> Calibration:
        """Of the target alone, for caches of ``capacity`` positions.

        Args:
            vocab: How many ids it has.
            name: What else its costs depend on from start to start: its precision and, for a GPU, which.
        """
        if (capacity, "") not in self.known:
            kept_as = ("costs", self.identity, *name, capacity)
            costs = self._remembered(target, vocab, capacity, kept_as)
            self.known[capacity, ""] = costs or self._measured(target, vocab, capacity, kept_as)
        return self.known[capacity, ""]

    def with_drafter(
        self, kind: str, capacity: int, target: Calibration, measure_s: Callable[[], float]
    ) -> Calibration:
        """The ``target``'s costs with c of a drafter kind, a step of which takes ``measure_s()`` seconds."""
        if (capacity, kind) not in self.known:
            self.known[capacity, kind] = replace(target, c=measure_s() / target.step_s)
        return self.known[capacity, kind]

    def _remembered(
        self, target: WholeModel, vocab: int, capacity: int, kept_as: tuple[Any, ...]
    ) -> Calibration | None:
        """What an earlier start measured, if it still holds."""
        if self.measurements is None:
            return None
        kept = calibration_from(self.measurements.get(*kept_as))
        return kept and refreshed(target, capacity, vocab, kept)

    def _measured(
        self, target: WholeModel, vocab: int, capacity: int, kept_as: tuple[Any, ...]
    ) -> Calibration:
        costs = measure_target(target, capacity, vocab, find_good_rows(target, capacity, vocab))
        if self.measurements is not None:
            self.measurements.put(asdict(costs), *kept_as)
        return costs
