"""The sentence at the end of a run: sameness, target passes, speed and, if it was slower, why."""

from dataclasses import replace

import pytest

from specdemo.records.drafter_kinds import PROMPT_LOOKUP
from specdemo.records.figures import Totals, fold
from specdemo.records.sentences import DISTURBED, badge, closing_sentence, remarks
from specdemo.records.spread import Spread
from specdemo.records.trace import AUTO, Calibration, Finish, Rule, RunConfig

COSTS = Calibration(step_s=0.02, c=0.3, v=(1.0, 1.1, 1.2, 1.3), row_floor=2)
DEAR = replace(COSTS, c=0.1, v=tuple(1 + 0.08 * n for n in range(13)))
ASKED = RunConfig(prompt="x")
TOTALS = replace(
    fold({}, Rule.GREEDY, None),
    tokens=30,
    baseline_tokens=30,
    passes=14,
    passes_saved=16,
    speedup=1.594,
    alpha_compared=16 / 28,
    alpha_drafted=0.5,
    break_even_alpha=1 / 3,
    identical=True,
)
SLOW = replace(TOTALS, speedup=0.921)
UNDRAFTED = replace(TOTALS, passes=30, passes_saved=0, speedup=0.97, alpha_compared=None, alpha_drafted=None)


def sentence(totals: Totals, config: RunConfig = ASKED, finish: Finish = Finish.LENGTH, costs=COSTS) -> str:
    return closing_sentence(totals, finish, config, costs)


def test_text_and_speed_are_compared_as_far_as_they_are_known():
    passes, alpha = "14 target passes instead of 30.", "Acceptance rate α 57%."
    assert sentence(TOTALS) == f"Same text at 1.59× the speed, {passes} {alpha}"
    assert badge(TOTALS, Rule.GREEDY).text == "Identical to the target alone, token for token."
    other = replace(TOTALS, identical=False, divergence=3)
    assert sentence(other) == f"Different text at 1.59× the speed, {passes} {alpha}"
    assert "the target alone from output token 4 on" in badge(other, Rule.GREEDY).text
    sampled = replace(TOTALS, identical=None)
    assert sentence(sampled) == f"1.59× the speed of the target alone, {passes} {alpha}"
    alone = replace(sampled, speedup=None, baseline_tokens=0)
    assert sentence(alone, replace(ASKED, baseline=False)) == f"{passes} {alpha}"
    short = replace(TOTALS, speedup=None, tokens=5, baseline_tokens=4, baseline_passes=4, passes=3)
    assert sentence(short, finish=Finish.STOPPED) == (
        "Stopped early. Same text so far, "
        "3 target passes for 5 tokens (target alone: 4 passes for 4 tokens). "
        f"Too few tokens to measure a speed. {alpha}"
    )


@pytest.mark.parametrize(
    ("alpha", "even", "k", "costs", "why"),
    [
        (0.2, 1 / 3, 3, COSTS, " α 20%. The break-even acceptance rate is 33%."),
        (
            0.5,
            1 / 3,
            3,
            COSTS,
            " α 50%. Calibration gave a break-even acceptance rate of 33%, but this run was slower.",
        ),
        (0.5, None, 3, COSTS, " α 50%. Drafting costs more here than it can save at any acceptance rate."),
        (0.5, None, 3, None, " α 50%."),
        (0.625, None, 3, None, " α 63%."),  # as the browser rounds it
        (0.53, 0.78, 12, DEAR, " α 53%. A draft length of 12 tokens is too long for this text. Try k = 2."),
        (0.53, 0.78, AUTO, DEAR, " α 53%. The break-even acceptance rate is 78%."),
        (0.05, 0.78, 12, DEAR, " α 5%. The break-even acceptance rate is 78%."),
    ],
)
def test_a_slower_run_has_a_reason_if_costs_are_known(alpha, even, k, costs, why):
    slow = replace(SLOW, alpha_compared=alpha, break_even_alpha=even)
    text = sentence(slow, replace(ASKED, k=k), costs=costs)
    start = "Same text. Slower: 0.92× the speed of the target alone, 14 target passes instead of 30. "
    assert text == f"{start}Acceptance rate{why}"


@pytest.mark.parametrize(("speedup", "slower"), [(0.994, True), (0.996, False), (1.0, False)])
def test_a_speedup_that_is_shown_as_1_is_not_called_slower(speedup, slower):
    assert ("Slower" in sentence(replace(TOTALS, speedup=speedup))) == slower


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (replace(ASKED, k=AUTO), ": a draft token costs 40% of a target pass here, more than it saves."),
        (replace(ASKED, drafter=PROMPT_LOOKUP), ": the text contains no repetition that could be copied."),
        (ASKED, "."),
        (replace(ASKED, max_new_tokens=1, drafter=PROMPT_LOOKUP), ": one new token needs no draft."),
        (replace(ASKED, max_new_tokens=1, k=AUTO), ": one new token needs no draft."),
    ],
)
def test_a_run_without_drafts_has_a_reason(config, why):
    passes = f"30 target passes, one for each token. Nothing was drafted{why}"
    slower = f"Same text. Slower: 0.97× the speed of the target alone, {passes}"
    assert sentence(UNDRAFTED, config) == slower
    assert sentence(replace(UNDRAFTED, speedup=1.01), config) == f"Same text at 1.01× the speed, {passes}"


def remarked(totals=TOTALS, finish=Finish.LENGTH, distinct=None, trusted=None, speedups=(1.594,)) -> str:
    return remarks(totals, finish, distinct, trusted, speedups)


def test_remarks_say_what_the_speedup_leaves_out_and_how_often_it_was_measured():
    disturbed, steady = (Spread(1.3, 1.7, 1.6, bad) for bad in (True, False))
    assert remarked() == remarked(replace(TOTALS, speedup_end_to_end=1.57), trusted=steady) == ""
    assert remarked(replace(TOTALS, speedup_end_to_end=1.25)) == "With prompt processing: 1.25×."
    late = "Slower than the target alone if prompt processing counts. With prompt processing: 0.94×."
    assert remarked(replace(TOTALS, speedup_end_to_end=0.94)) == late
    assert remarked(trusted=disturbed) == DISTURBED
    assert remarked(trusted=disturbed, speedups=(1.5, 1.6, 1.7)) == "Median of 3 runs (1.50× to 1.70×)."


LONGER = replace(
    TOTALS, tokens=131, baseline_tokens=96, baseline_passes=96, passes=74, identical=None, speedup=1.2
)
SHORTER = replace(LONGER, tokens=60, passes=55, speedup=0.9)


@pytest.mark.parametrize(
    ("totals", "end_to_end", "finish", "order"),
    [
        (LONGER, 1.18, Finish.EOS, "later because its text is longer: 131 tokens against 96."),
        (LONGER, 1.4, Finish.EOS, None),
        (LONGER, 0.98, Finish.EOS, None),
        (LONGER, 1.18, Finish.STOPPED, None),
        (SHORTER, 0.88, Finish.EOS, "earlier because its text is shorter: 60 tokens against 96."),
        (SHORTER, 0.5, Finish.EOS, None),
        (replace(TOTALS, tokens=96, baseline_tokens=96), 1.18, Finish.EOS, None),
    ],
)
def test_texts_of_different_lengths_explain_which_lane_ends_first(totals, end_to_end, finish, order):
    measured = replace(totals, speedup_end_to_end=end_to_end)
    text = f"{sentence(measured, finish=finish)} {remarked(measured, finish)}"
    assert ("74 target passes for 131 tokens (target alone: 96 passes for 96 tokens)." in text) == (
        totals is LONGER
    )
    assert (f" The speculative lane ends {order}" in text) if order else (" lane ends " not in text)


@pytest.mark.parametrize(("distinct", "mentioned"), [(None, False), (1.0, False), (0.9, False), (0.89, True)])
def test_a_run_that_repeats_itself_says_so_next_to_its_speedup(distinct, mentioned):
    assert ("The output repeats itself" in remarked(distinct=distinct)) == mentioned
    assert remarked(UNDRAFTED, distinct=distinct) == "", "no draft token gained from it"
