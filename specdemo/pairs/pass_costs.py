"""What the passes of a loaded pair cost, measured once per process."""

from collections.abc import Callable
from dataclasses import dataclass, field

from specdemo.models.execution import WholeModel
from specdemo.pairs.calibrate import find_batch_invariant_rows, measure_target
from specdemo.records.trace import Calibration

TARGET_ALONE = ""
"""The key of the target's own costs."""


@dataclass
class PassCosts:
    """Row counts that agree bit for bit, and costs by drafter kind; each is found on first use.

    Attributes:
        known: Costs that were measured.
    """

    known: dict[str, Calibration] = field(default_factory=dict)
    _rows: tuple[int, ...] | None = None

    def batch_invariant_rows(self, target: WholeModel, vocab: int) -> tuple[int, ...]:
        """Return the row counts of ``find_batch_invariant_rows``."""
        if self._rows is None:
            self._rows = find_batch_invariant_rows(target, vocab)
        return self._rows

    def of_target(self, target: WholeModel, vocab: int) -> Calibration:
        """Return the costs of a target with ``vocab`` ids, alone."""
        if TARGET_ALONE not in self.known:
            rows = self.batch_invariant_rows(target, vocab)
            self.known[TARGET_ALONE] = measure_target(target, vocab, rows)
        return self.known[TARGET_ALONE]

    def of_drafter(self, kind: str, measure: Callable[[], Calibration]) -> Calibration:
        """Return the costs of the target with a drafter kind; ``measure`` finds them on first use."""
        if kind not in self.known:
            self.known[kind] = measure()
        return self.known[kind]
