"""All classes of a server: opening, finding by code, joining, ending."""

import pytest
from helpers.rooms import Clock, on_loop, post

from specdemo.classroom.room import IDLE_S
from specdemo.classroom.rooms import (
    CODE_CHARS,
    JOIN_BURST,
    JOINS_PER_S,
    MAX_ROOMS,
    MAX_ROOMS_PER_ADDRESS,
    MISS_BURST,
    MISSES_PER_S,
    NoClassError,
    Rooms,
)
from specdemo.classroom.students import MAX_STUDENTS, TooOftenError
from specdemo.records.limits import UserError


def test_a_class_ends_when_its_teachers_page_is_silent():
    clock = Clock()
    rooms = Rooms(clock)
    room = rooms.open("teacher")
    clock.now += IDLE_S - 1
    assert rooms.find(room.code.lower() + " ", "student") is room
    room.take(post())
    clock.now += IDLE_S - 1
    assert rooms.find(room.code, "student") is room
    clock.now += 2
    with pytest.raises(NoClassError, match="no class with this code"):
        rooms.find(room.code, "student")
    assert room.over


def test_rooms_are_bounded_in_all_and_for_one_address():
    rooms = Rooms()
    for _ in range(MAX_ROOMS_PER_ADDRESS):
        rooms.open("teacher")
    with pytest.raises(UserError, match="Your network has 8 open"):
        rooms.open("teacher")
    for number in range(MAX_ROOMS - MAX_ROOMS_PER_ADDRESS):
        rooms.open(number)
    with pytest.raises(UserError, match="This server has 20 open"):
        rooms.open("late")


def test_codes_are_easy_to_read():
    code = Rooms().open("teacher").code
    assert set(code) <= set(CODE_CHARS) and not set("AEIOUY0123456789") & set(CODE_CHARS)


def test_a_lecture_at_one_address_has_joined_within_half_a_minute():
    clock = Clock()
    rooms = Rooms(clock)
    room = rooms.open("teacher")
    waiting = MAX_STUDENTS
    while waiting:
        for _ in range(waiting):  # every page tries again about every two seconds
            try:
                rooms.join(room, "school")
                waiting -= 1
            except TooOftenError:
                break
        clock.now += 2
    assert clock.now <= 30


def tries(rooms, code, address):
    """Return the number of tries of a code before the limit."""
    for count in range(1_000):
        try:
            rooms.find(code, address)
        except TooOftenError:
            return count
        except NoClassError:
            pass
    raise AssertionError("there is no limit")


def test_an_address_that_tries_too_many_codes_is_refused_right_ones_too():
    clock = Clock()
    rooms = Rooms(clock)
    room = rooms.open("teacher")
    token = rooms.join(room, "school")
    assert tries(rooms, "ZZZZZ", "guesser") == MISS_BURST
    for code in ("ZZZZZ", room.code):
        with pytest.raises(TooOftenError, match="Too many codes"):
            rooms.find(code, "guesser", "no such token")
    assert rooms.find(room.code, "school") is room, "others are not affected"
    for known in (token, room.secret):
        assert rooms.find(room.code, "guesser", known) is room
    with pytest.raises(TooOftenError):
        rooms.find(rooms.open("another").code, "guesser", token)
    clock.now += 10
    assert rooms.find(room.code, "guesser") is room
    assert tries(rooms, "ZZZZZ", "guesser") == 10 * MISSES_PER_S


@on_loop
async def test_a_thousand_joins_per_second_are_refused_and_known_students_are_not():
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
            assert "Too many students are joining" in str(error)
    assert JOIN_BURST <= joined <= JOIN_BURST + JOINS_PER_S + 1 <= 100
    assert room.students.knows(token)
    rooms.join(room, "another school")
