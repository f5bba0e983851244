"""What can be done to a draft model to make it worse or dearer. Says it; ``spoiled`` does it. No torch."""

from dataclasses import dataclass

from specdemo.limits import UserError

MAX_REPEATS = 16


@dataclass(frozen=True)
class Handicap:
    """What is done to a draft model.

    Attributes:
        noise: Share of seeded noise in its logits, 0 to 1. At 1 nothing is left of them but their spread.
        temperature: What its logits are divided by before the run's own temperature, above 0: over 1 it is
            less sure than it has learnt to be.
        repeats: How often it makes each pass, 1 to ``MAX_REPEATS``; only the last one counts.

    Raises:
        UserError: A value is out of bounds.
    """

    noise: float = 0.0
    temperature: float = 1.0
    repeats: int = 1

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise <= 1.0:
            raise UserError(f"The noise in the draft must be from 0 to 1, not {self.noise:g}.")
        if not self.temperature > 0.0:
            raise UserError(f"The draft's own temperature must be above 0, not {self.temperature:g}.")
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UserError(f"A draft step can be made 1 to {MAX_REPEATS} times, not {self.repeats}.")


NONE = Handicap()
