"""A finished run with other draft lengths, in hindsight. The lab's JavaScript applies conditions to it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from specdemo.records.figures import Totals
from specdemo.records.limits import MAX_K
from specdemo.records.trace import SPECULATIVE, Calibration, Round, Run, Status


class Times(NamedTuple):
    """Rounds with equal times, in seconds for each; an expected number of rounds need not be whole."""

    count: float
    draft_s: float
    verify_s: float
    rest_s: float


class Hindsight(NamedTuple):
    """The rounds that would have written a run's text with one draft length."""

    k: int  # 0 for the lengths that the run drafted
    expected: list[Times]
    fewest: list[Times]  # if all tokens that the draft never proposed had been accepted
    most: list[Times]  # if none of them had been accepted


def hindsight(run: Run, totals: Totals, calibration: Calibration) -> list[Hindsight]:
    """Return the run as drafted, and with every fixed draft length for which costs were measured.

    A draft token is assumed to depend only on the text before it, not on the start of its round. This holds
    for draft models and n-gram tables under greedy and shared noise; for other runs, the result is an
    estimate. Under this assumption, a run shows at each position of its text whether a draft token would be
    accepted there. Only tokens that the target added without a comparison are unknown; they get the
    acceptance rate of the run.

    A draft of k tokens takes k times the run's mean time of a draft token, and verification is scaled by v(k
    + 1). The run must have compared at least one draft token.
    """
    rounds = run.lanes[SPECULATIVE].rounds
    accepted = accepted_by_token(rounds)
    drafted = sum(len(round_.drafted) for round_ in rounds)
    assert drafted and totals.alpha_compared is not None
    draft_s, rest_s = totals.draft_s / drafted, totals.other_s / totals.passes
    verify_s = totals.verify_s / sum(calibration.v[len(round_.drafted)] for round_ in rounds)

    def times(k: int, alpha: float) -> list[Times]:
        by_length = expected_rounds(accepted, k, alpha, run.config.max_new_tokens)
        return [
            Times(count, length * draft_s, calibration.v[length] * verify_s, rest_s)
            for length, count in by_length.items()
        ]

    own = [Times(1.0, round_.draft_s, round_.verify_s, round_.other_s) for round_ in rounds]
    lengths = range(1, min(MAX_K, len(calibration.v) - 1) + 1)
    chances = (totals.alpha_compared, 1.0, 0.0)
    return [Hindsight(0, own, own, own), *(Hindsight(k, *(times(k, a) for a in chances)) for k in lengths)]


def accepted_by_token(rounds: Sequence[Round]) -> list[bool | None]:
    """Return for each output token whether a draft token was accepted there; None if none was compared."""
    accepted: list[bool | None] = []
    for round_ in rounds:
        accepted += [True] * round_.accepted
        if round_.emission:
            accepted.append(False if round_.emission.status is Status.CORRECTED else None)
    return accepted


def expected_rounds(
    accepted: Sequence[bool | None], k: int, alpha: float, max_new_tokens: int
) -> dict[int, float]:
    """Return the expected number of rounds by draft length, for drafts of up to k tokens that write a text.

    ``alpha`` is the acceptance probability where ``accepted`` (from :func:`accepted_by_token`) is None.
    Drafts at the end are shorter than k if ``max_new_tokens`` leaves no room.
    """
    end = len(accepted)
    starts = [1.0] + [0.0] * end  # the probability that a round starts at each token
    by_length: defaultdict[int, float] = defaultdict(float)
    for start in range(end):
        length = min(k, max_new_tokens - start - 1)
        by_length[length] += starts[start]
        reached = starts[start]  # the probability that all draft tokens so far are accepted
        for place in range(start, min(start + length, end)):
            known = accepted[place]
            chance = alpha if known is None else float(known)
            starts[place + 1] += reached * (1.0 - chance)
            reached *= chance
        starts[min(start + length + 1, end)] += reached
    return {length: count for length, count in by_length.items() if count}
