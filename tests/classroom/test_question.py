"""Questions to a class: what may be asked, who counts how often, and what comes out."""

import pytest

from specdemo.classroom.question import Kind, Phase, parse_question
from specdemo.records.limits import UserError

CHOICE = {"text": "Faster?", "kind": "choice", "options": ["yes", "no", "as fast"]}


def asked(**changes):
    return parse_question({**CHOICE, **changes}, 1)


def numbers(*values):
    question = parse_question({"text": "How many?", "kind": "number"}, 1)
    for student, value in enumerate(values):
        question.answer(str(student), {"question": 1, "answer": value})
    return question


def test_who_answers_twice_counts_once_with_the_last_answer():
    question = asked()
    for answer in (0, 0, 2):
        question.answer("one", {"question": 1, "answer": answer})
    question.answer("two", {"question": 1, "answer": 0})
    assert [bar["count"] for bar in question.bars()] == [1, 0, 1]


@pytest.mark.parametrize(
    "raw",
    [
        {"question": 2, "answer": 0},
        {"question": 1},
        {"question": 1, "answer": 3},
        {"question": 1, "answer": -1},
        {"question": 1, "answer": 0.5},
        {"question": 1, "answer": "0"},
        {"question": 1, "answer": True},
        {"question": 1, "answer": [0]},
        {"question": 1, "answer": 0, "more": 1},
        {"answer": 0},
    ],
)
def test_what_is_no_answer_is_refused_in_a_sentence(raw):
    question = asked()
    with pytest.raises(UserError, match=r"\.$"):
        question.answer("one", raw)
    assert question.answers == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e10, "many", None])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(UserError, match=r"\.$"):
        numbers(value)


def test_behind_the_close_nothing_is_taken():
    question = asked()
    question.close()
    with pytest.raises(UserError, match="closed"):
        question.answer("one", {"question": 1, "answer": 0})
    question.tell({"right": 0})
    with pytest.raises(UserError, match="closed"):
        question.answer("one", {"question": 1, "answer": 0})


def test_hidden_answers_show_to_nobody_before_the_close():
    question = asked(hidden=True)
    question.answer("one", {"question": 1, "answer": 1})
    assert "bars" not in question.asked() and "answered" not in question.asked()
    assert "bars" not in question.counted() and question.counted()["answered"] == 1
    question.close()
    assert question.asked()["bars"][1] == {"label": "no", "count": 1}


def test_answers_that_are_not_hidden_grow_before_all():
    question = asked(hidden=False)
    question.answer("one", {"question": 1, "answer": 1})
    assert question.asked()["bars"][1]["count"] == 1


def test_what_is_right_shows_only_once_it_is_told():
    question = asked()
    question.answer("one", {"question": 1, "answer": 1})
    assert "right" not in question.asked()
    question.tell({"right": 1, "why": "So it was."})
    told = question.asked()
    assert (told["right"], told["why"], told["right_answers"]) == (1, "So it was.", 1)
    assert question.phase is Phase.TOLD


def test_no_verdict_makes_nobody_right():
    question = asked()
    question.answer("one", {"question": 1, "answer": 1})
    question.tell({"right": None})
    assert question.right_answers == 0


def test_numbers_within_a_tenth_are_right():
    question = numbers(0.9, 1.1, 1.0, 1.11, 0.89, 2)
    question.tell({"right": 1.0})
    assert question.right_answers == 3


def test_many_different_numbers_are_counted_in_bars_of_equal_width_and_the_outer_ones():
    bars = numbers(*range(81)).bars()
    assert [bar["label"] for bar in bars[:2]] == ["less than 4", "4 to 16"]
    assert [bar["count"] for bar in bars] == [4, 12, 12, 12, 12, 12, 13, 4]


def test_one_slip_does_not_press_all_others_into_one_bar():
    bars = numbers(*(1 + index / 50 for index in range(50)), 1e9).bars()
    assert bars[-1] == {"label": "more than 1.96", "count": 2}
    assert sum(bar["count"] for bar in bars) == 51
    assert max(bar["count"] for bar in bars) <= 12


def test_few_numbers_have_a_bar_each():
    assert numbers(2, 1, 2).bars() == [{"label": "1", "count": 1}, {"label": "2", "count": 2}]
    assert numbers().bars() == []


@pytest.mark.parametrize(
    "raw",
    [
        {"text": ""},
        {"text": "x" * 601},
        {"text": None},
        {"text": "a\x07b"},
        {"kind": "essay"},
        {"kind": "number"},
        {"options": ["yes"]},
        {"options": ["yes", "yes "]},
        {"options": ["a"] * 7},
        {"options": "yes"},
        {"options": ["yes", ""]},
        {"options": ["yes", "x" * 161]},
        {"hidden": "no"},
        {"more": 1},
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(raw):
    with pytest.raises(UserError, match=r"\.$"):
        asked(**raw)


def test_a_number_needs_no_options():
    assert parse_question({"text": "How many?", "kind": "number"}, 3).kind is Kind.NUMBER


@pytest.mark.parametrize("raw", [{"right": 3}, {"right": "yes"}, {"why": 1}, {"why": "x" * 601}])
def test_what_cannot_have_been_measured_is_refused(raw):
    question = asked()
    with pytest.raises(UserError, match=r"\.$"):
        question.tell(raw)
    assert question.phase is Phase.OPEN
