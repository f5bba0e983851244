"""What can be done to a pair to make it worse or dearer. Says it; ``perturbed`` does it. No torch."""

from dataclasses import dataclass, replace

from specdemo.records.limits import UserError

MAX_REPEATS = 16


@dataclass(frozen=True)
class Handicap:
    """What is done to a draft model, or to how its target verifies.

    Attributes:
        noise: Share of seeded noise in the draft's logits, 0 to 1. At 1 only their spread is left of them.
        temperature: What its logits are divided by before the run's own temperature, above 0: over 1 it is
            less sure than it has learnt to be.
        repeats: How often it makes each pass, 1 to ``MAX_REPEATS``; only the last one counts.
        one_by_one: Whether the target takes a pass for every token that it verifies, as it would have to
            if tokens could not be checked together.

    Raises:
        UserError: A value is out of bounds.
    """

    noise: float = 0.0
    temperature: float = 1.0
    repeats: int = 1
    one_by_one: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise <= 1.0:
            raise UserError(f"The noise in the draft must be from 0 to 1, not {self.noise:g}.")
        if not self.temperature > 0.0:
            raise UserError(f"The draft's own temperature must be above 0, not {self.temperature:g}.")
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UserError(f"A draft step can be made 1 to {MAX_REPEATS} times, not {self.repeats}.")

    @property
    def of_draft(self) -> bool:
        """Whether anything is done to the draft model."""
        return replace(self, one_by_one=NONE.one_by_one) != NONE


NONE = Handicap()
