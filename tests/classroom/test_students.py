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
async def test_a_stream_has_every_message_once_and_in_order_and_the_end(monkeypatch):
    monkeypatch.setattr("specdemo.classroom.log.GAP_S", 0.01)
    room, read = shown_run(), []

    async def reader():
        async for new in room.stream(room.students.join(), 0):
            read.extend(new)

    reading = asyncio.create_task(reader())
    for number in range(20):
        room.take(post(part(number, ROUND)))
        await asyncio.sleep(0.002)
    assert room.students.present == 1
    room.end()
    await reading
    assert [frame.id for frame in read] == [*range(1, 22), END.id]


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
async def test_a_student_may_have_three_streams():
    room = shown_run()
    token = room.students.join()
    streams = await opened(room, *[token] * students_module.MAX_STREAMS)
    assert room.students.present == 1
    with pytest.raises(UserError, match="Too many requests"):
        await opened(room, token)
    await streams[0].aclose()
    await opened(room, token)


@on_loop
async def test_a_student_who_polls_too_often_is_refused():
    room = shown_run()
    token = room.students.join()
    for _ in range(students_module.READ_BURST):
        await room.poll(token, 0)
    with pytest.raises(UserError, match="Too many requests"):
        await room.poll(token, 0)


@on_loop
async def test_a_student_who_left_is_not_counted_and_may_come_back():
    clock = Clock()
    room = Room("BCDFG", clock)
    room.take(post(BEGIN))
    token = room.students.join()
    [stream] = await opened(room, token)
    assert room.students.present == 1
    await stream.aclose()
    clock.now += students_module.ABSENT_S + 0.1
    assert room.students.present == 0 and room.summary()["students"] == 1
    assert room.students.knows(token)


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
