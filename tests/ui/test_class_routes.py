"""Classes over HTTP on a real server: permissions, message order, limits, hostile students."""

import asyncio
import csv
import inspect
import io
import json
from bisect import bisect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from helpers.class_storm import PREFIX, Student, Teacher, lesson, part
from helpers.http_visitor import PLAIN
from helpers.waiting import PATIENCE_S

from specdemo.classroom.rooms import MISS_BURST

BEGIN = {"type": "begin", "run": 1}
ASK = {"type": "ask", "text": "Faster?", "options": ["yes", "=no"]}
ROUND = {"type": "round"}


def in_class(work: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a test that runs ``work`` with the teacher of an open class and with its other parameters."""

    def test(url: str, **parameters: Any) -> None:
        async def held() -> None:
            teacher = Teacher(url)
            await teacher.open()
            try:
                await work(teacher, **parameters)
            finally:
                await teacher.post("end", {})
                await teacher.http.aclose()

        asyncio.run(asyncio.wait_for(held(), PATIENCE_S))

    own = inspect.signature(test).parameters["url"]
    test.__signature__ = inspect.Signature([own, *[*inspect.signature(work).parameters.values()][1:]])
    return test


def at(teacher: Teacher, path: str) -> str:
    return f"/{PREFIX}/{teacher.code}/{path}"


async def refused(asked: Awaitable[httpx.Response], status: int, words: str = "") -> None:
    reply = await asked
    error = reply.json()["error"]
    assert (reply.status_code, words in error, error.endswith(".")) == (status, True, True), (reply, error)


@contextmanager
def watching(teacher: Teacher, *students: Student) -> Iterator[None]:
    tasks = [asyncio.create_task(one.watch(teacher.url, teacher.code)) for one in students]
    yield
    for task in tasks:
        task.cancel()


async def until_all(students: list[Student], count: int) -> None:
    while any(len(one.seen) < count for one in students):
        await asyncio.sleep(0.02)


def test_a_class_has_a_code_a_link_and_a_picture_of_it(url):
    for address, shown in (
        (url, url),
        ("https://demo.example.org/a/b/?x#y", "https://demo.example.org/a/b/"),
    ):
        room = PLAIN.post(f"{url}{PREFIX}", json={"address": address}).json()
        assert room["link"] == f"{shown}{PREFIX}/{room['code']}"
        assert room["qr"].startswith("data:image/svg+xml")
        headers = {"x-class-secret": room["secret"]}
        assert PLAIN.post(f"{url}{PREFIX}/{room['code']}/end", json={}, headers=headers).status_code == 200


def test_the_students_page_has_no_foreign_addresses_and_exists_for_any_code(url):
    for path in (PREFIX, f"{PREFIX}/BCDFG"):
        page = PLAIN.get(f"{url}{path}")
        assert page.status_code == 200 and "text/html" in page.headers["content-type"]
        assert "https://" not in page.text.replace("https://www.w3.org", "")


@in_class
async def test_all_students_get_all_messages_in_order(teacher):
    early = await teacher.student()
    with watching(teacher, early):
        await teacher.tell({**BEGIN, "recording": "capital"})
        for number in range(5):
            await teacher.tell(part(number, {**ROUND, "number": number}))
        await teacher.tell({"type": "view", "time": 1.5, "playing": True, "pace": "fit"}, ASK)
        late = await teacher.student()
        news = await teacher.http.get(at(teacher, f"news?student={late.token}&after=0"))
        messages = [json.loads(line) for line in news.text.splitlines()]
        assert [message["type"] for message in messages] == ["begin", *["events"] * 5, "view", "question"]
        assert [message["events"][0]["number"] for message in messages[1:6]] == list(range(5))
        assert messages[0]["recording"] == "capital" and messages[6]["time"] == 1.5
        assert not {"bars", "answered", "right"} & set(messages[7]["question"]), (
            "nothing about other students"
        )
        await until_all([early], len(messages))
        assert [number for number, _ in early.seen] == [message["id"] for message in messages]


@pytest.mark.parametrize(("count", "gone"), [(10, 5), pytest.param(200, 50, marks=pytest.mark.slow)])
@in_class
async def test_a_student_who_disconnects_and_comes_back_loses_nothing(teacher, count, gone):
    students = [await teacher.student() for _ in range(count)]
    await teacher.tell(BEGIN)
    with watching(teacher, *students[gone:]):
        with watching(teacher, *students[:gone]):
            for number in range(10):
                await teacher.tell(part(number, ROUND))
            await until_all(students, 5)
        for number in range(10, 20):
            await teacher.tell(part(number, ROUND))
        with watching(teacher, *students[:gone]):
            for number in range(20, 30):
                await teacher.tell(part(number, ROUND))
            await until_all(students, 31)
    assert all([number for number, _ in one.seen] == list(range(1, 32)) for one in students)


@in_class
async def test_answers_are_counted_and_in_the_summary(teacher):
    students = [await teacher.student() for _ in range(3)]
    await teacher.tell(ASK)
    for student, answer in zip(students, (0, 1, 1), strict=True):
        vote = {"student": student.token, "question": 1, "answer": answer}
        assert (await teacher.http.post(at(teacher, "answer"), json=vote)).status_code == 200
    again = (await teacher.http.post(at(teacher, "join"), json={"student": students[0].token})).json()
    assert again["student"] == students[0].token and again["given"] == {"question": 1, "answer": 0}
    state = await teacher.tell({"type": "reveal", "right": 1, "why": "Measured.", "figures": "1.34×"})
    assert [bar["count"] for bar in state["question"]["bars"]] == [1, 2]
    headers = {"x-class-secret": teacher.secret}
    summary = (await teacher.http.get(at(teacher, "summary"), headers=headers)).json()
    assert summary["questions"][0]["right_answers"] == 2
    table = (await teacher.http.get(at(teacher, "summary?as=csv"), headers=headers)).text
    assert list(csv.reader(io.StringIO(table)))[1:] == [
        ["1", "Faster?", "yes", "1", "False", "1.34×"],
        ["1", "Faster?", "'=no", "2", "True", "1.34×"],
    ]


@in_class
async def test_hostile_students_are_refused_in_a_sentence_and_the_class_continues(teacher):
    http, good = teacher.http, await teacher.student()
    with watching(teacher, good):
        await teacher.tell(BEGIN, ASK)
        for secret in ({}, {"x-class-secret": good.token}, {"x-class-secret": "x" * 32}):
            for path in ("teach", "end"):
                await refused(http.post(at(teacher, path), json={}, headers=secret), 400, "opened this class")
            await refused(http.get(at(teacher, "summary"), headers=secret), 400, "opened this class")
        assert (await http.get(at(teacher, "teach"))).status_code == 405
        large = b'{"student":"' + b"x" * 10_000_000 + b'"}'
        for path in ("answer", "join"):
            await refused(http.post(at(teacher, path), content=large), 413, "too large")
        for broken in (b"", b"[]", b"{", b"\xff", b'{"a":NaN}'):
            await refused(http.post(at(teacher, "answer"), content=broken), 400)
        for after in ("-1", "1e3", "x", "9" * 17, "%00"):
            path = at(teacher, f"events?student={good.token}&after={after}")
            await refused(http.get(path), 400, "after must be")
        for path in ("events", "news", "own"):
            await refused(http.get(at(teacher, f"{path}?student=forged")), 400, "not in this class")
        foreign = {"origin": "https://evil.example"}
        await refused(http.post(at(teacher, "join"), json={}, headers=foreign), 403, "other sites")
        mine = {"student": good.token, "question": 1, "answer": 0}
        forged = {**mine, "student": "forged"}
        await refused(http.post(at(teacher, "answer"), json=forged), 400, "not in this class")
        assert (await http.post(at(teacher, "answer"), json=mine)).status_code == 200
        for wrong in ({"question": 2}, {"answer": 9}, {"x": 1}):
            await refused(http.post(at(teacher, "answer"), json={**mine, **wrong}), 400)
        assert (await teacher.tell({"type": "close"}))["question"]["answered"] == 1
        await refused(http.post(at(teacher, "answer"), json=mine), 400, "closed")
        await teacher.tell(part(0, ROUND))
        while "events" not in good.types:
            await asyncio.sleep(0.02)


@in_class
async def test_a_run_that_is_too_long_is_refused_and_the_next_is_shown(teacher):
    line = {**ROUND, "padding": "x" * 900_000}
    await teacher.tell(BEGIN)
    for number in range(6):
        await teacher.tell(part(number, line))
    for message, status, words in (
        (part(6, line, line), 413, "too large"),
        (part(6, line), 400, "too long"),
        (part(8, line), 409, "events before this one are missing"),
    ):
        more = {"window": 1, "first": True, "messages": [message]}
        headers = {"x-class-secret": teacher.secret}
        await refused(teacher.http.post(at(teacher, "teach"), json=more, headers=headers), status, words)
    await teacher.tell(BEGIN, part(0, line))


@in_class
async def test_code_guessing_is_limited_but_not_for_known_students(teacher):
    student = await teacher.student()
    elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
    async with httpx.AsyncClient(base_url=teacher.url, transport=elsewhere, timeout=PATIENCE_S) as guesser:
        replies = [await guesser.post(f"/{PREFIX}/ZZZZZ/join", json={}) for _ in range(MISS_BURST + 10)]
        assert {reply.status_code for reply in replies} == {404, 429}
        await refused(guesser.post(at(teacher, "join"), json={}), 429, "Too many codes")
        await refused(guesser.get(at(teacher, "news?student=x")), 429, "Too many codes")
        again = await guesser.post(at(teacher, "join"), json={"student": student.token})
        assert again.json()["student"] == student.token
        known = {"x-class-secret": teacher.secret}
        assert (await guesser.get(at(teacher, "summary"), headers=known)).status_code == 200
    assert (await teacher.student()).token, "another address can join as before"


@pytest.mark.slow
def test_two_hundred_students_get_everything_in_order_and_soon(url):
    sent, students = asyncio.run(lesson(url, students=200, messages=60, gap_s=0.25))
    assert all([number for number, _ in one.seen][:-1] == [*range(1, 62)] for one in students)
    assert all(one.types[-1] == "end" for one in students)
    times, seen = sorted(sent.values()), [entry for one in students for entry in one.seen]
    behind = sorted(bisect(times, when) - bisect(times, sent[n]) for n, when in seen if n in sent)
    assert behind[len(behind) * 95 // 100] <= 2, "messages that the teacher had sent since"


@pytest.mark.slow
@in_class
async def test_a_flood_of_joins_does_not_affect_students_who_are_present(teacher):
    good = await teacher.student()
    with watching(teacher, good):
        await teacher.tell(BEGIN)
        joins = [teacher.http.post(at(teacher, "join"), json={}) for _ in range(1000)]
        assert {reply.status_code for reply in await asyncio.gather(*joins)} == {200, 429}
        again = await teacher.http.post(at(teacher, "join"), json={"student": good.token})
        assert again.json()["student"] == good.token
        await teacher.tell(part(0, ROUND))
        while "events" not in good.types:
            await asyncio.sleep(0.02)
