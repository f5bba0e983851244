"""The readers of a class: order of messages, rate limits, and numbers of streams and students."""

import asyncio

import pytest
from helpers.rooms import BEGIN, ROUND, Clock, on_loop, part, post

from specdemo.classroom import students as students_module
from specdemo.classroom.room import END, Room
from specdemo.records.limits import UserError


@on_loop
async def test_a_stream_has_every_message_once_and_in_order_and_the_end():
    room = Room("BCDFG")
    room.take(post(BEGIN))
    token, read = room.students.join(), []

    async def reader():
        async for new in room.stream(token, 0):
            read.extend(new)

    reading = asyncio.create_task(reader())
    for number in range(20):
        room.take(post(part(number, ROUND)))
        await asyncio.sleep(0.02)
    assert room.students.present == 1
    room.end()
    await reading
    assert [frame.id for frame in read] == [*range(1, 22), END.id]


@on_loop
async def test_messages_just_before_the_end_are_read_before_it():
    room = Room("BCDFG")
    room.take(post(BEGIN))
    token = room.students.join()
    stream = room.stream(token, 0)
    await anext(stream)
    room.take(post(part(0, ROUND)))
    room.end()
    assert [frame.id for frame in await anext(stream)] == [2, END.id]
    assert [frame.id for frame in await room.poll(token, 1)] == [2, END.id]


@on_loop
async def test_a_poll_waits_for_messages_and_ends_with_the_class(monkeypatch):
    monkeypatch.setattr("specdemo.classroom.room.POLL_S", 60.0)
    room = Room("BCDFG")
    token = room.students.join()
    waiting = asyncio.create_task(room.poll(token, 0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    room.take(post(BEGIN))
    assert [frame.id for frame in await waiting] == [1]
    assert [frame.id for frame in await room.poll(token, 0)] == [1]
    waiting = asyncio.create_task(room.poll(token, 1))
    await asyncio.sleep(0.05)
    room.end()
    assert await waiting == [END]


@on_loop
async def test_a_student_may_have_three_streams():
    room = Room("BCDFG")
    room.take(post(BEGIN))
    token = room.students.join()
    streams = [room.stream(token, 0) for _ in range(students_module.MAX_STREAMS)]
    for stream in streams:
        await anext(stream)
    assert room.students.present == 1
    with pytest.raises(UserError, match="Too many requests"):
        await anext(room.stream(token, 0))
    await streams[0].aclose()
    await anext(room.stream(token, 0))


@on_loop
async def test_a_student_who_polls_too_often_is_refused():
    room = Room("BCDFG", Clock())
    room.take(post(BEGIN))
    token = room.students.join()
    for _ in range(students_module.READ_BURST):
        await room.poll(token, 0)
    with pytest.raises(UserError, match="Too many requests"):
        await room.poll(token, 0)


@on_loop
async def test_a_student_who_left_is_not_counted_and_may_come_back():
    clock = Clock()
    room = Room("BCDFG", clock)
    token = room.students.join()
    room.take(post(BEGIN))
    stream = room.stream(token, 0)
    await anext(stream)
    assert room.students.present == 1
    await stream.aclose()
    clock.now += students_module.ABSENT_S + 0.1
    assert room.students.present == 0
    assert room.summary()["students"] == 1
    assert room.students.knows(token)


@on_loop
async def test_a_full_class_refuses_newcomers_but_not_students_who_are_present(monkeypatch):
    monkeypatch.setattr(students_module, "MAX_STUDENTS", 2)
    monkeypatch.setattr(students_module, "FULL", "This class is full.")
    room = Room("BCDFG")
    room.take(post(BEGIN))
    late = room.students.join()
    tokens = [room.students.join(), room.students.join()]
    streams = [room.stream(token, 0) for token in tokens]
    for stream in streams:
        await anext(stream)
    with pytest.raises(UserError, match="full"):
        room.students.join()
    with pytest.raises(UserError, match="full"):
        await anext(room.stream(late, 0))
    await anext(room.stream(tokens[0], 0))


@on_loop
async def test_a_full_memory_forgets_absent_students_only(monkeypatch):
    monkeypatch.setattr(students_module, "MAX_KNOWN", 3)
    room = Room("BCDFG")
    room.take(post(BEGIN))
    there = room.students.join()
    stream = room.stream(there, 0)
    await anext(stream)
    gone = room.students.join()
    for _ in range(5):
        room.students.join()
    assert room.students.knows(there) and not room.students.knows(gone)
