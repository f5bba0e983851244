"""Figures against hand-made rounds."""

import pytest

from specdemo.records.figures import Tally, distinct_share, first_difference, fold
from specdemo.records.sentences import badge, draft_divergence_sentence
from specdemo.records.theory import RoundShape, theoretical_speedup
from specdemo.records.trace import (
    BASELINE,
    DRAFT,
    SPECULATIVE,
    Calibration,
    Round,
    Rule,
    Status,
    TargetToken,
    Token,
)

COSTS = Calibration(step_s=0.02, c=0.1, v=(1.0, 1.0, 1.05, 1.1, 1.15), row_floor=2)
PADDED = Calibration(step_s=0.02, c=0.1, v=(1.7, 1.7, 1.7, 1.7, 1.75), row_floor=4)


def round_(index, accepted, drafted, seconds=0.03, start=0, own=True) -> Round:
    tokens = tuple(
        Token(
            start + i,
            q=1.0,
            p=1.0,
            status=Status.ACCEPTED if i < accepted else Status.DISCARDED,
            compared=i <= accepted,
            rejected=own and i == accepted,
        )
        for i in range(drafted)
    )
    emission = TargetToken(start + accepted, Status.CORRECTED, prob=1.0, gap=0.25) if own else None
    return Round(index, start, tokens, emission, 0.004, seconds - 0.006, 0.002, draft_steps=drafted)


def written(*ids: int, seconds: float = 0.01) -> list[Round]:
    return [round_(i, 0, 0, seconds, start=token) for i, token in enumerate(ids)]


def lanes() -> dict[str, list[Round]]:
    speculative = [round_(0, 2, 3), round_(1, 0, 3, start=3), round_(2, 3, 3, start=4)]
    return {SPECULATIVE: speculative, BASELINE: written(*range(8), seconds=0.02)}


def test_every_figure_of_a_small_run():
    totals = fold(lanes(), rule=Rule.GREEDY, calibration=COSTS)
    assert (totals.tokens, totals.passes, totals.passes_saved) == (8, 3, 5)
    assert totals.alpha_compared == pytest.approx(5 / 7)
    assert totals.alpha_drafted == pytest.approx(5 / 9)
    assert totals.tau == pytest.approx(8 / 3)
    assert totals.speedup == pytest.approx((8 * 0.02 / 8) / (0.09 / 8))
    assert totals.overhead == pytest.approx(0.006 / 0.09)
    assert totals.s_cost == pytest.approx(8 / (3 * (3 * 0.1 + 1.1)))
    assert totals.s_theory == pytest.approx(theoretical_speedup(5 / 7, RoundShape(3, 0.3, 1.1)))
    assert totals.identical is True and totals.divergence is None
    assert totals.baseline_verify_s == pytest.approx(8 * 0.014)
    assert totals.baseline_other_s == pytest.approx(8 * 0.002)
    assert totals.draft_alone_tokens == totals.draft_alone_seconds == 0
    assert totals.draft_alone_tokens_per_s is totals.draft_divergence is None
    empty = fold({}, rule=Rule.GREEDY, calibration=None)
    assert empty.speedup is empty.alpha_compared is empty.tau is empty.identical is None


def test_draft_tokens_are_counted_by_their_place_in_the_round():
    rounds = [round_(0, 2, 3), round_(1, 0, 0, start=3), round_(2, 5, 5, start=4), round_(3, 0, 2, start=10)]
    tally, lengths = Tally(Rule.GREEDY, None), []
    for one in rounds:
        tally.add(SPECULATIVE, one)
        lengths.append(len(tally.totals().compared_by_position))
    totals = tally.totals()
    assert totals.compared_by_position == (3, 2, 2, 1, 1)
    assert totals.accepted_by_position == (2, 2, 1, 1, 1)
    assert lengths == [3, 3, 5, 5]
    assert totals.alpha_compared == pytest.approx(7 / 9)
    assert totals.alpha_drafted == pytest.approx(7 / 10)
    assert fold({BASELINE: rounds}, Rule.GREEDY, None).compared_by_position == ()


def test_the_draft_alone_is_timed_and_compared_with_the_baseline():
    runs = {SPECULATIVE: written(1, 2, 3, 4), BASELINE: written(1, 2, 9, 4), DRAFT: written(1, 2, 3, 5, 6)}
    totals = fold(runs, Rule.GREEDY, COSTS)
    assert (totals.draft_alone_tokens, totals.draft_divergence) == (5, 2)
    assert totals.draft_alone_seconds == pytest.approx(0.05)
    assert totals.draft_alone_tokens_per_s == pytest.approx(100.0)
    del runs[BASELINE]
    assert fold(runs, Rule.SHARED_NOISE, COSTS).draft_divergence == 3, "compared with the speculative text"
    sampled = fold(runs, Rule.REJECTION, COSTS)
    assert sampled.draft_divergence is None
    assert "cannot be compared token by token" in draft_divergence_sentence(sampled, Rule.REJECTION)


@pytest.mark.parametrize(
    ("target", "alone", "sentence"),
    [
        ([], [], None),
        ([1, 2, 3], [1, 2, 3], "The draft model alone wrote the same 3 tokens as the target."),
        ([1], [1], "The draft model alone wrote the same 1 token as the target."),
        ([1, 2, 3], [1, 2], "The draft model alone wrote the same first 2 tokens as the target."),
        ([1, 2], [1, 2, 3], "The draft model alone wrote the same first 2 tokens as the target."),
        ([1, 2], [7], "The text of the draft model alone differs from the target's text from token 1 on."),
    ],
)
@pytest.mark.parametrize("lane", [SPECULATIVE, BASELINE])
def test_the_sentence_on_the_draft_alone_names_the_first_difference(target, alone, sentence, lane):
    totals = fold({lane: written(*target), DRAFT: written(*alone)}, Rule.GREEDY, COSTS)
    assert draft_divergence_sentence(totals, Rule.GREEDY) == sentence


@pytest.mark.parametrize("costs", [None, COSTS, PADDED])
def test_the_speedup_follows_from_the_clocks_of_the_lanes_alone(costs):
    totals = fold(lanes(), Rule.GREEDY, costs)
    alone, drafted = (
        sum(one.seconds for one in rounds) / sum(len(one.emitted) for one in rounds)
        for rounds in (lanes()[BASELINE], lanes()[SPECULATIVE])
    )
    assert totals.speedup == pytest.approx(alone / drafted, rel=1e-12)
    assert totals.baseline_tokens_per_s == pytest.approx(1 / alone, rel=1e-12)


def test_a_difference_is_found_with_its_gap():
    runs = lanes()
    runs[BASELINE][5] = round_(5, 0, 0, seconds=0.02, start=77)
    totals = fold(runs, rule=Rule.GREEDY, calibration=COSTS)
    assert (totals.identical, totals.divergence, totals.divergence_gap) == (False, 5, 0.25)
    shown = badge(totals, Rule.GREEDY)
    assert shown.kind == "different" and "token 6" in shown.text and "0.2500" in shown.text
    assert fold(runs, Rule.REJECTION, COSTS).identical is None
    assert first_difference([1, 2, 3], [1, 2]) is None and first_difference([1, 2], [1, 3, 4]) == 1


def test_there_is_no_speedup_before_both_lanes_have_eight_tokens():
    runs = lanes()
    assert fold(runs, Rule.GREEDY, COSTS).speedup is not None
    short = fold({**runs, BASELINE: runs[BASELINE][:7]}, Rule.GREEDY, COSTS)
    assert short.speedup is short.speedup_end_to_end is None
    assert None not in (short.tau, short.alpha_compared, short.tokens_per_s)


def test_the_share_of_distinct_runs_of_four_tokens():
    assert distinct_share(written(*range(19))) == 1
    assert distinct_share(written(*[1, 2, 3, 4] * 5)) == 4 / 17
    assert distinct_share(written(*range(18))) is None, "too short"
    assert distinct_share([round_(6, 4, 4, start=0), *written(*range(5, 20))]) == 1, "corrected tokens count"
