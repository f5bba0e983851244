"""The sentence at the end of a run: sameness, passes saved, speed and, where it was slower, why."""

from dataclasses import replace

import pytest

from specdemo.records.drafter_kinds import PROMPT_LOOKUP
from specdemo.records.figures import Totals, fold
from specdemo.records.sentences import badge, closing_sentence
from specdemo.records.trace import AUTO, Calibration, Finish, Rule, RunConfig

COSTS = Calibration(step_s=0.02, c=0.3, v=(1.0, 1.1, 1.2, 1.3), row_floor=2)
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


def said(totals: Totals, config: RunConfig = ASKED, finish: Finish = Finish.LENGTH, costs=COSTS) -> str:
    return closing_sentence(totals, finish, config, costs)


def test_the_headline():
    assert said(TOTALS) == (
        "Same text. 16 of 30 target passes saved: 1.59× as fast. 57% of the compared guesses were right."
    )
    assert badge(TOTALS, Rule.GREEDY).text == "Identical to the target alone, token for token."


def test_another_text_is_said_and_two_draws_are_not_compared():
    parted = replace(TOTALS, identical=False, divergence=3)
    assert said(parted).startswith("Not the same text. 16 of 30")
    assert "the target alone from output token 4 on" in badge(parted, Rule.GREEDY).text
    assert said(replace(TOTALS, identical=None)).startswith("16 of 30 target passes saved")


@pytest.mark.parametrize(
    ("alpha", "even", "why"),
    [
        (0.2, 1 / 3, ", because only 20% of the compared guesses were right; it would need 33% accepted"),
        (0.5, 1 / 3, "took longer than those measured before the run; 50% of the compared guesses"),
        (0.5, None, ", because a draft costs more here than it could win were every guess right; 50% of"),
    ],
)
def test_slower_says_why(alpha, even, why):
    sentence = said(replace(SLOW, alpha_compared=alpha, break_even_alpha=even))
    assert sentence.startswith("Same text. 16 of 30 target passes saved, yet 0.92× as fast: slower")
    assert why in sentence


def test_too_long_a_draft_is_blamed_and_a_shorter_one_named():
    dear = replace(COSTS, c=0.1, v=tuple(1 + 0.08 * n for n in range(13)))
    slow = replace(SLOW, alpha_compared=0.53, break_even_alpha=0.78)
    assert said(slow, replace(ASKED, k=12), costs=dear).endswith(
        "slower, because k = 12 drafts more than is kept: 53% of the compared guesses were right, "
        "and k = 2 would suit that."
    )
    assert "because only 53%" in said(slow, replace(ASKED, k="auto"), costs=dear), "nobody chose its lengths"
    hopeless = replace(slow, alpha_compared=0.05)
    assert "because only 5%" in said(hopeless, replace(ASKED, k=12), costs=dear), "no length would pay"


def test_without_measured_costs_slower_has_no_reason():
    sentence = said(replace(SLOW, break_even_alpha=None), costs=None)
    assert sentence.endswith("0.92× as fast: slower; 57% of the compared guesses were right.")


@pytest.mark.parametrize(("speedup", "slower"), [(0.994, True), (0.996, False), (1.0, False)])
def test_what_reads_as_one_is_not_called_slower(speedup, slower):
    assert ("slower" in said(replace(TOTALS, speedup=speedup))) == slower


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (replace(ASKED, k=AUTO), "auto drafted nothing: a guess costs 40% of a target pass here"),
        (replace(ASKED, drafter=PROMPT_LOOKUP), "nothing was drafted: the text repeats nothing"),
        (ASKED, "nothing was drafted"),
    ],
)
def test_a_run_that_drafts_nothing_says_why(config, why):
    slower = said(UNDRAFTED, config)
    assert slower.startswith(f"Same text. No target pass saved, and 0.97× as fast: slower, because {why}")
    even = said(replace(UNDRAFTED, speedup=1.01), config)
    assert even.startswith("Same text. No target pass saved: 1.01× as fast. ")
    assert f"{why[0].upper()}{why[1:]}" in even


def test_a_run_stopped_too_early_gets_no_verdict_on_speed():
    stopped = said(replace(TOTALS, speedup=None, tokens=5, passes=3, passes_saved=2), finish=Finish.STOPPED)
    assert stopped == (
        "Stopped early. Same text as far as both went. 2 of 5 target passes saved, too few tokens to tell a "
        "speed. 57% of the compared guesses were right."
    )


def test_a_run_without_the_target_alone_speaks_of_no_speed():
    alone = replace(TOTALS, speedup=None, identical=None, baseline_tokens=0)
    assert said(alone, replace(ASKED, baseline=False)) == (
        "16 of 30 target passes saved. 57% of the compared guesses were right."
    )
