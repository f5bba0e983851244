"""The readers of a class: order of messages, rate limits, and numbers of streams and students."""

import asyncio

import pytest
from helpers.rooms import BEGIN, ROUND, Clock, on_loop, part, post

from specdemo.classroom import students as students_module
from specdemo.classroom.room import END, Room
from specdemo.records.limits import UserError


def shown_run() -> Room:
    """A class that follows a run, on a clock set by hand."""
    room = Room("BCDFG", Clock())
    room.take(post(BEGIN))
    return room


async def opened(room: Room, *tokens: str) -> list:
    """Streams of these students that have read the first messages."""
    streams = [room.stream(token, 0) for token in tokens]
    for stream in streams:
        await anext(stream)
    return streams


@on_loop
async def test_messages_just_before_the_end_are_read_before_it():
    room = shown_run()
    token = room.students.join()
    [stream] = await opened(room, token)
    room.take(post(part(0, ROUND)))
    room.end()
    assert [frame.id for frame in await anext(stream)] == [2, END.id]
    assert [frame.id for frame in await room.poll(token, 1)] == [2, END.id]


@on_loop
async def test_a_poll_waits_for_messages_and_ends_with_the_class(monkeypatch):
    monkeypatch.setattr("specdemo.classroom.room.POLL_S", 60.0)
    room = Room("BCDFG")
    token = room.students.join()
    for after, change, expected in ((0, lambda: room.take(post(BEGIN)), 1), (1, room.end, END.id)):
        waiting = asyncio.create_task(room.poll(token, after))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        change()
        assert [frame.id for frame in await waiting] == [expected]


@on_loop
async def test_a_student_may_have_three_streams_and_read_four_times_a_second():
    room = shown_run()
    token, eager = room.students.join(), room.students.join()
    streams = await opened(room, *[token] * students_module.MAX_STREAMS)
    assert room.students.present == 1
    with pytest.raises(UserError, match="Too many requests"):
        await opened(room, token)
    await streams[0].aclose()
    await opened(room, token)
    for _ in range(students_module.READ_BURST):
        await room.poll(eager, 0)
    with pytest.raises(UserError, match="Too many requests"):
        await room.poll(eager, 0)


@on_loop
async def test_a_full_class_refuses_newcomers_but_not_students_who_are_present(monkeypatch):
    monkeypatch.setattr(students_module, "MAX_STUDENTS", 2)
    room = shown_run()
    late, *tokens = (room.students.join() for _ in range(3))
    await_closed = await opened(room, *tokens)
    with pytest.raises(UserError, match="full"):
        room.students.join()
    with pytest.raises(UserError, match="full"):
        await opened(room, late)
    assert await opened(room, tokens[0]) and await_closed


@on_loop
async def test_a_full_memory_forgets_absent_students_only(monkeypatch):
    monkeypatch.setattr(students_module, "MAX_KNOWN", 3)
    room = shown_run()
    there = room.students.join()
    streams = await opened(room, there)
    gone, *_ = (room.students.join() for _ in range(6))
    assert room.students.knows(there) and not room.students.knows(gone) and streams
