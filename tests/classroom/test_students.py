"""Who watches a class: what they read, how often, and how many may."""

import asyncio

import pytest
from helpers.rooms import BEGIN, ROUND, Clock, in_loop, part, post

from specdemo.classroom import students as students_module
from specdemo.classroom.room import Room
from specdemo.classroom.stream import END, messages, news
from specdemo.records.limits import UserError


def test_everything_is_read_in_order_and_once_and_the_end_is_told():
    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN))
        token, read = room.students.join(), []

        async def reader():
            async for new in messages(room, token, 0):
                read.extend(new)

        reading = asyncio.create_task(reader())
        for number in range(20):
            room.take(post(part(number, ROUND)))
            await asyncio.sleep(0.02)
        assert room.students.here == 1
        room.end()
        await reading
        assert [frame.id for frame in read] == [*range(1, 22), END.id]

    in_loop(work)


def test_what_is_told_just_before_the_end_is_read_before_it():
    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN))
        token = room.students.join()
        stream = messages(room, token, 0)
        await anext(stream)
        room.take(post(part(0, ROUND)))
        room.end()
        assert [frame.id for frame in await anext(stream)] == [2, END.id]
        assert [frame.id for frame in await news(room, token, 1)] == [2, END.id]

    in_loop(work)


def test_news_waits_until_there_is_some_and_ends_with_the_class(monkeypatch):
    monkeypatch.setattr("specdemo.classroom.stream.POLL_S", 5.0)

    async def work():
        room = Room("BCDFG")
        token = room.students.join()
        waiting = asyncio.create_task(news(room, token, 0))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        room.take(post(BEGIN))
        assert [frame.id for frame in await waiting] == [1]
        assert [frame.id for frame in await news(room, token, 0)] == [1]
        waiting = asyncio.create_task(news(room, token, 1))
        await asyncio.sleep(0.05)
        room.end()
        assert await waiting == [END]

    in_loop(work)


def test_a_student_may_have_few_streams_at_a_time():
    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN))
        token = room.students.join()
        streams = [messages(room, token, 0) for _ in range(students_module.MOST_STREAMS)]
        for stream in streams:
            await anext(stream)
        assert room.students.here == 1
        with pytest.raises(UserError, match="too fast"):
            await anext(messages(room, token, 0))
        await streams[0].aclose()
        await anext(messages(room, token, 0))

    in_loop(work)


def test_a_student_may_not_ask_for_everything_again_and_again():
    async def work():
        room = Room("BCDFG", Clock())
        room.take(post(BEGIN))
        token = room.students.join()
        for _ in range(students_module.READS_AT_ONCE):
            await news(room, token, 0)
        with pytest.raises(UserError, match="too fast"):
            await news(room, token, 0)

    in_loop(work)


def test_who_leaves_is_counted_no_more_and_may_come_back(monkeypatch):
    async def work():
        clock = Clock()
        room = Room("BCDFG", clock)
        token = room.students.join()
        room.take(post(BEGIN))
        stream = messages(room, token, 0)
        await anext(stream)
        assert room.students.here == 1
        await stream.aclose()
        clock.now += students_module.BETWEEN_S + 0.1
        assert room.students.here == 0
        assert room.summary()["students"] == 1
        assert room.students.knows(token)

    in_loop(work)


def test_a_class_is_full_at_some_point_but_not_for_who_is_there(monkeypatch):
    monkeypatch.setattr(students_module, "MOST_STUDENTS", 2)
    monkeypatch.setattr(students_module, "FULL", "This class is full.")

    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN))
        late = room.students.join()
        tokens = [room.students.join(), room.students.join()]
        streams = [messages(room, token, 0) for token in tokens]
        for stream in streams:
            await anext(stream)
        with pytest.raises(UserError, match="full"):
            room.students.join()
        with pytest.raises(UserError, match="full"):
            await anext(messages(room, late, 0))
        await anext(messages(room, tokens[0], 0))

    in_loop(work)


def test_only_so_many_are_remembered_and_never_those_who_are_there_forgotten(monkeypatch):
    monkeypatch.setattr(students_module, "MOST_KNOWN", 3)

    async def work():
        room = Room("BCDFG")
        room.take(post(BEGIN))
        there = room.students.join()
        stream = messages(room, there, 0)
        await anext(stream)
        gone = room.students.join()
        for _ in range(5):
            room.students.join()
        assert room.students.knows(there) and not room.students.knows(gone)

    in_loop(work)
