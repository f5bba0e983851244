"""One class: who may steer it, what of it is taken, and what its students answer."""

import json

import pytest
from helpers.rooms import ASK, BEGIN, ROUND, Clock, in_loop, part, post

from specdemo.classroom.room import OtherWindowError, Room
from specdemo.classroom.shown_run import UnknownRunError
from specdemo.records.limits import UserError


def test_only_the_secret_makes_a_teacher():
    room = Room("BCDFG")
    room.require_teacher(room.secret)
    for secret in ("", "BCDFG", room.secret[:-1], room.secret + "x", "ü"):
        with pytest.raises(UserError, match="has opened this class"):
            room.require_teacher(secret)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"type": "shout"},
        {"type": ["begin"]},
        "begin",
        None,
        {"type": "begin", "recording": "<b>"},
        {"type": "begin", "topic": []},
        {"type": "begin", "topic": {"figures": ["x"] * 11}},
        {"type": "begin", "topic": {"focus": 1}},
        {"type": "view", "time": "now"},
        {"type": "view", "time": -1},
        {"type": "view", "time": 0, "pace": "2"},
        {"type": "view", "time": 0, "round": 1.5},
        {"type": "view", "time": 0, "tab": "javascript:alert(1)"},
        {"type": "view", "time": 0, "playing": 1},
        part(0, run=None) | {"events": {}},
        part(0, 1),
        part(0, {"type": 1}),
        part(0, ROUND),  # of no run
        part(-1, ROUND),
        part(0, ROUND) | {"more": 1},
        {**BEGIN, "number": "x"},
        {**BEGIN, "run": "x"},
        {"type": "close"},
        {"type": "tell", "right": 0},
        {"type": "away"},
    ],
)
def test_what_is_no_message_is_refused_in_a_sentence_and_changes_nothing(message):
    async def work():
        room = Room("BCDFG")
        with pytest.raises(UserError, match=r"\.$"):
            room.take(post(message))
        assert room.log.last == 0

    in_loop(work)


def test_what_came_before_a_refused_message_has_been_taken():
    async def work():
        room = Room("BCDFG")
        with pytest.raises(UserError):
            room.take(post({"type": "begin", "run": 1}, {"type": "shout"}))
        assert room.log.last == 1

    in_loop(work)


def test_an_answer_is_one_students_and_shows_to_the_teacher():
    async def work():
        room = Room("BCDFG")
        room.take(post(ASK))
        token = room.students.join()
        with pytest.raises(UserError, match="does not know you"):
            room.answer("forged", {"question": 1, "answer": 0})
        room.answer(token, {"question": 1, "answer": 0})
        room.answer(token, {"question": 1, "answer": 1})
        assert room.known_of(token)["given"] == {"question": 1, "answer": 1}
        room.take(post({"type": "close"}))
        assert [bar["count"] for bar in room.state()["question"]["bars"]] == [0, 1]
        room.take(post({"type": "tell", "right": 1}, {"type": "away"}))
        assert room.state()["question"] is None
        assert room.known_of(token)["given"] is None
        with pytest.raises(UserError, match="No question"):
            room.answer(token, {"question": 1, "answer": 0})
        [summed] = room.summary()["questions"]
        assert summed["right_answers"] == 1

    in_loop(work)


def test_answers_may_not_come_faster_than_a_hand():
    async def work():
        clock = Clock()
        room = Room("BCDFG", clock)
        room.take(post(ASK))
        token, other = room.students.join(), room.students.join()
        for _ in range(5):
            room.answer(token, {"question": 1, "answer": 0})
        with pytest.raises(UserError, match="too fast"):
            room.answer(token, {"question": 1, "answer": 0})
        room.answer(other, {"question": 1, "answer": 0})
        clock.now += 1
        room.answer(token, {"question": 1, "answer": 0})

    in_loop(work)


def test_behind_the_end_nothing_is_taken():
    async def work():
        room = Room("BCDFG")
        token = room.students.join()
        room.end()
        for refused in (
            lambda: room.take(post(ASK)),
            lambda: room.answer(token, {}),
            lambda: room.draft(token, {}),
        ):
            with pytest.raises(UserError, match="over"):
                refused()

    in_loop(work)


def test_what_is_sent_twice_is_told_once():
    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN, part(0, ROUND, ROUND), {**ASK, "number": 1}))
        room.take(post(part(0, ROUND, ROUND, {"type": "end"}), {**ASK, "number": 1}))
        told = [json.loads(frame.data) for frame in room.log.after(0)]
        events = [event["type"] for message in told for event in message.get("events", [])]
        assert events == ["round", "round", "end"]
        assert len(room.questions.summed_up()) == 1

    in_loop(work)


@pytest.mark.parametrize("message", [part(3, ROUND), part(0, ROUND, run=2)])
def test_what_goes_on_from_what_was_never_told_is_told_so(message):
    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN, part(0, ROUND)))
        with pytest.raises(UnknownRunError):
            room.take(post(message))

    in_loop(work)


def test_of_two_windows_the_latest_is_heard():
    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN))
        room.take(post(BEGIN, window="two"))
        with pytest.raises(OtherWindowError):
            room.take(post(BEGIN, first=False))
        room.take(post(BEGIN, window="two", first=False))
        room.take(post(BEGIN))  # reloaded
        with pytest.raises(OtherWindowError):
            room.take(post(window="two", first=False))

    in_loop(work)
