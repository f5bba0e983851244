"""The quiz: figures choose the option they support, and none near a limit between two options."""

import dataclasses
import math

import pytest
from helpers.tiny import tiny_pair

from specdemo.pairs.lanes import Lanes
from specdemo.quiz.judging import MARGIN, UNEVEN, SideResult, band
from specdemo.quiz.questions import DISTURBED, QUESTIONS
from specdemo.quiz.quiz import number_in, quiz_events, settings_of, side_event, verdict_event
from specdemo.records.figures import fold
from specdemo.records.limits import UserError
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Rule

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
BY_NAME = {question.name: question for question in QUESTIONS}
EMPTY = fold({}, Rule.GREEDY, None)
ALL_RIGHT = {"alpha_compared": 1.0, "baseline_passes": 5}


def outcome(same: bool = True, **figures: float) -> SideResult:
    """Return an outcome with these totals; ``same`` means that every lane wrote the target's tokens."""
    written = [5, 6, 7] if same else [5, 6, 8]
    ids = {BASELINE: [5, 6, 7], SPECULATIVE: written, DRAFT: written}
    return SideResult(dataclasses.replace(EMPTY, **figures), ids, figures.get("speedup"))


def speed(value: float, alpha: float = 0.5, same: bool = True) -> SideResult:
    return outcome(same, speedup=value, alpha_compared=alpha)


def rates(draft: float, same: bool) -> SideResult:
    return outcome(same, baseline_tokens_per_s=10.0, draft_alone_tokens_per_s=draft)


PLAIN = speed(1.6)
# For each option of a question, outcomes that support it.
PLANTED = {
    "five": [(outcome(), outcome(passes=passes, **ALL_RIGHT)) for passes in (1, 2, 4, 5)],
    "noise": [(PLAIN, speed(s, 0.0, same)) for same in (False, True) for s in (1.3, 0.7)],
    "cost": [(PLAIN, speed(s, alpha)) for s in (1.6, 0.8) for alpha in (0.5, 0.3)],
    "length": [(PLAIN, speed(s)) for s in (4.0, 2.2, 0.8)],
    "temperature": [(outcome(alpha_compared=0.5), outcome(alpha_compared=a)) for a in (0.7, 0.52, 0.3)],
    "alone": [(rates(1, True), rates(rate, same)) for same in (True, False) for rate in (90.0, 5.0)],
    "chance": [(outcome(a), outcome(b)) for a, b in ((0, 0), (1, 1), (0, 1), (1, 0))],
    "copies": [(outcome(tau=2.0), outcome(tau=tau)) for tau in (1.2, 2.5, 2.0)],
}
# Second sides that leave a question open, given the first side of ``PLANTED``.
OPEN = {
    "five": [outcome(passes=2, alpha_compared=0.75), outcome(passes=3, **ALL_RIGHT)],
    "noise": [speed(0.95), speed(1.05), outcome()],
    "cost": [speed(1.6 * 0.8), speed(1.6 * 0.75), speed(0.8, 0.6)],
    "length": [speed(1.6), speed(1.7), speed(3.1)],
    "temperature": [outcome(alpha_compared=a) for a in (0.6, 0.4, 0.42)],
    "alone": [rates(10.5, True), rates(9.5, False)],
    "chance": [],
    "copies": [outcome(tau=1.8), outcome(tau=2.2)],
}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def test_eight_questions_have_distinct_names_and_complete_texts():
    assert len(BY_NAME) == len(QUESTIONS) == 8
    assert BY_NAME.keys() == PLANTED.keys() == OPEN.keys()
    for question in QUESTIONS:
        assert question.text.endswith("?") and question.setup.endswith(".")
        assert len({option.text for option in question.options}) == len(question.options) in (3, 4)
        assert all(option.why.count(". ") == 1 and option.why.endswith(".") for option in question.options)
        first, second = question.sides
        assert [f.label for f in first.figures] == [f.label for f in second.figures]
        assert first.label != second.label


@pytest.mark.parametrize("name", BY_NAME)
def test_every_option_has_figures_that_support_it_and_none_is_chosen_near_a_limit(name):
    question = BY_NAME[name]
    assert len(PLANTED[name]) == len(question.options)
    for index, both in enumerate(PLANTED[name]):
        verdict = verdict_event(1, question, *both)
        assert (verdict["option"], verdict["why"]) == (index, question.options[index].why)
    for second in OPEN[name]:
        verdict = verdict_event(1, question, PLANTED[name][0][0], second)
        assert (verdict["option"], verdict["why"]) == (None, question.undecided), second


@pytest.mark.parametrize("name", ["noise", "cost", "length"])
def test_a_disturbed_clock_decides_nothing(name):
    first, second = PLANTED[name][-1]
    for factor, decided in ((1, True), (1 + UNEVEN - 0.01, True), (1 + UNEVEN + 0.01, False), (0.8, False)):
        uneven = dataclasses.replace(second, typical=second.totals.speedup / factor)
        verdict = verdict_event(1, BY_NAME[name], first, uneven)
        assert (verdict["option"] is not None) is decided
        assert (verdict["why"] == DISTURBED) is not decided, "the figures themselves are far apart"
        speedups = [
            figure for figure in side_event(1, BY_NAME[name], 1, uneven)["figures"] if "×" in figure["text"]
        ]
        assert [figure["text"].endswith("× (disturbed)") for figure in speedups] == [not decided]
    impossible = dataclasses.replace(second, totals=dataclasses.replace(second.totals, tau=0.5))
    assert impossible.disturbed and BY_NAME[name].decide(first, impossible) is None


def test_a_band_has_its_margin_on_both_sides_of_an_edge():
    assert [band(value, (1.0, 2.0)) for value in (0.5, 1.5, 3.0, None)] == [0, 1, 2, None]
    for edge, factor in ((1.0, 0.99), (2.0, 0.99)):
        near = [edge * (1 + MARGIN * factor), edge, edge / (1 + MARGIN * factor)]
        assert [band(value, (1.0, 2.0)) for value in near] == [None] * 3
    assert [band(value, (2.0,)) for value in (2 * (1 + MARGIN * 1.01), 2 / (1 + MARGIN * 1.01))] == [1, 0]


def test_tokens_are_compared_to_the_end_of_the_longer_text():
    one = outcome(same=False)
    assert (one.same(SPECULATIVE), one.share_same(SPECULATIVE)) == (False, pytest.approx(2 / 3))
    short = SideResult(EMPTY, {BASELINE: [1, 2, 3, 4], SPECULATIVE: [1, 2]}, None)
    assert (short.same(SPECULATIVE), short.share_same(SPECULATIVE)) == (False, 0.5)


@pytest.mark.parametrize("number", [0, 9, -1, 2.0, "3", True, None, [3], math.nan])
def test_an_unknown_question_is_refused(number):
    with pytest.raises(UserError, match="choose a whole number from 1 to 8"):
        number_in({"question": number}, 8)
    assert number_in({"question": 8}, 8) == 8


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 9))
def test_a_question_runs_both_sides_and_judges_their_figures(pair, number):
    question = QUESTIONS[number - 1]
    events = [event for event in quiz_events(pair, number, question) if event["type"] != "progress"]
    assert [event["type"] for event in events] == ["question", "side", "side", "verdict"]
    assert {event["question"] for event in events} == {number}
    for index, event in enumerate(events[1:3]):
        assert (event["index"], event["label"]) == (index, question.sides[index].label)
        assert all(figure["text"] for figure in event["figures"])
    first, second = ({f["label"]: f["value"] for f in event["figures"]} for event in events[1:3])
    same = "Tokens equal to the target's"
    if question.name in ("noise", "cost", "chance"):
        assert second[same] == 1.0
    if question.name == "noise":
        assert second["Acceptance rate α"] < first["Acceptance rate α"]
    if question.name == "chance":
        assert events[-1]["option"] == 2
    if question.name == "alone":
        assert second[same] < 1.0 == first[same]
    if question.name == "five":
        assert first["Target passes"] == 5


def test_sides_differ_only_in_the_asked_condition(pair):
    settings = {question.name: settings_of(pair, question) for question in QUESTIONS}
    for name, (first, second) in settings.items():
        changed = (first.configs, first.ablation) != (second.configs, second.ablation)
        assert changed == (name not in ("five", "alone")), name
        assert (first.configs[0].prompt == second.configs[0].prompt) == (name != "copies")
    assert [side.ablation.repeats for side in settings["cost"]] == [1, 8]
    assert [side.ablation.noise for side in settings["noise"]] == [0.0, 1.0]
    assert [side.configs[0].k for side in settings["length"]] == [3, 12]
    assert [side.configs[0].rule for side in settings["chance"]] == [Rule.REJECTION, Rule.SHARED_NOISE]


def test_equal_sides_share_a_run_and_progress_rises_from_0_to_1(pair, monkeypatch):
    runs = []
    speculative = Lanes.speculative
    monkeypatch.setattr(Lanes, "speculative", lambda *args: runs.append(1) or speculative(*args))
    list(quiz_events(pair, 1, BY_NAME["five"]))
    assert len(runs) == 1
    events = list(quiz_events(pair, 7, BY_NAME["chance"]))
    assert len(runs) == 1 + 2
    fractions = [event["fraction"] for event in events if event["type"] == "progress"]
    assert fractions == sorted(fractions) and fractions[0] == 0.0 and 0.95 < fractions[-1] <= 1.0


def test_a_stopped_question_gives_no_verdict(pair):
    answers = iter([False] * 20)
    kinds = [event["type"] for event in quiz_events(pair, 3, BY_NAME["cost"], lambda: next(answers, True))]
    assert "progress" in kinds and "side" not in kinds and "verdict" not in kinds


def test_a_pair_without_a_draft_model_refuses_questions_about_it(pair):
    bare = dataclasses.replace(pair, draft=None)
    for name in ("noise", "cost", "alone"):
        with pytest.raises(UserError, match="no draft model"):
            list(quiz_events(bare, 1, BY_NAME[name]))
    assert list(quiz_events(bare, 8, BY_NAME["copies"]))[-1]["type"] == "verdict"


def test_an_undefined_figure_is_a_dash():
    shown = side_event(3, BY_NAME["cost"], 1, outcome())["figures"]
    assert [figure["text"] for figure in shown] == ["–", "–", "100%"]


@pytest.mark.slow
def test_the_builtin_pair_writes_five_tokens_in_one_pass(builtin_pair):
    *_, verdict = quiz_events(builtin_pair, 1, BY_NAME["five"])
    assert verdict["option"] == 0
