"""Figures against hand-made rounds, theory against the paper's formula."""

import pytest

from specdemo.records.figures import Tally, first_difference, fold, without_early_speedup
from specdemo.records.sentences import badge, draft_divergence_sentence
from specdemo.records.theory import (
    RoundShape,
    best_round,
    break_even_alpha,
    expected_tokens,
    theoretical_speedup,
    tokens_by_length,
)
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
SHAPE = RoundShape(3, 3 * COSTS.c, COSTS.v[3])


def token(number: int, status: Status, compared: bool = True, rejected: bool = False) -> Token:
    return Token(number, q=1.0, p=1.0, status=status, compared=compared, rejected=rejected)


def round_(index, accepted, drafted, seconds=0.03, own=True, start=0, finish=None) -> Round:
    statuses = [Status.ACCEPTED] * accepted + [Status.DISCARDED] * (drafted - accepted)
    tokens = tuple(
        token(start + i, status, compared=i <= accepted, rejected=own and i == accepted)
        for i, status in enumerate(statuses)
    )
    emission = TargetToken(start + accepted, Status.CORRECTED, prob=1.0, gap=0.25) if own else None
    return Round(
        index,
        start,
        tokens,
        emission,
        0.004,
        seconds - 0.006,
        0.002,
        finish=finish,
        draft_steps=drafted,
    )


def lanes(base_s: float = 0.02):
    speculative = [round_(0, 2, 3), round_(1, 0, 3, start=3), round_(2, 3, 3, start=4)]
    baseline = [round_(i, 0, 0, seconds=base_s, start=i) for i in range(8)]
    return {SPECULATIVE: speculative, BASELINE: baseline}


def test_every_figure_of_a_small_run():
    totals = fold(lanes(), rule=Rule.GREEDY, calibration=COSTS)
    assert (totals.tokens, totals.passes, totals.passes_saved) == (8, 3, 5)
    assert totals.alpha_compared == pytest.approx(5 / 7)
    assert totals.alpha_drafted == pytest.approx(5 / 9)
    assert totals.tau == pytest.approx(8 / 3)
    assert totals.speedup == pytest.approx((8 * 0.02 / 8) / (0.09 / 8))
    assert totals.overhead == pytest.approx(0.006 / 0.09)
    assert totals.s_cost == pytest.approx(8 / (3 * (3 * 0.1 + 1.1)))
    assert totals.s_theory == pytest.approx(theoretical_speedup(5 / 7, SHAPE))
    assert totals.identical is True and totals.divergence is None
    assert totals.baseline_verify_s == pytest.approx(8 * 0.014)
    assert totals.baseline_other_s == pytest.approx(8 * 0.002)
    assert totals.draft_alone_tokens == totals.draft_alone_seconds == 0
    assert totals.draft_alone_tokens_per_s is totals.draft_divergence is None


def test_draft_tokens_are_counted_by_their_place_in_the_round():
    """Drafts of 3, 0, 5 and 2 tokens, of which 2, 0, 5 and 0 are accepted; the last ends the text."""
    rounds = [
        round_(0, 2, 3),
        round_(1, 0, 0, start=3),
        round_(2, 5, 5, start=4),
        round_(3, 0, 2, start=10),
    ]
    tally = Tally(Rule.GREEDY, None)
    lengths = []
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


def written(*ids: int) -> list[Round]:
    """Return the rounds of a lane that drafts nothing."""
    return [round_(i, 0, 0, seconds=0.01, start=token_id) for i, token_id in enumerate(ids)]


def test_the_draft_alone_is_timed_and_compared_with_the_baseline():
    runs = {SPECULATIVE: written(1, 2, 3, 4), BASELINE: written(1, 2, 9, 4), DRAFT: written(1, 2, 3, 5, 6)}
    totals = fold(runs, Rule.GREEDY, COSTS)
    assert (totals.draft_alone_tokens, totals.draft_divergence) == (5, 2)
    assert totals.draft_alone_seconds == pytest.approx(0.05)
    assert totals.draft_alone_tokens_per_s == pytest.approx(100.0)
    assert (
        draft_divergence_sentence(totals, Rule.GREEDY)
        == "The draft alone differs from the target's text from token 3 on."
    )
    del runs[BASELINE]
    assert fold(runs, Rule.SHARED_NOISE, COSTS).draft_divergence == 3, (
        "the speculative lane has the target's text, too"
    )


def test_two_samples_cannot_be_compared():
    totals = fold({SPECULATIVE: written(1, 2), DRAFT: written(3, 4)}, Rule.REJECTION, COSTS)
    assert totals.draft_divergence is None
    assert "cannot be compared token by token" in draft_divergence_sentence(totals, Rule.REJECTION)


@pytest.mark.parametrize(
    ("target", "alone", "sentence"),
    [
        ([], [], None),
        ([1, 2, 3], [1, 2, 3], "The draft alone wrote the same 3 tokens."),
        ([1], [1], "The draft alone wrote the same 1 token."),
        ([1, 2, 3], [1, 2], "The draft alone wrote the same first 2 tokens."),
        ([1, 2], [1, 2, 3], "The draft alone wrote the same first 2 tokens."),
        ([1, 2], [7], "The draft alone differs from the target's text from token 1 on."),
    ],
)
@pytest.mark.parametrize("lane", [SPECULATIVE, BASELINE])
def test_the_sentence_on_the_draft_alone_names_the_first_difference(target, alone, sentence, lane):
    totals = fold({lane: written(*target), DRAFT: written(*alone)}, Rule.GREEDY, COSTS)
    assert draft_divergence_sentence(totals, Rule.GREEDY) == sentence


def test_the_speedup_follows_from_the_clocks_of_the_lanes_alone():
    runs = lanes()
    padded = Calibration(step_s=0.02, c=0.1, v=(1.7, 1.7, 1.7, 1.7, 1.75), row_floor=4)
    for costs in (None, COSTS, padded):
        totals = fold(runs, Rule.GREEDY, costs)
        alone, drafted = (
            sum(one.seconds for one in runs[name]) / sum(len(one.emitted) for one in runs[name])
            for name in (BASELINE, SPECULATIVE)
        )
        assert totals.speedup == pytest.approx(alone / drafted, rel=1e-12)
        assert totals.baseline_tokens_per_s == pytest.approx(1 / alone, rel=1e-12)


def test_a_difference_is_found_with_its_gap():
    runs = lanes()
    runs[BASELINE][5] = round_(5, 0, 0, seconds=0.02, start=77)
    totals = fold(runs, rule=Rule.GREEDY, calibration=COSTS)
    assert (totals.identical, totals.divergence, totals.divergence_gap) == (False, 5, 0.25)
    assert badge(totals, Rule.GREEDY).kind == "different"
    assert "token 6" in badge(totals, Rule.GREEDY).text and "0.2500" in badge(totals, Rule.GREEDY).text
    assert fold(runs, Rule.REJECTION, COSTS).identical is None


def test_no_rounds_give_no_figures():
    totals = fold({}, rule=Rule.GREEDY, calibration=None)
    assert totals.speedup is totals.alpha_compared is totals.tau is totals.identical is None


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"), [(0.0, 4, 1.0), (1.0, 4, 5.0), (0.5, 2, 1.75), (0.8, 3, 2.952)]
)
def test_expected_tokens_follow_equation_1(alpha, k, tokens):
    assert expected_tokens(alpha, k) == pytest.approx(tokens)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.9, 1.0])
def test_tokens_by_length_are_equation_1_if_every_place_has_the_same_rate(alpha):
    assert tokens_by_length([alpha] * 6) == pytest.approx([expected_tokens(alpha, k) for k in range(7)])


def test_tokens_by_length_use_the_rate_of_each_place():
    assert tokens_by_length([]) == [1.0]
    assert tokens_by_length([0.5, 0.8, 0.0, 1.0]) == pytest.approx([1.0, 1.5, 1.9, 1.9, 1.9])


def test_the_best_round_may_follow_a_cost_that_is_paid_once():
    tokens = tokens_by_length([0.7] * 6)
    assert best_round(tokens, 0.02, (1.0, *[1.8] * 6)) == 6
    assert best_round(tokens[:2], 0.02, (1.0, *[1.8] * 6)) == 0, "one token more would not pay for it"
    assert best_round(tokens, 0.02, (1.0, 1.0, 1.0, *[2.5] * 4)) == 2


def test_the_speedup_at_the_break_even_rate_is_1():
    alpha = break_even_alpha(SHAPE)
    assert theoretical_speedup(alpha, SHAPE) == pytest.approx(1.0)
    assert break_even_alpha(RoundShape(3, 3 * 2.0, 1.0)) is None


def test_first_difference_ends_with_the_shorter_sequence():
    assert first_difference([1, 2, 3], [1, 2]) is None
    assert first_difference([1, 2], [1, 3, 4]) == 1


def test_there_is_no_speedup_before_both_lanes_have_eight_tokens():
    runs = lanes()
    totals = fold(runs, Rule.GREEDY, COSTS)
    assert without_early_speedup(totals) == totals and totals.speedup is not None
    short = fold({**runs, BASELINE: runs[BASELINE][:7]}, Rule.GREEDY, COSTS)
    shown = without_early_speedup(short)
    assert short.speedup is not None
    assert shown.speedup is shown.speedup_end_to_end is None
    assert (shown.tau, shown.alpha_compared, shown.tokens) == (short.tau, short.alpha_compared, short.tokens)
