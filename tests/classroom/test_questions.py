"""Questions to a class: checks, counting of answers, and the time at which students see them."""

import pytest

from specdemo.classroom.questions import Phase, parse_question
from specdemo.records.limits import UserError

CHOICE = {"text": "Faster?", "kind": "choice", "options": ["yes", "no", "as fast"]}
MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"


def choice(**changes):
    return parse_question({**CHOICE, **changes}, 1)


def numbers(*values):
    question = parse_question({"text": "How many?", "kind": "number"}, 1)
    for student, value in enumerate(values):
        question.answer(str(student), {"question": 1, "answer": value})
    return question


def bars(question):
    return question.summary()["bars"]


FOUR = [*CHOICE["options"], "slower"]


def test_the_teachers_page_knows_a_prepared_question_by_its_name():
    assert choice(prepared="cost", options=FOUR).for_teacher()["prepared"] == "cost"
    assert choice().for_teacher()["prepared"] is None
    assert "prepared" not in choice(prepared="cost", options=FOUR).for_students()
    for bad in ({"prepared": "<b>"}, {"prepared": "cost"}, {"prepared": ["cost"]}):
        with pytest.raises(UserError, match="prepared must be"):
            choice(**bad)


@pytest.mark.parametrize("settings", [None, [], {"prompt": ""}, {"prompt": "Hi", "x": 1}])
def test_a_question_about_a_run_is_refused_if_its_settings_are_bad(settings):
    with pytest.raises(UserError, match=r"\.$"):
        choice(prepared="run-speed", options=["Faster", "Slower"], settings=settings)


def test_only_the_latest_answer_of_a_student_counts():
    question = choice()
    for student, answer in (("one", 0), ("one", 0), ("one", 2), ("two", 0)):
        question.answer(student, {"question": 1, "answer": answer})
    assert [bar["count"] for bar in bars(question)] == [1, 0, 1]


@pytest.mark.parametrize(
    "raw",
    [
        *({"question": 1, "answer": bad} for bad in (3, -1, 0.5, "0", True, [0], None)),
        *(
            {"question": 2, "answer": 0},
            {"question": 1, "answer": 0, "more": 1},
            {"question": 1},
            {"answer": 0},
        ),
    ],
)
def test_a_bad_answer_is_refused_in_a_sentence(raw):
    question = choice()
    with pytest.raises(UserError, match=r"\.$"):
        question.answer("one", raw)
    assert question.answers == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e10, "many", None])
def test_a_bad_number_is_refused_in_a_sentence(value):
    with pytest.raises(UserError, match=r"\.$"):
        numbers(value)


@pytest.mark.parametrize(
    "raw",
    [
        *({"text": bad} for bad in ("", "x" * 601, None, "a\x07b")),
        *({"options": bad} for bad in (["yes"], ["yes", "yes "], ["a"] * 7, "yes", ["yes", ""])),
        *(
            {"options": ["yes", "x" * 161]},
            {"kind": "essay"},
            {"kind": "number"},
            {"hidden": "no"},
            {"more": 1},
        ),
    ],
)
def test_a_bad_question_is_refused_in_a_sentence(raw):
    with pytest.raises(UserError, match=r"\.$"):
        choice(**raw)


@pytest.mark.parametrize("mark", MARKS)
def test_marks_that_reverse_text_are_removed_from_every_text_of_a_question(mark):
    asked = choice(text=f"Fas{mark}ter?", options=[f"{mark}yes", f"no{mark}"])
    assert (asked.text, asked.options) == ("Faster?", ("yes", "no"))
    for wrong in ({"text": mark}, {"options": ["a", f"a{mark}"]}):
        with pytest.raises(UserError):
            choice(**wrong)


@pytest.mark.parametrize("hidden", [True, False])
def test_hidden_answers_are_shown_to_nobody_before_voting_closes(hidden):
    question = choice(hidden=hidden)
    question.answer("one", {"question": 1, "answer": 1})
    assert ("bars" in question.for_students()) == ("answered" in question.for_students()) == (not hidden)
    assert ("bars" in question.for_teacher()) == (not hidden)
    assert question.for_teacher()["answered"] == 1
    question.close()
    assert question.for_students()["bars"][1] == {"label": "no", "count": 1}


def test_the_right_answer_is_shown_only_once_it_is_revealed():
    question = choice()
    question.answer("one", {"question": 1, "answer": 1})
    assert "right" not in question.for_students()
    for bad in ({"right": 3}, {"right": "yes"}, {"why": "So."}):
        with pytest.raises(UserError, match=r"\.$"):
            question.reveal(bad)
    assert question.phase is Phase.OPEN
    question.reveal({"right": 1})
    shown = question.for_students()
    assert (shown["right"], shown["right_answers"]) == (1, 1)
    question.reveal({"right": None})
    assert question.for_students()["right_answers"] == 0, "without a right answer, nobody is right"


@pytest.mark.parametrize(("end", "phase"), [("close", Phase.CLOSED), ("measure", Phase.MEASURING)])
def test_no_answer_is_accepted_after_voting_closes_and_it_is_measured_or_entered(end, phase):
    question = choice()
    getattr(question, end)()
    assert question.for_students()["phase"] == phase
    with pytest.raises(UserError, match="closed"):
        question.answer("one", {"question": 1, "answer": 0})
    question.reveal({"right": 0})
    assert question.for_students()["measured"] is False


def test_numbers_within_a_tenth_are_right():
    question = numbers(0.9, 1.1, 1.0, 1.11, 0.89, 2)
    question.reveal({"right": 1.0})
    assert question.for_students()["right_answers"] == 3


def test_numbers_get_a_bar_each_or_bars_of_equal_width_and_two_outer_ones():
    assert bars(numbers(2, 1, 2)) == [{"label": "1", "count": 1}, {"label": "2", "count": 2}]
    assert bars(numbers()) == []
    many = bars(numbers(*range(81)))
    assert [bar["label"] for bar in many[:2]] == ["less than 4", "4 to 16"]
    assert [bar["count"] for bar in many] == [4, 12, 12, 12, 12, 12, 13, 4]
    slip = bars(numbers(*(1 + index / 50 for index in range(50)), 1e9))
    assert slip[-1] == {"label": "more than 1.96", "count": 2}
    assert sum(bar["count"] for bar in slip) == 51 and max(bar["count"] for bar in slip) <= 12
