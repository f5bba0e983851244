"""Ways to make a pair worse or slower on purpose, as plain data; ``ablated_lanes`` applies them. No torch."""

from dataclasses import dataclass, replace

from specdemo.records.limits import UserError

MAX_REPEATS = 16


@dataclass(frozen=True)
class Ablation:
    """A change to a draft model, or to how its target verifies.

    Attributes:
        noise: Share of seeded noise in the draft's logits, 0 to 1. At 1 only their spread remains.
        temperature: Divisor of its logits before the run's own temperature, above 0; over 1 the draft is less
            confident than it was trained to be.
        repeats: How often each draft pass is computed, 1 to ``MAX_REPEATS``; only the last result counts.
        one_by_one: Whether the target verifies every token in a pass of its own.

    Raises:
        UserError: A value is out of bounds.
    """

    noise: float = 0.0
    temperature: float = 1.0
    repeats: int = 1
    one_by_one: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise <= 1.0:
            raise UserError(f"The noise in the draft must be from 0 to 1, got {self.noise:g}.")
        if not self.temperature > 0.0:
            raise UserError(f"The draft's own temperature must be above 0, got {self.temperature:g}.")
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UserError(f"The draft step's repeats must be from 1 to {MAX_REPEATS}, got {self.repeats}.")

    @property
    def of_draft(self) -> bool:
        """Whether the draft model is changed."""
        return replace(self, one_by_one=False) != NONE


NONE = Ablation()
