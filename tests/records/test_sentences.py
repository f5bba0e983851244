"""The sentence at the end of a run: sameness, target passes, speed and, if it was slower, why."""

from dataclasses import replace

import pytest

from specdemo.records.drafter_kinds import PROMPT_LOOKUP
from specdemo.records.figures import Totals, fold
from specdemo.records.sentences import badge, closing_sentence
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


def test_a_faster_run():
    assert sentence(TOTALS) == (
        "Same text at 1.59× the speed, 14 target passes instead of 30. Acceptance rate α 57%."
    )
    assert badge(TOTALS, Rule.GREEDY).text == "Identical to the target alone, token for token."


def test_a_different_text_is_named_and_two_samples_are_not_compared():
    other = replace(TOTALS, identical=False, divergence=3)
    assert sentence(other).startswith("Different text at 1.59× the speed, 14 target passes")
    assert "the target alone from output token 4 on" in badge(other, Rule.GREEDY).text
    sampled = sentence(replace(TOTALS, identical=None))
    assert sampled.startswith("1.59× the speed of the target alone, 14 target passes instead of 30.")


@pytest.mark.parametrize(
    ("alpha", "even", "why"),
    [
        (0.2, 1 / 3, "Acceptance rate α 20%. The break-even acceptance rate is 33%."),
        (0.5, 1 / 3, "α 50%. The break-even rate was 33% at calibration; this run was slower."),
        (0.5, None, "α 50%. Drafting costs more here than it can save at any acceptance rate."),
    ],
)
def test_a_slower_run_has_a_reason(alpha, even, why):
    text = sentence(replace(SLOW, alpha_compared=alpha, break_even_alpha=even))
    start = "Same text. Slower: 0.92× the speed of the target alone, 14 target passes instead of 30. "
    assert text.startswith(start) and text.endswith(why)


def test_a_shorter_draft_is_recommended_if_it_would_pay():
    slow = replace(SLOW, alpha_compared=0.53, break_even_alpha=0.78)
    assert sentence(slow, replace(ASKED, k=12), costs=DEAR).endswith(
        " Acceptance rate α 53%. Drafting 12 tokens is too long for this text. Try k = 2."
    )
    assert "Try" not in sentence(slow, replace(ASKED, k=AUTO), costs=DEAR), "nobody chose its lengths"
    hopeless = replace(slow, alpha_compared=0.05)
    assert "Try" not in sentence(hopeless, replace(ASKED, k=12), costs=DEAR), "no length would pay"


def test_without_measured_costs_a_slower_run_has_no_reason():
    text = sentence(replace(SLOW, break_even_alpha=None), costs=None)
    assert text.endswith(
        "0.92× the speed of the target alone, 14 target passes instead of 30. Acceptance rate α 57%."
    )


@pytest.mark.parametrize(("speedup", "slower"), [(0.994, True), (0.996, False), (1.0, False)])
def test_what_is_shown_as_1_is_not_called_slower(speedup, slower):
    assert ("Slower" in sentence(replace(TOTALS, speedup=speedup))) == slower


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (replace(ASKED, k=AUTO), ": a draft token costs 40% of a target pass here, more than it saves."),
        (replace(ASKED, drafter=PROMPT_LOOKUP), ": the text repeats nothing that could be copied."),
        (ASKED, "."),
    ],
)
def test_a_run_without_drafts_has_a_reason(config, why):
    slower = sentence(UNDRAFTED, config)
    assert slower == (
        "Same text. Slower: 0.97× the speed of the target alone, 30 target passes, one for each token. "
        f"Nothing was drafted{why}"
    )
    even = sentence(replace(UNDRAFTED, speedup=1.01), config)
    assert even.startswith("Same text at 1.01× the speed, 30 target passes, one for each token. Nothing was")


def test_a_run_stopped_too_early_has_no_speed():
    stopped = replace(TOTALS, speedup=None, tokens=5, passes=3, passes_saved=2)
    assert sentence(stopped, finish=Finish.STOPPED) == (
        "Stopped early. Same text so far, 3 target passes instead of 5. Too few tokens to measure a speed. "
        "Acceptance rate α 57%."
    )


def test_a_run_without_the_target_alone_has_no_speed():
    alone = replace(TOTALS, speedup=None, identical=None, baseline_tokens=0)
    assert sentence(alone, replace(ASKED, baseline=False)) == (
        "14 target passes instead of 30. Acceptance rate α 57%."
    )
