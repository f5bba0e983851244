"""All classes of a server: how they end, how many there are, and who finds and joins them."""

import pytest
from helpers.rooms import Clock, in_loop, post

from specdemo.classroom.room import IDLE_S
from specdemo.classroom.rooms import CODE_CHARS, JOINS_AT_ONCE, MOST_OF_ONE, MOST_ROOMS, Rooms
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


def test_codes_are_easy_to_read_and_hard_to_guess():
    clock = Clock()
    rooms = Rooms(clock)
    room = rooms.open("teacher")
    assert set(room.code) <= set(CODE_CHARS) and not set("AEIOUY0123456789") & set(CODE_CHARS)
    tried = 0
    while True:
        try:
            rooms.find("ZZZZZZ", "guesser")
        except UserError as error:
            if "Too many codes" in str(error):
                break
        tried += 1
        assert tried < 100
    assert rooms.find(room.code, "guesser") is room  # who knows a code is not kept out
    clock.now += 10
    in_loop(lambda: _refused(lambda: rooms.find("ZZZZZZ", "guesser"), "no class of that code"))


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
