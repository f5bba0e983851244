"""A finished run with other draft lengths, in hindsight.

The lab's JavaScript applies conditions, such as a round-trip delay, to the times of these rounds.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from specdemo.records.figures import Totals
from specdemo.records.limits import MAX_K
from specdemo.records.trace import SPECULATIVE, Calibration, Round, Run, Status


class Times(NamedTuple):
    """A round, or several rounds with equal times.

    Attributes:
        count: Number of rounds; an expected number need not be whole.
        draft_s, verify_s, rest_s: Seconds that each of them spends on drafting, on the target pass, and on
            the rest.
    """

    count: float
    draft_s: float
    verify_s: float
    rest_s: float


class Hindsight(NamedTuple):
    """The rounds that would have written a run's text with one draft length.

    Attributes:
        k: The draft length; 0 stands for the lengths that the run drafted.
        expected: The expected rounds.
        fewest, most: The rounds if all tokens that the draft never proposed, or none of them, had been
            accepted.
    """

    k: int
    expected: list[Times]
    fewest: list[Times]
    most: list[Times]


def hindsight(run: Run, totals: Totals, calibration: Calibration) -> list[Hindsight]:
    """Return the run as drafted, and with every fixed draft length for which costs were measured.

    A draft token is assumed to depend only on the text before it, not on the start of its round. This holds
    for draft models and n-gram tables under greedy and shared noise; for other runs, the result is an
    estimate. Under this assumption, a run shows at each position of its text whether a draft token would be
    accepted there. Unknown are only the tokens that the target added without a comparison. They are accepted
    with the acceptance rate of the run.

    A draft of k tokens takes k times the run's mean time of a draft token, and verification is scaled by
    v(k + 1).

    Args:
        run: A run that compared at least one draft token.
        totals: The figures of the run.
        calibration: The measured costs of the pair.
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
    """Return the expected number of rounds that write a text with drafts of k tokens, by draft length.

    Drafts at the end are shorter, because the run has no room for k tokens.

    Args:
        accepted: From :func:`accepted_by_token`.
        k: The draft length.
        alpha: The probability with which a draft token is accepted where ``accepted`` is None.
        max_new_tokens: The maximum length of the text.
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
