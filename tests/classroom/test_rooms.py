"""All classes of a server: how they end, how many there are, and who finds and joins them."""

import pytest
from helpers.rooms import Clock, in_loop, post

from specdemo.classroom.rates import TooOftenError
from specdemo.classroom.room import IDLE_S
from specdemo.classroom.rooms import (
    CODE_CHARS,
    JOINS_AT_ONCE,
    MISSES_AT_ONCE,
    MISSES_PER_S,
    MOST_OF_ONE,
    MOST_ROOMS,
    NoClassError,
    Rooms,
)
from specdemo.records.limits import UserError


def test_a_class_ends_when_its_teacher_has_not_been_heard_of():
    clock = Clock()
    rooms = Rooms(clock)
    room = rooms.open("teacher")
    clock.now += IDLE_S - 1
    assert rooms.find(room.code.lower() + " ", "student") is room
    in_loop(lambda: _taken(room))
    clock.now += IDLE_S - 1
    assert rooms.find(room.code, "student") is room
    clock.now += 2
    in_loop(lambda: _refused(lambda: rooms.find(room.code, "student"), "no class of that code"))
    assert room.over


async def _taken(room):
    room.take(post())


async def _refused(work, words):
    with pytest.raises(UserError, match=words):
        work()


def test_rooms_are_bounded_in_all_and_for_one_address():
    rooms = Rooms()
    for _ in range(MOST_OF_ONE):
        rooms.open("teacher")
    with pytest.raises(UserError, match="from your network"):
        rooms.open("teacher")
    for number in range(MOST_ROOMS - MOST_OF_ONE):
        rooms.open(number)
    with pytest.raises(UserError, match="no room for another"):
        rooms.open("late")


def test_codes_are_easy_to_read():
    code = Rooms().open("teacher").code
    assert set(code) <= set(CODE_CHARS) and not set("AEIOUY0123456789") & set(CODE_CHARS)


def tries(rooms, code, address):
    """How often a code can be tried before too many were."""
    for count in range(1_000):
        try:
            rooms.find(code, address)
        except TooOftenError:
            return count
        except NoClassError:
            pass
    raise AssertionError("nothing limits this")


def test_whoever_tries_too_many_codes_is_not_told_which_one_is_right():
    clock = Clock()
    rooms = Rooms(clock)
    room = rooms.open("teacher")
    token = rooms.join(room, "school")
    assert tries(rooms, "ZZZZZ", "guesser") == MISSES_AT_ONCE
    for code in ("ZZZZZ", room.code):
        with pytest.raises(TooOftenError, match="Too many codes"):
            rooms.find(code, "guesser", "no such token")
    assert rooms.find(room.code, "school") is room, "others are not held up"
    for known in (token, room.secret):
        assert rooms.find(room.code, "guesser", known) is room
    with pytest.raises(TooOftenError):
        rooms.find(rooms.open("another").code, "guesser", token)
    clock.now += 10
    assert rooms.find(room.code, "guesser") is room
    assert tries(rooms, "ZZZZZ", "guesser") == 10 * MISSES_PER_S


def test_a_thousand_joins_a_second_are_refused_and_those_who_are_known_are_not():
    async def work():
        clock = Clock()
        rooms = Rooms(clock)
        room = rooms.open("teacher")
        token = rooms.join(room, "school")
        joined = 1
        for _ in range(1000):
            clock.now += 0.001
            try:
                rooms.join(room, "school")
                joined += 1
            except UserError as error:
                assert "Too many are joining" in str(error)
        assert JOINS_AT_ONCE <= joined <= JOINS_AT_ONCE + 21
        assert room.students.knows(token)
        rooms.join(room, "another school")

    in_loop(work)
