"""One class: permissions, checks of messages, and the way of answers to the teacher."""

import json

import pytest
from helpers.rooms import ASK, BEGIN, ROUND, Clock, on_loop, part, post

from specdemo.classroom.room import OtherWindowError, Room, UnknownRunError
from specdemo.records.limits import UserError

ANSWER = {"question": 1, "answer": 0}


@pytest.mark.parametrize(
    "message",
    [
        *({}, {"type": "shout"}, {"type": ["begin"]}, "begin", None),
        *({"type": "begin", "topic": bad} for bad in ([], {"figures": ["x"] * 11}, {"focus": 1})),
        *({**BEGIN, **bad} for bad in ({"recording": "<b>"}, {"number": "x"}, {"run": "x"})),
        *({"type": "view", "time": bad} for bad in ("now", -1)),
        *({"type": "view", "time": 0, **bad} for bad in ({"pace": "2"}, {"round": 1.5}, {"playing": 1})),
        {"type": "view", "time": 0, "tab": "javascript:alert(1)"},
        *(part(0, run=None) | {"events": {}}, part(0, 1), part(0, {"type": 1}), part(-1, ROUND)),
        *(part(0, ROUND), part(0, ROUND) | {"more": 1}),  # of no run
        *({"type": "close"}, {"type": "reveal", "right": 0}, {"type": "dismiss"}),
    ],
)
@on_loop
async def test_a_bad_message_is_refused_in_a_sentence_and_changes_nothing(message):
    room = Room("BCDFG")
    with pytest.raises(UserError, match=r"\.$"):
        room.take(post(message))
    assert room.log.last == 0
    with pytest.raises(UserError):
        room.take(post({"type": "view"}, message))
    assert room.log.last == 1, "the message before it stays processed"


@on_loop
async def test_the_teacher_sees_how_many_answers_are_without_a_student():
    clock = Clock()
    room = Room("BCDFG", clock)
    room.take(post(ASK))
    here, script = room.students.join(), room.students.join()
    stream = room.stream(here, 0)
    await anext(stream)
    for student in (here, script):
        room.answer(student, ANSWER)
    state = room.take(post())
    assert (state["students"], state["question"]["answered"], state["question"]["absent"]) == (1, 2, 1)
    await stream.aclose()
    clock.now += 60
    state = room.take(post())
    assert (state["students"], state["question"]["absent"]) == (0, 2)
    assert room.summary()["students"] == 1 and room.students.knows(here), "the student may come back"


@on_loop
async def test_nothing_is_accepted_after_the_end():
    room = Room("BCDFG")
    token = room.students.join()
    room.end()
    for take in (room.take, lambda raw: room.answer(token, raw), lambda raw: room.draft(token, raw)):
        with pytest.raises(UserError, match="over"):
            take(post(ASK))


@on_loop
async def test_a_message_that_is_sent_twice_counts_once():
    room = Room("BCDFG")
    room.take(post(BEGIN, part(0, ROUND, ROUND), {**ASK, "number": 1}))
    room.take(post(part(0, ROUND, ROUND, {"type": "end"}), {**ASK, "number": 1}, {"type": "close"}))
    sent = [json.loads(frame.data) for frame in room.log.after(0)]
    events = [event["type"] for message in sent for event in message.get("events", [])]
    assert events == ["round", "round", "end"] and len(room.summary()["questions"]) == 1
    for gap in (part(4, ROUND), part(0, ROUND, run=2)):
        with pytest.raises(UnknownRunError):
            room.take(post(gap))


@on_loop
async def test_the_class_follows_the_latest_of_two_windows():
    room = Room("BCDFG")
    room.take(post(BEGIN))
    room.take(post(BEGIN, window="two"))
    with pytest.raises(OtherWindowError):
        room.take(post(BEGIN, first=False))
    room.take(post(BEGIN, window="two", first=False))
    room.take(post(BEGIN))  # reloaded
    with pytest.raises(OtherWindowError):
        room.take(post(window="two", first=False))
