"""One drafter's score in a game."""

from dataclasses import dataclass

from specdemo.records.theory import ratio
from specdemo.records.trace import Round


@dataclass(frozen=True)
class Score:
    """One drafter's part in a game of Play: counts that are handed on from turn to turn.

    Attributes:
        rounds: Target passes that judged its drafts.
        compared, accepted: Its drafted tokens that got a verdict, and those that were kept.
        tokens: Tokens emitted in its rounds, the target's own included.
        streak, best: Accepted tokens in a row, without a refusal in between: now, and at most.
    """

    rounds: int = 0
    compared: int = 0
    accepted: int = 0
    tokens: int = 0
    streak: int = 0
    best: int = 0

    def after(self, round_: Round) -> "Score":
        """The score with one more round."""
        refused = round_.compared > round_.accepted
        return Score(
            rounds=self.rounds + 1,
            compared=self.compared + round_.compared,
            accepted=self.accepted + round_.accepted,
            tokens=self.tokens + len(round_.emitted),
            streak=0 if refused else self.streak + round_.accepted,
            best=max(self.best, self.streak + round_.accepted),
        )

    @property
    def alpha(self) -> float | None:
        """Accepted ÷ compared tokens; None where none was compared."""
        return ratio(self.accepted, self.compared)

    @property
    def tau(self) -> float | None:
        """Mean tokens emitted per target pass; None before the first."""
        return ratio(self.tokens, self.rounds)
