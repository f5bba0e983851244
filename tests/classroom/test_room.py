"""One class: who may steer it, who is there, and what its students answer."""

import asyncio
import json

import pytest

from specdemo.classroom import students as students_module
from specdemo.classroom.room import IDLE_S, OtherWindowError, Room
from specdemo.classroom.rooms import CODE_CHARS, JOINS_AT_ONCE, MOST_OF_ONE, MOST_ROOMS, Rooms
from specdemo.classroom.shown_run import UnknownRunError
from specdemo.classroom.stream import END, messages, news
from specdemo.records.limits import UserError

BEGIN = {"type": "begin", "run": 1}
ROUND = {"type": "round"}
ASK = {"type": "ask", "text": "Faster?", "options": ["yes", "no"]}


class Clock:
    """Seconds that pass by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def in_loop(work):
    """A test within an event loop, as a server has one."""
    return asyncio.run(asyncio.wait_for(work(), 20))


def post(*sent, window="one", first=True):
    """What a teacher's page posts."""
    return {"window": window, "first": first, "messages": list(sent)}


def part(first, *events, run=1):
    """Events of a run, the first of which has that number."""
    return {"type": "events", "run": run, "from": first, "events": list(events)}


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
