"""How many tokens to draft: a fixed k, or as many as are expected to pay.

Under sampling a draft must never be dropped *after* it was drawn: with p = .5/.5 and q = .9/.1,
keeping only drafts one likes would put the first token out at .55. So every question here is
answered from the tokens already drafted and from the draft's next distribution as a whole, never
from the token drawn from it, and every drawn token is verified.

Whatever earlier rounds brought may be used freely, their seconds too: a round's output has the target's
distribution for every length its past can choose, because its own draws are independent of its past. A
round's seconds are known only after its verdict and so can speak to later rounds only.

Knows no model: costs come in as numbers (``Calibration``), distributions as logits.
"""

import math
from typing import Literal, Protocol

import torch
from torch import Tensor

from specdemo.engine.running_costs import RunningCosts
from specdemo.engine.sampling import NO_NUMBERS, probabilities
from specdemo.records.limits import MAX_K
from specdemo.records.theory import best_round, tokens_by_length
from specdemo.records.trace import AUTO, Calibration

MEMORY = 20.0
"""Rounds after which what was seen counts for 1/e."""
PRIOR_RATE = 0.5
PRIOR_WEIGHT = 4.0
"""A guess made before anything was seen counts as much as this many observations, and fades with them."""
LASTING_WEIGHT = 0.5
"""What is left of a guess for ever."""
LIKE_BEFORE = 6.0
"""Observations that the acceptance at the place before counts for, at each place but the first."""
PRICE_WEIGHT = 8.0
"""Target passes' worth of the plan's own rate beside what the run has emitted so far."""
COPY_PRIORS = (0.2, 0.5, 0.75, 0.8, 0.85, 0.9)
"""Guessed acceptance of a copied token by how many tokens before it agree: 1, 2, …, 6 and more."""
CONFIDENCE_BINS = 10
PROBE_EVERY = 12
"""Of undrafted rounds one in so many drafts a token, to see whether it still would not pay."""
FIRST_PROBE = 2
"""The number of the first such round, early since a guess decides until then."""
PROBE_SHARE = 0.03
"""Probes are made more rarely where they would cost a larger share of the run's time than this."""


class DraftLength(Protocol):
    """Decides during a round whether to go on drafting; one object per run."""

    def start(self, most: int) -> None:
        """A new round, in which at most ``most`` tokens are of use."""
        ...

    def wants_step(self) -> bool:
        """Whether to compute the draft's next distribution."""
        ...

    def wants_token(self, scores: Tensor) -> bool:
        """Whether to draw a token from the distribution with logits ``scores`` [H]."""
        ...

    def wants_copy(self, matched: int) -> bool:
        """Whether to copy one more token, found by a match of ``matched`` tokens."""
        ...

    def wants_guess(self, chance: float) -> bool:
        """Whether to put forward one more token that took no step and is thought right with ``chance``."""
        ...

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """What became of the round's draft."""
        ...

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """How long the round's ``draft_steps`` draft passes and its target pass over ``rows`` tokens took."""
        ...


class _Countdown:
    """What lengths share that are settled when a round starts: no question is answered by what it shows."""

    def __init__(self) -> None:
        self._left = 0

    def wants_step(self) -> bool:
        """Until all tokens are drafted."""
        return self._left > 0

    def wants_token(self, scores: Tensor) -> bool:
        """Every distribution computed is drawn from; ``scores`` is not looked at."""
        self._left -= 1
        return True

    def wants_copy(self, matched: int) -> bool:
        """Until all tokens are copied."""
        self._left -= 1
        return self._left >= 0

    def wants_guess(self, chance: float) -> bool:
        """Until all tokens are put forward."""
        self._left -= 1
        return self._left >= 0


class FixedLength(_Countdown):
    """Always k tokens, or as many as are of use."""

    def __init__(self, k: int):
        super().__init__()
        self._k = k

    def start(self, most: int) -> None:
        """k tokens, but no more than ``most``."""
        self._left = min(self._k, most)

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """A fixed length learns nothing."""

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Nor does it count costs."""


class _Rate:
    """A share of successes. Observations fade from round to round, and so does most of the guess.

    Fading goes by rounds, not by observations: after a pause in drafting a single probe says more than all
    that was seen before.
    """

    def __init__(self, guess: float, fading: float, lasting: float, now: int):
        self._guess, self._lasting = guess, lasting
        self._sum, self._count, self._round = guess * fading, fading, now

    def add(self, value: float, now: int) -> None:
        """Take in an observation, 0 to 1, made in round ``now``."""
        keep = self._keep(now)
        self._sum = self._sum * keep + value
        self._count = self._count * keep + 1.0
        self._round = now

    def value(self, now: int, guess: float | None = None) -> float:
        """The rate as it seems in round ``now``, with another guess for what is left of it."""
        keep, lasting = self._keep(now), self._lasting
        guess = self._guess if guess is None else guess
        return (self._sum * keep + guess * lasting) / (self._count * keep + lasting)

    def _keep(self, now: int) -> float:
        return math.exp((self._round - now) / MEMORY)


class _Planner:
    """What both automatic lengths know: costs, acceptance by place, the round's number and most tokens."""

    def __init__(self, calibration: Calibration):
        self._costs = RunningCosts(calibration)
        first = _Rate(PRIOR_RATE, PRIOR_WEIGHT, LASTING_WEIGHT, 0)
        self._places = [first, *(_Rate(PRIOR_RATE, 0.0, LIKE_BEFORE, 0) for _ in range(MAX_K - 1))]
        self._round = -1
        self._most = 0

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Correct the costs."""
        self._costs.timed(draft_steps, rows, draft_s, verify_s)

    def _begin(self, most: int) -> list[float]:
        """A new round; of each place the acceptance to expect of a token of which nothing is known."""
        self._round += 1
        self._most = min(most, MAX_K)
        rates = [self._places[0].value(self._round)]
        for place in self._places[1:]:
            rates.append(place.value(self._round, guess=rates[-1]))
        return rates

    def _probes(self) -> bool:
        """Whether this round drafts a token even if none is expected to pay.

        Its number decides, and what a probe costs. The first is made whatever it is thought to cost, since
        only a draft that was timed tells whether that is right.
        """
        cost = self._costs.c + self._costs.v[1] - self._costs.v[0]
        every = max(PROBE_EVERY, math.ceil(cost / PROBE_SHARE))
        return self._most > 0 and self._round % every == FIRST_PROBE


class AutoLength(_Planner):
    """Draft on while the best way to go on is expected to emit more than its time could elsewhere.

    A token that would be emitted with probability s (the product of the acceptance expected of the draft
    so far) is worth s tokens, and time is worth what this run emits per target pass. Before each step and
    before each token all lengths from here to the longest are weighed against stopping here, so a cost that
    rises once, or is paid once, is no wall. Acceptance of a token whose distribution is known is expected
    from its highest probability, corrected by what this run has seen; of later ones from what became of
    others at their place.
    """

    def __init__(self, calibration: Calibration):
        super().__init__(calibration)
        self._seen: dict[tuple[str, int], _Rate] = {}
        self._tokens = self._spent = 0.0
        self._rates: list[float] = []
        self._price = 1.0
        self._steps = 0
        self._survival = 1.0
        self._drafted: list[tuple[str, int]] = []
        self._refused: float | None = None
        self._probing = False

    def start(self, most: int) -> None:
        """Nothing drafted yet."""
        self._rates = self._begin(most)
        costs, tokens = self._costs, tokens_by_length(self._rates)
        k = best_round(tokens, costs.c, costs.v)
        planned = tokens[k] / (k * costs.c + costs.v[k])
        going = (self._tokens + PRICE_WEIGHT * planned) / (self._spent + PRICE_WEIGHT)
        # A round without a draft is always to be had.
        self._price = max(going, 1.0 / costs.v[0])
        self._steps, self._survival, self._drafted = 0, 1.0, []
        self._refused, self._probing = None, False

    def wants_step(self) -> bool:
        """Whether going on with tokens of which nothing is known yet is expected to pay."""
        drafted = len(self._drafted)
        if drafted >= self._most or self._probing:
            return False
        if self._gain(self._rates, drafted, self._survival, self._costs.c) > 0:
            return True
        self._probing = drafted == 0 and self._probes()
        return self._probing

    def wants_token(self, scores: Tensor) -> bool:
        """Whether a token of this distribution, and perhaps more behind it, is expected to pay.

        Raises:
            FloatingPointError: It is no distribution.
        """
        self._steps += 1
        confidence = probabilities(scores).amax().item()
        if math.isnan(confidence):
            raise FloatingPointError(NO_NUMBERS)
        kind = ("draft", _bin(confidence))
        rate = self._rate_of(kind, confidence)
        drafted = len(self._drafted)
        survival = self._survival * rate
        behind = self._gain(self._rates, drafted + 1, survival, self._costs.c)
        v = self._costs.v
        if survival + max(0.0, behind) <= self._price * (v[drafted + 1] - v[drafted]) and not self._probing:
            self._refused = rate
            return False
        self._draft(kind, survival)
        return True

    def wants_copy(self, matched: int) -> bool:
        """Whether copying on is expected to pay, and at first more than drafting instead."""
        last = len(COPY_PRIORS) - 1
        kinds = [min(matched - 1 + place, last) for place in range(self._most)]
        rates = [self._rate_of(("copy", kind), COPY_PRIORS[kind]) for kind in kinds]
        return self._wants_free([("copy", kind) for kind in kinds], rates)

    def wants_guess(self, chance: float) -> bool:
        """As :meth:`wants_copy`; tokens behind it are taken to be as likely."""
        kind = ("guess", _bin(chance))
        return self._wants_free([kind] * self._most, [self._rate_of(kind, chance)] * self._most)

    def _wants_free(self, kinds: list[tuple[str, int]], rates: list[float]) -> bool:
        """Whether a token that takes no step is worth its row; ``kinds`` and ``rates`` by place.

        Whoever has such tokens and a step to pay for can also draft.
        """
        drafted = len(self._drafted)
        if drafted >= self._most:
            return False
        instead = 0.0
        if drafted == 0 and self._costs.c > 0:
            instead = max(0.0, self._gain(self._rates, 0, 1.0, self._costs.c))
        pays = self._gain(rates, drafted, self._survival, 0.0) > instead
        if not pays and (drafted > 0 or instead > 0 or not self._probes()):
            return False
        self._draft(kinds[drafted], self._survival * rates[drafted])
        return True

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn the acceptance of each kind of token and of each place, and what a pass is worth."""
        for place, kind in enumerate(self._drafted[:compared]):
            self._seen[kind].add(place < accepted, self._round)
            if kind[0] == "draft":
                self._places[place].add(place < accepted, self._round)
        drafted = len(self._drafted)
        if self._refused is not None and accepted == drafted:
            # Counted by what was expected of it: the drafted ones alone are a choice of the best.
            self._places[drafted].add(self._refused, self._round)
        self._tokens += emitted
        self._spent += self._steps * self._costs.c + self._costs.v[drafted]

    def _gain(self, rates: list[float], drafted: int, survival: float, step: float) -> float:
        """Tokens that the best way to draft on brings beyond what its time is worth; -inf where none is left.

        Args:
            rates: Acceptance of each place of the draft, from its first.
            drafted: Tokens drafted already; ``survival`` is the probability that all are accepted.
            step: What drafting a token costs.
        """
        v, price = self._costs.v, self._price
        best, emitted, cost = -math.inf, 0.0, -v[drafted]
        for place in range(drafted, self._most):
            survival *= rates[place]
            emitted += survival
            cost += step
            best = max(best, emitted - price * (cost + v[place + 1]))
        return best

    def _rate_of(self, kind: tuple[str, int], guess: float) -> float:
        if kind not in self._seen:
            self._seen[kind] = _Rate(guess, PRIOR_WEIGHT, LASTING_WEIGHT, self._round)
        return self._seen[kind].value(self._round)

    def _draft(self, kind: tuple[str, int], survival: float) -> None:
        self._drafted.append(kind)
        self._survival = survival


def _bin(chance: float) -> int:
    return min(int(chance * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)


class PlannedLength(_Countdown, _Planner):
    """k chosen before each round, where looking at a distribution would halt the device.

    The k with the best expected speedup (theorem 3.8 of Leviathan et al. 2023 with v added, and with the
    acceptance seen so far at each place instead of one α).
    """

    def __init__(self, calibration: Calibration):
        _Countdown.__init__(self)
        _Planner.__init__(self, calibration)

    def start(self, most: int) -> None:
        """Choose k for this round."""
        rates = self._begin(most)[: self._most]
        k = best_round(tokens_by_length(rates), self._costs.c, self._costs.v)
        self._left = k or int(self._probes())

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn the acceptance of each place."""
        for place in range(compared):
            self._places[place].add(place < accepted, self._round)


def length_for(
    k: int | Literal["auto"], calibration: Calibration | None, device: torch.device
) -> DraftLength:
    """The draft length that ``RunConfig.k`` asks for; ``auto`` needs measured costs."""
    if k != AUTO:
        return FixedLength(k)
    if calibration is None:
        raise ValueError("an automatic draft length needs measured pass costs")
    return AutoLength(calibration) if device.type == "cpu" else PlannedLength(calibration)
