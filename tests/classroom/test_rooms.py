"""All classes of a server: opening, finding by code, joining, ending."""

import pytest
from helpers.rooms import Clock, post

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


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rooms(clock):
    return Rooms(clock)


def test_a_class_ends_when_its_teachers_page_sends_nothing(clock, rooms):
    room = rooms.open("teacher")
    assert set(room.code) <= set(CODE_CHARS) and not set("AEIOUY0123456789") & set(CODE_CHARS)
    clock.now += IDLE_S - 1
    assert rooms.find(room.code.lower() + " ", "student") is room
    room.take(post())
    clock.now += IDLE_S - 1
    assert rooms.find(room.code, "student") is room
    clock.now += 2
    with pytest.raises(NoClassError, match="no class with this code"):
        rooms.find(room.code, "student")
    assert room.over


def test_rooms_are_bounded_in_all_and_for_one_address(rooms):
    for _ in range(MAX_ROOMS_PER_ADDRESS):
        rooms.open("teacher")
    with pytest.raises(UserError, match="Your network has 8 open"):
        rooms.open("teacher")
    for number in range(MAX_ROOMS - MAX_ROOMS_PER_ADDRESS):
        rooms.open(str(number))
    with pytest.raises(UserError, match="This server has 20 open"):
        rooms.open("late")


def times(action):
    """Return how often an action is allowed before the limit; one that finds no class counts."""
    for count in range(1_000):
        try:
            action()
        except TooOftenError as error:
            assert "Too many" in str(error)
            return count
        except NoClassError:
            pass
    raise AssertionError("there is no limit")


def test_a_lecture_at_one_address_has_joined_within_half_a_minute(clock, rooms):
    room = rooms.open("teacher")
    join = lambda: rooms.join(room, "school")  # noqa: E731
    token, waiting = join(), MAX_STUDENTS - JOIN_BURST
    assert times(join) == JOIN_BURST - 1
    while waiting > 0:
        clock.now += 2  # every page tries again about every two seconds
        now = times(join)
        assert 0 < now <= 2 * JOINS_PER_S
        waiting -= now
    assert clock.now <= 30 and room.students.knows(token)
    assert rooms.join(rooms.open("teacher"), "another school")


def test_an_address_that_tries_too_many_codes_is_refused_right_ones_too(clock, rooms):
    room = rooms.open("teacher")
    token = rooms.join(room, "school")
    wrong = lambda: rooms.find("ZZZZZ", "guesser")  # noqa: E731
    assert times(wrong) == MISS_BURST
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
    assert times(wrong) == 10 * MISSES_PER_S
