"""How many tokens to draft: a fixed k, or as many as are expected to pay.

Under sampling a draft must never be dropped *after* it was drawn: with p = .5/.5 and q = .9/.1,
keeping only drafts one likes would put the first token out at .55. So every question here is
answered from the tokens already drafted and from the draft's next distribution as a whole, never
from the token drawn from it, and every drawn token is verified.

Knows no model: costs come in as numbers (``Calibration``), distributions as logits.
"""

from typing import Literal, Protocol

import torch
from torch import Tensor

from specdemo.limits import MAX_K
from specdemo.metrics import expected_tokens
from specdemo.sampling import probabilities
from specdemo.trace import AUTO, Calibration

PRIOR_WEIGHT = 4.0
"""A guess made before anything was seen counts as much as this many observations."""
PRIOR_RATE = 0.5
PRIOR_SPEEDUP = 1.3
PRIOR_COST = 8.0
COPY_PRIORS = (0.35, 0.55, 0.75)
"""Guessed acceptance of a copied token by the length of the match it was found by: 1, 2, 3 tokens."""
CONFIDENCE_BINS = 10


class DraftLength(Protocol):
    """Decides during a round whether to go on drafting; one object per run."""

    def start(self, most: int) -> None:
        """A new round, in which at most ``most`` tokens are of use."""

    def wants_step(self) -> bool:
        """Whether to compute the draft's next distribution."""

    def wants_token(self, scores: Tensor) -> bool:
        """Whether to draw a token from the distribution with logits ``scores`` [H]."""

    def wants_copy(self, matched: int) -> bool:
        """Whether to copy one more token, found by a match of ``matched`` tokens."""

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """What became of the round's draft."""


class FixedLength:
    """Always k tokens, or as many as are of use."""

    def __init__(self, k: int):
        self._k = k
        self._left = 0

    def start(self, most: int) -> None:
        """k tokens, but no more than ``most``."""
        self._left = min(self._k, most)

    def wants_step(self) -> bool:
        """Until k tokens are drafted."""
        return self._left > 0

    def wants_token(self, scores: Tensor) -> bool:
        """Every distribution computed is drawn from."""
        self._left -= 1
        return True

    def wants_copy(self, matched: int) -> bool:
        """Until k tokens are copied."""
        self._left -= 1
        return self._left >= 0

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """A fixed length learns nothing."""


class AutoLength:
    """Draft one more token while it is expected to emit more than its time could elsewhere.

    A token that would be emitted with probability s (the product of the acceptance rates expected of
    the draft so far) is worth s tokens; drafting and verifying it costs c + v(i+2) − v(i+1) target
    passes, and a target pass is worth as many tokens as this run has emitted per pass-equivalent.
    Acceptance is expected from the draft's highest probability, corrected by what this run has seen.
    """

    def __init__(self, c: float, v: tuple[float, ...]):
        self._c = c
        # Measured costs are noisy; a longer pass is never cheaper.
        self._v = [max(v[: n + 1]) for n in range(len(v))]
        self._seen: dict[tuple[str, int], list[float]] = {}
        self._overall = [PRIOR_RATE * PRIOR_WEIGHT, PRIOR_WEIGHT]
        self._tokens, self._cost = PRIOR_SPEEDUP * PRIOR_COST, PRIOR_COST
        self._most = self._steps = 0
        self._survival = 1.0
        self._bins: list[tuple[str, int]] = []

    def start(self, most: int) -> None:
        """Nothing drafted yet."""
        self._most = min(most, MAX_K)
        self._steps, self._survival, self._bins = 0, 1.0, []

    def wants_step(self) -> bool:
        """Whether the next token, of which nothing is known yet, is expected to pay."""
        drafted = len(self._bins)
        if drafted >= self._most:
            return False
        rate = self._overall[0] / self._overall[1]
        return self._survival * rate > self._price() * (self._c + self._extra(drafted))

    def wants_token(self, scores: Tensor) -> bool:
        """Whether a token of this distribution is expected to pay for its verification."""
        self._steps += 1
        confidence = probabilities(scores).amax().item()
        return self._weigh(("draft", min(int(confidence * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)), confidence)

    def wants_copy(self, matched: int) -> bool:
        """Whether one more copied token is expected to pay for its verification."""
        if len(self._bins) >= self._most:
            return False
        return self._weigh(("copy", matched), COPY_PRIORS[matched - 1])

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn the acceptance of each kind of token, and what a pass is worth."""
        for index, kind in enumerate(self._bins[:compared]):
            for counts in (self._seen[kind], self._overall):
                counts[0] += index < accepted
                counts[1] += 1
        self._tokens += emitted
        self._cost += self._steps * self._c + self._v[len(self._bins)]

    def _weigh(self, kind: tuple[str, int], prior: float) -> bool:
        accepted, compared = self._seen.setdefault(kind, [prior * PRIOR_WEIGHT, PRIOR_WEIGHT])
        survival = self._survival * accepted / compared
        if survival <= self._price() * self._extra(len(self._bins)):
            return False
        self._survival = survival
        self._bins.append(kind)
        return True

    def _price(self) -> float:
        """Tokens a target pass is worth."""
        return self._tokens / self._cost

    def _extra(self, drafted: int) -> float:
        return self._v[drafted + 1] - self._v[drafted]


class PlannedLength(FixedLength):
    """k chosen before each round, where looking at a distribution would halt the device.

    The k with the best expected speedup (theorem 3.8 of Leviathan et al. 2023 with v added) at the
    acceptance rate seen so far.
    """

    def __init__(self, c: float, v: tuple[float, ...]):
        super().__init__(0)
        self._c, self._v = c, v
        self._accepted, self._compared = PRIOR_RATE * PRIOR_WEIGHT, PRIOR_WEIGHT

    def start(self, most: int) -> None:
        """Choose k for this round."""
        alpha = self._accepted / self._compared
        self._k = max(range(MAX_K + 1), key=lambda k: expected_tokens(alpha, k) / (k * self._c + self._v[k]))
        super().start(most)

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn the acceptance rate."""
        self._accepted += accepted
        self._compared += compared


def length_for(
    k: int | Literal["auto"], calibration: Calibration | None, device: torch.device
) -> DraftLength:
    """The draft length that ``RunConfig.k`` asks for; ``auto`` needs measured costs."""
    if k != AUTO:
        return FixedLength(k)
    if calibration is None:
        raise ValueError("an automatic draft length needs measured pass costs")
    kind = AutoLength if device.type == "cpu" else PlannedLength
    return kind(calibration.c, calibration.v)
