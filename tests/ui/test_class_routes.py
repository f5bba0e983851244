"""Classes over HTTP on a real server: permissions, message order, limits, hostile students."""

import asyncio
import csv
import io
import json
import socket
import time
from bisect import bisect
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import httpx
import pytest
from helpers.class_storm import PREFIX, Student, Teacher, lesson
from helpers.http_visitor import PLAIN
from helpers.rooms import BEGIN, ROUND, on_loop, part
from helpers.waiting import PATIENCE_S

from specdemo.classroom.rooms import JOIN_BURST, MISS_BURST

ASK = {"type": "ask", "text": "Faster?", "options": ["yes", "=no"]}


async def refused(asked: Awaitable[httpx.Response], status: int, words: str = "") -> None:
    reply = await asked
    error = reply.json()["error"]
    assert (reply.status_code, words in error, error.endswith(".")) == (status, True, True), (reply, error)


@asynccontextmanager
async def watching(*students: Student) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.watch()) for one in students]
    yield
    for task in tasks:
        task.cancel()


async def until_all(students: list[Student], count: int) -> None:
    while any(len(one.seen) < count for one in students):
        await asyncio.sleep(0.02)


def test_a_class_has_a_code_a_link_with_its_picture_and_a_page_without_foreign_addresses(url):
    for address, shown in (
        (url, url),
        ("https://demo.example.org/a/b/?x#y", "https://demo.example.org/a/b/"),
    ):
        room = PLAIN.post(f"{url}{PREFIX}", json={"address": address}).json()
        assert room["link"] == f"{shown}class/{room['code']}"
        assert room["qr"].startswith("data:image/svg+xml")
        headers = {"x-class-secret": room["secret"]}
        assert PLAIN.post(f"{url}{PREFIX}/{room['code']}/end", json={}, headers=headers).status_code == 200
    for path in (PREFIX, f"{PREFIX}/BCDFG", "class", "class/BCDFG"):
        page = PLAIN.get(f"{url}{path}")
        assert page.status_code == 200 and "text/html" in page.headers["content-type"]
        assert "https://" not in page.text.replace("https://www.w3.org", "")
        with_slash = PLAIN.get(f"{url}{path}/", follow_redirects=True)
        assert (with_slash.url, with_slash.text) == (page.url, page.text)


@on_loop
async def test_readers_who_disconnect_come_back_or_poll_late_miss_nothing(url):
    async with Teacher(url) as teacher:
        students = [await teacher.student() for _ in range(10)]
        leaving, staying = students[:5], students[5:]
        await teacher.tell({**BEGIN, "recording": "capital"})
        async with watching(*staying):
            async with watching(*leaving):
                for number in range(10):
                    await teacher.tell(part(number, {**ROUND, "number": number}))
                await until_all(students, 5)
            for number in range(10, 20):
                await teacher.tell(part(number, {**ROUND, "number": number}))
            async with watching(*leaving):
                await teacher.tell({"type": "view", "time": 1.5, "playing": True, "pace": "fit"}, ASK)
                await until_all(students, 23)
        late = await teacher.student()
        news = await teacher.http.get(f"news?student={late.token}&after=0")
    messages = [json.loads(line) for line in news.text.splitlines()]
    assert [message["id"] for message in messages] == list(range(1, 24))
    assert all([number for number, _ in one.seen][:23] == list(range(1, 24)) for one in students)
    assert [message["events"][0]["number"] for message in messages[1:21]] == list(range(20))
    assert messages[0]["recording"] == "capital" and messages[21]["time"] == 1.5
    assert not {"bars", "answered", "right"} & set(messages[22]["question"]), "nothing about other students"


@on_loop
async def test_answers_are_counted_and_in_the_summary(url):
    async with Teacher(url) as teacher:
        students = [await teacher.student() for _ in range(3)]
        await teacher.tell(ASK)
        votes = [{"student": one.token, "question": 1} for one in students]
        for vote, answer in zip(votes, (0, 1, 1), strict=True):
            assert (await teacher.http.post("answer", json=vote | {"answer": answer})).status_code == 200
        again = (await teacher.http.post("join", json={"student": students[0].token})).json()
        assert again["student"] == students[0].token and again["given"] == {"question": 1, "answer": 0}
        state = await teacher.tell({"type": "reveal", "right": 1})
        assert [bar["count"] for bar in state["question"]["bars"]] == [1, 2]
        assert (await teacher.tell({"type": "dismiss"}))["question"] is None
        await refused(teacher.http.post("answer", json=votes[0] | {"answer": 0}), 400, "No question")
        again = (await teacher.http.post("join", json={"student": students[0].token})).json()
        assert again["given"] is None
        summary = (await teacher.http.get("summary", headers=teacher.secret)).json()
        assert summary["questions"][0]["right_answers"] == 2
        table = (await teacher.http.get("summary?as=csv", headers=teacher.secret)).text
        assert list(csv.reader(io.StringIO(table)))[1:] == [
            ["1", "Faster?", "yes", "1", "False", ""],
            ["1", "Faster?", "'=no", "2", "True", ""],
        ]


@pytest.mark.slow
@on_loop
async def test_a_game_is_in_the_summary(url):
    async with Teacher(url) as teacher:
        student = await teacher.student()
        state = await teacher.tell({"type": "play", "text": "=Please answer", "seconds": 5})
        draft = {"student": student.token, "game": state["game"]["number"], "draft": " as soon"}
        assert (await teacher.http.post("draft", json=draft)).status_code == 200
        while (await teacher.tell())["game"]["phase"] != "judged":
            await asyncio.sleep(0.1)
        table = (await teacher.http.get("summary?as=csv", headers=teacher.secret)).text
        [game] = list(csv.reader(io.StringIO(table)))[1:]
        [summed] = (await teacher.http.get("summary", headers=teacher.secret)).json()["games"]
        assert game == ["game 1", "'=Please answer", summed["sentence"], "1", "", str(summed["alpha"])]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
@on_loop
async def test_a_student_whose_packets_vanish_is_soon_not_counted(url):
    async with Teacher(url) as teacher:
        student = await teacher.student()
        reading = asyncio.create_task(student.watch(vanishing := asyncio.Event()))
        while (await teacher.tell())["students"] < 1:
            await asyncio.sleep(0.05)
        vanishing.set()
        begun = time.monotonic()
        while (await teacher.tell())["students"]:
            await asyncio.sleep(0.1)
            assert time.monotonic() - begun < 60, "the system's own limit is a quarter of an hour"
        reading.cancel()


@on_loop
async def test_hostile_students_are_refused_in_a_sentence_and_the_class_continues(url):
    async with Teacher(url) as teacher, watching(good := await teacher.student()):
        http, secret = teacher.http, teacher.secret["x-class-secret"]
        await teacher.tell(BEGIN, ASK)
        for guess in ("", teacher.code, good.token, secret[:-1], secret + "x", "ü".encode()):
            headers = httpx.Headers(
                {b"x-class-secret": guess if isinstance(guess, bytes) else guess.encode()}
            )
            for path in ("teach", "end"):
                await refused(http.post(path, json={}, headers=headers), 400, "opened this class")
            await refused(http.get("summary", headers=headers), 400, "opened this class")
        assert (await http.get("teach")).status_code == 405
        large = b'{"student":"' + b"x" * 10_000_000 + b'"}'
        for path in ("answer", "join"):
            await refused(http.post(path, content=large), 413, "too large")
        for broken in (b"", b"[]", b"{", b"\xff", b'{"a":NaN}'):
            await refused(http.post("answer", content=broken), 400)
        for after in ("-1", "1e3", "x", "9" * 17, "%00"):
            await refused(http.get(f"events?student={good.token}&after={after}"), 400, "after must be")
        for path in ("events", "news", "own"):
            await refused(http.get(f"{path}?student=forged"), 400, "not in this class")
        foreign = {"origin": "https://evil.example"}
        await refused(http.post("join", json={}, headers=foreign), 403, "other sites")
        mine = {"student": good.token, "question": 1, "answer": 0}
        await refused(http.post("answer", json={**mine, "student": "forged"}), 400, "not in this class")
        assert (await http.post("answer", json=mine)).status_code == 200
        for wrong in ({"question": 2}, {"answer": 9}, {"x": 1}):
            await refused(http.post("answer", json={**mine, **wrong}), 400)
        assert (await teacher.tell({"type": "close"}))["question"]["answered"] == 1
        await refused(http.post("answer", json=mine), 400, "closed")
        await teacher.tell(part(0, ROUND))
        while "events" not in good.types:
            await asyncio.sleep(0.02)


@on_loop
async def test_a_run_that_is_too_long_is_refused_and_the_next_is_shown(url):
    line = {**ROUND, "padding": "x" * 900_000}
    async with Teacher(url) as teacher:
        await teacher.tell(BEGIN)
        for number in range(6):
            await teacher.tell(part(number, line))
        for message, status, words in (
            (part(6, line, line), 413, "too large"),
            (part(6, line), 400, "too long"),
            (part(8, line), 409, "events before this one are missing"),
        ):
            more = {"window": 1, "first": True, "messages": [message]}
            await refused(teacher.http.post("teach", json=more, headers=teacher.secret), status, words)
        await teacher.tell(BEGIN, part(0, line))


@pytest.mark.slow
@on_loop
async def test_joins_and_wrong_codes_are_limited_but_not_for_known_students(url):
    elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
    async with (
        Teacher(url) as teacher,
        httpx.AsyncClient(base_url=teacher.http.base_url, transport=elsewhere, timeout=PATIENCE_S) as guesser,
    ):
        student = await teacher.student()
        known = {"student": student.token}
        joins = [guesser.post("join", json={}) for _ in range(2 * JOIN_BURST)]
        assert {reply.status_code for reply in await asyncio.gather(*joins)} == {200, 429}
        assert (await guesser.post("join", json=known)).json()["student"] == student.token
        misses = [guesser.post(f"{url}{PREFIX}/ZZZZZ/join", json={}) for _ in range(2 * MISS_BURST)]
        assert {reply.status_code for reply in await asyncio.gather(*misses)} == {404, 429}
        await refused(guesser.post("join", json={}), 429, "Too many codes")
        await refused(guesser.get("news?student=x"), 429, "Too many codes")
        assert (await guesser.post("join", json=known)).json()["student"] == student.token
        assert (await guesser.get("summary", headers=teacher.secret)).status_code == 200
        assert (await teacher.student()).token, "another address can join as before"


@pytest.mark.slow
def test_two_hundred_students_get_everything_in_order_and_soon(url):
    sent, students = asyncio.run(lesson(url, students=200, messages=60, gap_s=0.25))
    assert all([number for number, _ in one.seen][:-1] == [*range(1, 62)] for one in students)
    assert all(one.types[-1] == "end" for one in students)
    times, seen = sorted(sent.values()), [entry for one in students for entry in one.seen]
    behind = sorted(bisect(times, when) - bisect(times, sent[n]) for n, when in seen if n in sent)
    assert behind[len(behind) * 95 // 100] <= 2, "messages that the teacher had sent since"
