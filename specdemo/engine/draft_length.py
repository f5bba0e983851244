"""The number of tokens to draft in a round: a fixed k, or as many as are expected to pay."""

import math
from typing import Literal

import torch
from torch import Tensor

from specdemo.engine.running_costs import RunningCosts
from specdemo.engine.sampling import NO_NUMBERS, probabilities
from specdemo.records.limits import MAX_K
from specdemo.records.theory import best_round, tokens_by_length
from specdemo.records.trace import AUTO, Calibration

MEMORY = 20.0
"""Number of rounds after which an observation counts for 1/e."""
PRIOR_RATE = 0.5
PRIOR_WEIGHT = 4.0
"""A prior acceptance rate counts as much as this many observations and fades like them."""
LASTING_WEIGHT = 0.5
"""The part of a prior's weight that never fades."""
NEIGHBOR_WEIGHT = 6.0
"""Number of observations that the acceptance rate at the previous place of a draft counts for."""
PRICE_WEIGHT = 8.0
"""Number of target passes that the planned rate counts for, next to the tokens emitted so far."""
COPY_PRIORS = (0.2, 0.5, 0.75, 0.8, 0.85, 0.9)
"""Prior acceptance rates of a copied token if 1, 2, …, 6 or more tokens before it match."""
CONFIDENCE_BINS = 10
PROBE_EVERY = 12
"""One in this many rounds that would draft nothing drafts a token, to see if drafting has begun to pay."""
FIRST_PROBE = 2
"""Index of the first such round; early, because until then only priors decide."""
PROBE_SHARE = 0.03
"""Probes become rarer if they would cost a larger share of the run's time than this."""


class DraftLength:
    """Decides during a round whether to go on drafting; one object per run.

    Under sampling a draft token must never be dropped *after* it was drawn: with p = .5/.5 and q = .9/.1,
    keeping only the tokens one likes would emit the first token with probability .55. So every answer depends
    on the tokens already drafted and on the draft's next distribution as a whole, never on the token drawn
    from it, and every drawn token is verified.

    Earlier rounds, their seconds included, may be used freely: a round's draws are independent of its past,
    so its output has the target's distribution for every length that the past can choose. A round's own
    seconds are known only after its verdict and can affect only later rounds.

    This base class counts down from the length that a subclass sets in :meth:`start`.
    """

    def __init__(self) -> None:
        self._left = 0

    def start(self, limit: int) -> None:
        """Start a round in which no more than ``limit`` draft tokens are useful."""
        raise NotImplementedError

    def wants_step(self) -> bool:
        """Return whether to compute the draft's next distribution."""
        return self._left > 0

    def wants_token(self, scores: Tensor) -> bool:
        """Return whether to draw a token from the distribution with logits ``scores`` [H]."""
        self._left -= 1
        return True

    def wants_copy(self, matched: int) -> bool:
        """Return whether to copy one more token, found by a match of ``matched`` tokens."""
        self._left -= 1
        return self._left >= 0

    def wants_table_token(self, chance: float) -> bool:
        """Return whether to add one more token from a table, whose expected acceptance is ``chance``."""
        self._left -= 1
        return self._left >= 0

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn the verdict on the round's draft: tokens accepted, compared, and emitted in all."""

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Learn the seconds of ``draft_steps`` draft passes and of the target pass over ``rows`` tokens."""


class FixedLength(DraftLength):
    """Always k tokens, or as many as are useful."""

    def __init__(self, k: int):
        super().__init__()
        self._k = k

    def start(self, limit: int) -> None:
        self._left = min(self._k, limit)


class _Rate:
    """An acceptance rate. Observations fade from round to round, and so does most of the prior.

    They fade by rounds, not by observations: after a pause in drafting a single probe counts for more than
    all earlier observations.
    """

    def __init__(self, prior: float, fading: float, lasting: float, now: int):
        self._prior, self._lasting = prior, lasting
        self._sum, self._count, self._round = prior * fading, fading, now

    def add(self, value: float, now: int) -> None:
        """Add an observation, 0 to 1, made in round ``now``."""
        keep = self._keep(now)
        self._sum = self._sum * keep + value
        self._count = self._count * keep + 1.0
        self._round = now

    def value(self, now: int, prior: float | None = None) -> float:
        """Return the estimate in round ``now``; ``prior`` replaces the lasting part of the prior."""
        keep, lasting = self._keep(now), self._lasting
        prior = self._prior if prior is None else prior
        return (self._sum * keep + prior * lasting) / (self._count * keep + lasting)

    def _keep(self, now: int) -> float:
        return math.exp((self._round - now) / MEMORY)


class _Planner(DraftLength):
    """The common state of both automatic lengths: pass costs and acceptance rates by place in the draft."""

    def __init__(self, calibration: Calibration):
        super().__init__()
        self._costs = RunningCosts(calibration)
        first = _Rate(PRIOR_RATE, PRIOR_WEIGHT, LASTING_WEIGHT, 0)
        self._places = [first, *(_Rate(PRIOR_RATE, 0.0, NEIGHBOR_WEIGHT, 0) for _ in range(MAX_K - 1))]
        self._round = -1
        self._limit = 0

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        self._costs.timed(draft_steps, rows, draft_s, verify_s)

    def _begin(self, limit: int) -> list[float]:
        """Start a round; return the expected acceptance at each place of a token that is not yet computed."""
        self._round += 1
        self._limit = min(limit, MAX_K)
        rates = [self._places[0].value(self._round)]
        for place in self._places[1:]:
            rates.append(place.value(self._round, prior=rates[-1]))
        return rates

    def _probes(self) -> bool:
        """Return whether this round drafts a token even if none is expected to pay.

        That depends on the round's index and on the cost of a probe. The first probe is made at any cost,
        because only a timed draft shows whether the measured cost is right.
        """
        cost = self._costs.c + self._costs.v[1] - self._costs.v[0]
        every = max(PROBE_EVERY, math.ceil(cost / PROBE_SHARE))
        return self._limit > 0 and self._round % every == FIRST_PROBE


class AutoLength(_Planner):
    """Drafts on while the best continuation is expected to emit more than its time is worth.

    A token that would be emitted with probability s (the product of the expected acceptance rates up to it)
    is worth s tokens. Time is worth what this run emits per target pass. Before each step and before each
    token, every length from here to the longest is compared with stopping here, so that a verification cost
    that rises in a single step does not stop drafting too early. The expected acceptance of a token follows
    from the highest probability of its distribution, corrected by this run's observations; that of a token
    not yet computed follows from observations at the same place of earlier drafts.
    """

    def __init__(self, calibration: Calibration):
        super().__init__(calibration)
        # Of the run: acceptance by kind of token; tokens emitted, and their cost in target passes.
        self._kind_rates: dict[tuple[str, int], _Rate] = {}
        self._tokens = self._passes = 0.0
        # Of the round: expected acceptance by place; tokens that a target pass is worth; draft steps so far;
        # kinds of the tokens drafted so far, and the probability that all are accepted; expected acceptance
        # of the token that ended the draft; whether the round is a probe.
        self._place_rates: list[float] = []
        self._price = 1.0
        self._steps = 0
        self._drafted: list[tuple[str, int]] = []
        self._survival = 1.0
        self._declined: float | None = None
        self._probing = False

    def start(self, limit: int) -> None:
        self._place_rates = self._begin(limit)
        costs, tokens = self._costs, tokens_by_length(self._place_rates)
        k = best_round(tokens, costs.c, costs.v)
        planned = tokens[k] / (k * costs.c + costs.v[k])
        going = (self._tokens + PRICE_WEIGHT * planned) / (self._passes + PRICE_WEIGHT)
        # A round without a draft is always possible.
        self._price = max(going, 1.0 / costs.v[0])
        self._steps, self._survival, self._drafted = 0, 1.0, []
        self._declined, self._probing = None, False

    def wants_step(self) -> bool:
        """Return whether to compute more draft tokens, about which nothing is known yet."""
        drafted = len(self._drafted)
        if drafted >= self._limit or self._probing:
            return False
        if self._gain(self._place_rates, drafted, self._survival, self._costs.c) > 0:
            return True
        self._probing = drafted == 0 and self._probes()
        return self._probing

    def wants_token(self, scores: Tensor) -> bool:
        """Return whether a token of this distribution, perhaps with more after it, is expected to pay.

        Raises:
            FloatingPointError: The logits are not a distribution.
        """
        self._steps += 1
        confidence = probabilities(scores).amax().item()
        if math.isnan(confidence):
            raise FloatingPointError(NO_NUMBERS)
        kind = ("draft", _bin(confidence))
        rate = self._rate_of(kind, confidence)
        drafted = len(self._drafted)
        survival = self._survival * rate
        after = self._gain(self._place_rates, drafted + 1, survival, self._costs.c)
        v = self._costs.v
        if survival + max(0.0, after) <= self._price * (v[drafted + 1] - v[drafted]) and not self._probing:
            self._declined = rate
            return False
        self._draft(kind, survival)
        return True

    def wants_copy(self, matched: int) -> bool:
        """Return whether to copy on; the first copied token must also beat drafting instead."""
        last = len(COPY_PRIORS) - 1
        kinds = [min(matched - 1 + place, last) for place in range(self._limit)]
        rates = [self._rate_of(("copy", kind), COPY_PRIORS[kind]) for kind in kinds]
        return self._wants_free([("copy", kind) for kind in kinds], rates)

    def wants_table_token(self, chance: float) -> bool:
        """Return whether to add a table's token, assuming that later ones are as likely to be accepted."""
        kind = ("table", _bin(chance))
        return self._wants_free([kind] * self._limit, [self._rate_of(kind, chance)] * self._limit)

    def _wants_free(self, kinds: list[tuple[str, int]], rates: list[float]) -> bool:
        """Return whether a token that needs no draft step is worth its row in the target pass.

        Args:
            kinds: Kind of token at each place of the draft.
            rates: Expected acceptance rate at each place.
        """
        drafted = len(self._drafted)
        if drafted >= self._limit:
            return False
        # A drafter with both free tokens and draft steps (c > 0) could draft instead.
        instead = 0.0
        if drafted == 0 and self._costs.c > 0:
            instead = max(0.0, self._gain(self._place_rates, 0, 1.0, self._costs.c))
        pays = self._gain(rates, drafted, self._survival, 0.0) > instead
        if not pays and (drafted > 0 or instead > 0 or not self._probes()):
            return False
        self._draft(kinds[drafted], self._survival * rates[drafted])
        return True

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn the acceptance rates of each kind of token and each place, and the value of time."""
        for place, kind in enumerate(self._drafted[:compared]):
            self._kind_rates[kind].add(place < accepted, self._round)
            if kind[0] == "draft":
                self._places[place].add(place < accepted, self._round)
        drafted = len(self._drafted)
        if self._declined is not None and accepted == drafted:
            # The token declined by wants_token counts with its expected rate: the drafted tokens alone are a
            # selection of the best.
            self._places[drafted].add(self._declined, self._round)
        self._tokens += emitted
        self._passes += self._steps * self._costs.c + self._costs.v[drafted]

    def _gain(self, rates: list[float], drafted: int, survival: float, step: float) -> float:
        """Return the expected tokens of the best longer draft less the value of its time; −inf if none fits.

        Args:
            rates: Expected acceptance rate at each place of the draft.
            drafted: Number of tokens drafted already.
            survival: Probability that all of them are accepted.
            step: Cost of drafting a token, in target passes.
        """
        v, price = self._costs.v, self._price
        best, emitted, cost = -math.inf, 0.0, -v[drafted]
        for place in range(drafted, self._limit):
            survival *= rates[place]
            emitted += survival
            cost += step
            best = max(best, emitted - price * (cost + v[place + 1]))
        return best

    def _rate_of(self, kind: tuple[str, int], prior: float) -> float:
        if kind not in self._kind_rates:
            self._kind_rates[kind] = _Rate(prior, PRIOR_WEIGHT, LASTING_WEIGHT, self._round)
        return self._kind_rates[kind].value(self._round)

    def _draft(self, kind: tuple[str, int], survival: float) -> None:
        self._drafted.append(kind)
        self._survival = survival


def _bin(chance: float) -> int:
    return min(int(chance * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)


class PlannedLength(_Planner):
    """Chooses k before each round, for devices that would have to stop to show a distribution.

    k maximizes the expected speedup E[τ] / (k·c + v(k + 1)): theorem 3.8 of Leviathan et al. 2023 with v
    added, and with the acceptance rate observed at each place instead of a single α.
    """

    def start(self, limit: int) -> None:
        rates = self._begin(limit)[: self._limit]
        k = best_round(tokens_by_length(rates), self._costs.c, self._costs.v)
        self._left = k or int(self._probes())

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        for place in range(compared):
            self._places[place].add(place < accepted, self._round)


def length_for(
    k: int | Literal["auto"], calibration: Calibration | None, device: torch.device
) -> DraftLength:
    """Return the draft length for ``RunConfig.k``.

    Raises:
        ValueError: k is ``auto`` and there are no measured costs.
    """
    if k != AUTO:
        return FixedLength(k)
    if calibration is None:
        raise ValueError("an automatic draft length needs measured pass costs")
    return AutoLength(calibration) if device.type == "cpu" else PlannedLength(calibration)
