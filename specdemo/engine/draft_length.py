"""Draft length policies: a fixed number of draft tokens k, or one that adapts to the run."""

import math
from typing import Literal

import torch
from torch import Tensor

from specdemo.engine.running_costs import RunningCosts
from specdemo.engine.sampling import NO_NUMBERS, highest_probability
from specdemo.records.limits import MAX_K
from specdemo.records.theory import best_round, tokens_by_length
from specdemo.records.trace import AUTO, Calibration

FADING_ROUNDS = 20.0  # after this many rounds, the weight of an observation has fallen to 1/e
PRIOR_RATE = 0.5
PRIOR_WEIGHT = 4.0  # number of observations that a prior rate counts for; it fades like their weight
LASTING_WEIGHT = 0.5  # an additional weight of a prior, in observations, that never fades
# The prior of a later draft position is the rate at the position before it, with this weight.
NEIGHBOR_WEIGHT = 6.0
# Number of target passes that the planned tokens per pass count for, when averaged with the run so far.
PRICE_WEIGHT = 8.0
COPY_PRIORS = (0.2, 0.5, 0.55, 0.7, 0.75, 0.8, 0.8, 0.8, 0.85, 0.85, 0.9, 0.95)
"""Prior acceptance rates of a copied token by the number of matching tokens before it: 1, 2, …, 12 or more.

Measured on 1,500 greedy texts of the built-in target.
"""
CONFIDENCE_BINS = 10
PROBE_AFTER = 6
"""Minimum number of rounds without a draft before a probe: a round in which no draft is expected to pay, but
one token is drafted to measure whether drafting pays by now."""
FIRST_PROBE = 2  # index of the first round that can be a probe; early, because only priors decide until then
PROBE_SHARE = 0.02  # maximum share of the run's time for probes; expensive ones are made less often


class DraftLength:
    """Decides, during a round, whether to draft another token. Each run has its own object.

    Dropping a draft token *after* it was drawn would bias the output. If p = (.5, .5), q = (.9, .1), and a
    drawn token is verified only if it is the first one, the output has this token with probability .55. So a
    decision may depend on the tokens already drafted and on the whole next draft distribution, but not on the
    token drawn from it. It may also depend on earlier rounds and on their times, because the random draws of
    a round are independent of earlier rounds.

    This base class counts down from the number that a subclass sets in :meth:`start`.
    """

    reads_scores = False  # whether wants_token depends on its argument

    def __init__(self) -> None:
        self._left = 0

    def start(self, limit: int) -> None:
        """Start a round; ``limit`` is the maximum number of draft tokens that the run has room for."""
        raise NotImplementedError

    def wants_step(self) -> bool:
        """Return whether the drafter should compute its next distribution."""
        return self._left > 0

    def wants_token(self, scores: Tensor) -> bool:
        """Return whether the drafter should draw a token from its distribution.

        ``scores`` are its logits [H], or logits [n, H] with decisions, whose last row is this distribution.
        """
        self._left -= 1
        return True

    def wants_copy(self, matched: int) -> bool:
        """Return whether to copy one more token; ``matched`` tokens before the first copied one matched."""
        self._left -= 1
        return self._left >= 0

    def wants_table_token(self, probability: float) -> bool:
        """Return whether to add a table's token, which is accepted with about this ``probability``."""
        self._left -= 1
        return self._left >= 0

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        """Learn a round's numbers of accepted draft tokens, compared draft tokens, and emitted tokens."""

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        """Learn a round's times: of all draft steps together, and of the target pass over ``rows`` tokens."""


class FixedLength(DraftLength):
    """A fixed number of draft tokens, k; fewer only if the run has no room for k."""

    def __init__(self, k: int):
        super().__init__()
        self._k = k

    def start(self, limit: int) -> None:
        self._left = min(self._k, limit)


class _Rate:
    """A running estimate of an acceptance rate. Old observations and most of the prior lose weight.

    The weights fall with every round, even if it adds no observation. So after many rounds without drafts, a
    single probe counts for more than all earlier observations together. The weights ``fading`` and
    ``lasting`` of the prior are in observations.
    """

    def __init__(self, prior: float, fading: float, lasting: float, now: int):
        self._prior, self._lasting = prior, lasting
        self._sum, self._count, self._round = prior * fading, fading, now

    def add(self, value: float, now: int) -> None:
        """Add an observation from 0 to 1, made in round ``now``."""
        keep = self._keep(now)
        self._sum = self._sum * keep + value
        self._count = self._count * keep + 1.0
        self._round = now

    def value(self, now: int, prior: float | None = None) -> float:
        """Return the estimate as of round ``now``. If given, ``prior`` replaces the constructor's prior."""
        keep, lasting = self._keep(now), self._lasting
        prior = self._prior if prior is None else prior
        return (self._sum * keep + prior * lasting) / (self._count * keep + lasting)

    def _keep(self, now: int) -> float:
        return math.exp((self._round - now) / FADING_ROUNDS)


class _Planner(DraftLength):
    """The state that both automatic policies share: pass costs, and acceptance rates by draft position.

    In ``AutoLength``, these rates count only tokens that needed a draft pass; in ``PlannedLength``, all
    tokens.
    """

    def __init__(self, calibration: Calibration):
        super().__init__()
        self._calibration = calibration
        self._costs = RunningCosts(calibration)
        first = _Rate(PRIOR_RATE, PRIOR_WEIGHT, LASTING_WEIGHT, 0)
        self._observed = [first, *(_Rate(PRIOR_RATE, 0.0, NEIGHBOR_WEIGHT, 0) for _ in range(MAX_K - 1))]
        self._round = -1
        self._undrafted = 0  # number of rounds since the last draft
        self._limit = 0

    def timed(self, draft_steps: int, rows: int, draft_s: float, verify_s: float) -> None:
        self._costs.timed(draft_steps, rows, draft_s, verify_s)

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        self._undrafted = 0 if compared else self._undrafted + 1

    def _begin(self, limit: int) -> list[float]:
        """Start a round and return the expected acceptance rate at each of ``MAX_K`` draft positions."""
        self._round += 1
        self._limit = min(limit, MAX_K)
        rates = [self._observed[0].value(self._round)]
        for rate in self._observed[1:]:
            rates.append(rate.value(self._round, prior=rates[-1]))
        return rates

    def _is_probe_due(self) -> bool:
        """Return whether this round should be a probe if no draft is expected to pay."""
        # The first probe is made at any cost, because only a timed draft shows if the calibrated cost is
        # right. A cost that rose in the run does not delay the next one: other work may have ended.
        cost = min(given.c + given.v[1] - given.v[0] for given in (self._costs, self._calibration))
        due = FIRST_PROBE if self._round == FIRST_PROBE else max(PROBE_AFTER, math.ceil(cost / PROBE_SHARE))
        return self._limit > 0 and self._undrafted >= due


class AutoLength(_Planner):
    """Decides before each draft token, by comparing the expected gain of longer drafts with their cost.

    The gain of a draft token is the probability that it is emitted: the product of the expected acceptance
    rates of this token and all draft tokens before it. Its cost is the time it adds, priced at the run's
    tokens per target pass. Every longer draft is compared with stopping now. Looking only one token ahead
    could stop too early, because verification costs can rise at one length and then stay flat.

    The expected acceptance rate of a computed token is the highest probability in its distribution, corrected
    by this run's observations. For a token that is not computed yet, it follows from observations at the same
    draft position.
    """

    reads_scores = True

    def __init__(self, calibration: Calibration):
        super().__init__(calibration)
        # State of the run: acceptance rate by kind of token; emitted tokens, and their cost in target passes.
        self._kind_rates: dict[tuple[str, int], _Rate] = {}
        self._tokens = self._passes = 0.0
        # State of the round: expected acceptance rate by draft position; price of a target pass in tokens;
        # number of draft steps; kinds of the draft tokens, and the probability that all are accepted;
        # expected acceptance rate of the token that wants_token declined; whether the round is a probe.
        self._expected: list[float] = []
        self._price = 1.0
        self._steps = 0
        self._drafted: list[tuple[str, int]] = []
        self._survival = 1.0
        self._declined: float | None = None
        self._probing = False

    def start(self, limit: int) -> None:
        self._expected = self._begin(limit)
        costs, tokens = self._costs, tokens_by_length(self._expected)
        k = best_round(tokens, costs.c, costs.v)
        planned = tokens[k] / (k * costs.c + costs.v[k])
        average = (self._tokens + PRICE_WEIGHT * planned) / (self._passes + PRICE_WEIGHT)
        # A round without a draft emits one token for v(1), so time is worth at least that.
        self._price = max(average, 1.0 / costs.v[0])
        self._steps, self._survival, self._drafted = 0, 1.0, []
        self._declined, self._probing = None, False

    def wants_step(self) -> bool:
        drafted = len(self._drafted)
        if drafted >= self._limit or self._probing:
            return False
        if self._gain(self._expected, drafted, self._survival, self._costs.c) > 0:
            return True
        self._probing = drafted == 0 and self._is_probe_due()
        return self._probing

    def wants_token(self, scores: Tensor) -> bool:
        """Return whether this token, alone or with later ones, is expected to pay, or is a probe."""
        self._steps += 1
        confidence = highest_probability(scores)
        if math.isnan(confidence):
            raise FloatingPointError(NO_NUMBERS)
        kind = ("draft", _confidence_bin(confidence))
        rate = self._rate_of(kind, confidence)
        drafted = len(self._drafted)
        survival = self._survival * rate
        after = self._gain(self._expected, drafted + 1, survival, self._costs.c)
        v = self._costs.v
        pays = survival + max(0.0, after) > self._price * (v[drafted + 1] - v[drafted])
        if not (pays or self._probing or (drafted == 0 and self._is_probe_due())):
            self._declined = rate
            return False
        self._draft(kind, survival)
        return True

    def wants_copy(self, matched: int) -> bool:
        last = len(COPY_PRIORS) - 1
        kinds = [min(matched - 1 + position, last) for position in range(self._limit)]
        rates = [self._rate_of(("copy", kind), COPY_PRIORS[kind]) for kind in kinds]
        return self._wants_free([("copy", kind) for kind in kinds], rates)

    def wants_table_token(self, probability: float) -> bool:
        # Assume that later tokens have the same probability.
        kind = ("table", _confidence_bin(probability))
        return self._wants_free([kind] * self._limit, [self._rate_of(kind, probability)] * self._limit)

    def _wants_free(self, kinds: list[tuple[str, int]], rates: list[float]) -> bool:
        """Return whether to add a token that needs no draft step but makes the target pass longer.

        ``kinds`` and ``rates`` have the kind and the expected acceptance rate at each draft position.
        """
        drafted = len(self._drafted)
        if drafted >= self._limit:
            return False
        # If the drafter can make draft steps as well (c > 0), it could draft with them instead.
        instead = 0.0
        if drafted == 0 and self._costs.c > 0:
            instead = max(0.0, self._gain(self._expected, 0, 1.0, self._costs.c))
        pays = self._gain(rates, drafted, self._survival, 0.0) > instead
        if not pays and (drafted > 0 or instead > 0 or not self._is_probe_due()):
            return False
        self._draft(kinds[drafted], self._survival * rates[drafted])
        return True

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        super().observe(accepted, compared, emitted)
        for position, kind in enumerate(self._drafted[:compared]):
            self._kind_rates[kind].add(position < accepted, self._round)
            if kind[0] == "draft":
                self._observed[position].add(position < accepted, self._round)
        drafted = len(self._drafted)
        if self._declined is not None and accepted == drafted:
            # Count the token that wants_token declined with its expected acceptance rate. Only promising
            # tokens are drafted, so without it the rate at this position would be too high.
            self._observed[drafted].add(self._declined, self._round)
        self._tokens += emitted
        self._passes += self._steps * self._costs.c + self._costs.v[drafted]

    def _gain(self, rates: list[float], drafted: int, survival: float, step_cost: float) -> float:
        """Return the expected gain, in tokens, of the best longer draft over stopping now, or −inf.

        It is the expected number of additional tokens minus the price of the additional time. All ``drafted``
        tokens are accepted with probability ``survival``; ``step_cost`` is in target passes.
        """
        v, price = self._costs.v, self._price
        best, emitted, cost = -math.inf, 0.0, -v[drafted]
        for position in range(drafted, self._limit):
            survival *= rates[position]
            emitted += survival
            cost += step_cost
            best = max(best, emitted - price * (cost + v[position + 1]))
        return best

    def _rate_of(self, kind: tuple[str, int], prior: float) -> float:
        if kind not in self._kind_rates:
            self._kind_rates[kind] = _Rate(prior, PRIOR_WEIGHT, LASTING_WEIGHT, self._round)
        return self._kind_rates[kind].value(self._round)

    def _draft(self, kind: tuple[str, int], survival: float) -> None:
        self._drafted.append(kind)
        self._survival = survival


def _confidence_bin(probability: float) -> int:
    return min(int(probability * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)


class PlannedLength(_Planner):
    """Chooses k before each round. Used on GPUs, where reading a distribution during drafting costs time.

    k maximizes the expected speedup E[τ] / (k·c + v(k + 1)). This is theorem 3.8 of Leviathan et al. 2023
    with v added, and with the observed acceptance rate at each draft position instead of a single α.
    """

    def start(self, limit: int) -> None:
        rates = self._begin(limit)[: self._limit]
        k = best_round(tokens_by_length(rates), self._costs.c, self._costs.v)
        self._left = k or int(self._is_probe_due())

    def observe(self, accepted: int, compared: int, emitted: int) -> None:
        super().observe(accepted, compared, emitted)
        for position in range(compared):
            self._observed[position].add(position < accepted, self._round)


def length_for(
    k: int | Literal["auto"], calibration: Calibration | None, device: torch.device
) -> DraftLength:
    """Return the draft length policy for ``RunConfig.k``; only ``auto`` needs ``calibration``."""
    if k != AUTO:
        return FixedLength(k)
    if calibration is None:
        raise ValueError("an automatic draft length needs measured pass costs")
    return AutoLength(calibration) if device.type == "cpu" else PlannedLength(calibration)
