"""Classes over HTTP on a real server: permissions, message order, limits, hostile students."""

import asyncio
import csv
import io
import json
from bisect import bisect

import httpx
import pytest
from helpers.class_storm import PREFIX, Student, Teacher, lesson, part
from helpers.http_visitor import PLAIN
from helpers.waiting import PATIENCE_S

from specdemo.classroom.rooms import MISS_BURST

BEGIN = {"type": "begin", "run": 1}
ASK = {"type": "ask", "text": "Faster?", "options": ["yes", "=no"]}


def in_class(url, work):
    async def held():
        teacher = Teacher(url)
        await teacher.open()
        try:
            return await work(teacher)
        finally:
            await teacher.post("end", {})
            await teacher.http.aclose()

    return asyncio.run(asyncio.wait_for(held(), PATIENCE_S))


def at(teacher, path):
    return f"/{PREFIX}/{teacher.code}/{path}"


async def refused(asked, status, words):
    reply = await asked
    error = reply.json()["error"]
    assert (reply.status_code, words in error, error.endswith(".")) == (status, True, True), (reply, error)


def test_a_class_has_a_code_a_link_and_a_picture_of_it(url):
    reply = PLAIN.post(f"{url}{PREFIX}", json={"address": f"{url}"}).json()
    assert reply["link"] == f"{url}{PREFIX}/{reply['code']}"
    assert reply["qr"].startswith("data:image/svg+xml")
    behind = PLAIN.post(f"{url}{PREFIX}", json={"address": "https://demo.example.org/a/b/?x#y"}).json()
    assert behind["link"] == f"https://demo.example.org/a/b/{PREFIX}/{behind['code']}"
    for room in (reply, behind):
        headers = {"x-class-secret": room["secret"]}
        assert PLAIN.post(f"{url}{PREFIX}/{room['code']}/end", json={}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "address", [None, "", "x" * 400, "javascript:alert(1)", "ftp://x/", "http://", "http://[", "http://a\n/"]
)
def test_only_a_pages_address_makes_a_link(url, address):
    reply = PLAIN.post(f"{url}{PREFIX}", json={"address": address})
    assert reply.status_code == 400 and reply.json()["error"].endswith(".")


def test_the_students_page_has_no_foreign_addresses_and_exists_for_any_code(url):
    for path in (PREFIX, f"{PREFIX}/BCDFG"):
        page = PLAIN.get(f"{url}{path}")
        assert page.status_code == 200 and "text/html" in page.headers["content-type"]
        assert "https://" not in page.text.replace("https://www.w3.org", "")


def test_all_students_get_all_messages_in_order(url):
    async def work(teacher):
        early = await teacher.student()
        watching = asyncio.create_task(early.watch(url, teacher.code))
        await teacher.tell({**BEGIN, "recording": "capital"})
        for number in range(5):
            await teacher.tell(part(number, {"type": "round", "number": number}))
        await teacher.tell({"type": "view", "time": 1.5, "playing": True, "pace": "fit"}, ASK)
        late = await teacher.student()
        news = await teacher.http.get(at(teacher, f"news?student={late.token}&after=0"))
        messages = [json.loads(line) for line in news.text.splitlines()]
        assert [message["type"] for message in messages] == ["begin", *["events"] * 5, "view", "question"]
        assert [message["events"][0]["number"] for message in messages[1:6]] == list(range(5))
        assert messages[0]["recording"] == "capital" and messages[6]["time"] == 1.5
        while len(early.seen) < len(messages):
            await asyncio.sleep(0.02)
        assert [number for number, _ in early.seen] == [message["id"] for message in messages]
        watching.cancel()

    in_class(url, work)


@pytest.mark.parametrize(("count", "gone"), [(10, 5), pytest.param(200, 50, marks=pytest.mark.slow)])
def test_a_student_who_disconnects_and_comes_back_loses_nothing(url, count, gone):
    async def work(teacher):
        students = [await teacher.student() for _ in range(count)]
        await teacher.tell(BEGIN)
        watching = [asyncio.create_task(one.watch(url, teacher.code)) for one in students]
        for number in range(30):
            await teacher.tell(part(number, {"type": "round"}))
            await asyncio.sleep(0.03)
            if number == 10:
                for task in watching[:gone]:
                    task.cancel()
            if number == 20:
                watching[:gone] = [
                    asyncio.create_task(one.watch(url, teacher.code)) for one in students[:gone]
                ]
        while any(len(one.seen) < 31 for one in students):
            await asyncio.sleep(0.02)
        assert all([number for number, _ in one.seen] == list(range(1, 32)) for one in students)
        for task in watching:
            task.cancel()

    in_class(url, work)


def test_answers_are_counted_and_in_the_summary(url):
    async def work(teacher):
        students = [await teacher.student() for _ in range(3)]
        await teacher.tell(ASK)
        for student, answer in zip(students, (0, 1, 1), strict=True):
            vote = {"student": student.token, "question": 1, "answer": answer}
            assert (await teacher.http.post(at(teacher, "answer"), json=vote)).status_code == 200
        again = await teacher.http.post(at(teacher, "join"), json={"student": students[0].token})
        assert again.json() == {
            "student": students[0].token,
            "given": {"question": 1, "answer": 0},
            "drafted": None,
            "writing": None,
        }
        reveal = {"type": "reveal", "right": 1, "why": "Measured.", "figures": "1.34×"}
        state = await teacher.tell(reveal)
        assert [bar["count"] for bar in state["question"]["bars"]] == [1, 2]
        headers = {"x-class-secret": teacher.secret}
        summary = (await teacher.http.get(at(teacher, "summary"), headers=headers)).json()
        assert summary["questions"][0]["right_answers"] == 2
        table = (await teacher.http.get(at(teacher, "summary?as=csv"), headers=headers)).text
        rows = list(csv.reader(io.StringIO(table)))
        assert rows[1:] == [
            ["1", "Faster?", "yes", "1", "False", "1.34×"],
            ["1", "Faster?", "'=no", "2", "True", "1.34×"],
        ]

    in_class(url, work)


def test_a_student_can_neither_control_nor_read_nor_end_the_class(url):
    async def work(teacher):
        student = await teacher.student()
        for secret in ({}, {"x-class-secret": student.token}, {"x-class-secret": "x" * 32}):
            for path, content in (("teach", {"window": 1, "first": True, "messages": [BEGIN]}), ("end", {})):
                asked = teacher.http.post(at(teacher, path), json=content, headers=secret)
                await refused(asked, 400, "opened this class")
            await refused(teacher.http.get(at(teacher, "summary"), headers=secret), 400, "opened this class")
        assert (await teacher.http.get(at(teacher, "teach"))).status_code == 405
        await teacher.tell(ASK)
        news = await teacher.http.get(at(teacher, f"news?student={student.token}"))
        [messages] = [json.loads(line) for line in news.text.splitlines()]
        assert not {"bars", "answered", "right"} & set(messages["question"])  # nothing about other students

    in_class(url, work)


def test_hostile_students_are_refused_in_a_sentence_and_the_class_continues(url):
    async def work(teacher):
        good = await teacher.student()
        watching = asyncio.create_task(good.watch(url, teacher.code))
        await teacher.tell(BEGIN, ASK)
        post = teacher.http.post
        forged = {"student": "forged", "question": 1, "answer": 0}
        await refused(post(at(teacher, "answer"), json=forged), 400, "not in this class")
        mine = {**forged, "student": good.token}
        for wrong in (
            {**mine, "question": 2},
            {**mine, "answer": 9},
            {**mine, "answer": None},
            {},
            {**mine, "x": 1},
        ):
            await refused(post(at(teacher, "answer"), json=wrong), 400, "")
        await asyncio.sleep(1.1)  # those counted as answers given too fast
        large = b'{"student":"' + b"x" * 10_000_000 + b'"}'
        await refused(post(at(teacher, "answer"), content=large), 413, "too large")
        await refused(post(at(teacher, "join"), content=large), 413, "too large")
        for broken in (b"", b"[]", b"{", b"\xff", b'{"a":NaN}'):
            await refused(post(at(teacher, "answer"), content=broken), 400, "")
        for after in ("-1", "1e3", "x", "9" * 17, "%00"):
            path = at(teacher, f"events?student={good.token}&after={after}")
            await refused(teacher.http.get(path), 400, "after must be")
        for path in ("events", "news", "own"):
            asked = teacher.http.get(at(teacher, f"{path}?student=forged"))
            await refused(asked, 400, "not in this class")
        await refused(post(f"/{PREFIX}/ZZZZZZ/join", json={}), 404, "no class with this code")
        foreign = {"origin": "https://evil.example"}
        await refused(post(at(teacher, "join"), json={}, headers=foreign), 403, "other sites")
        assert (await post(at(teacher, "answer"), json=mine)).status_code == 200
        assert (await teacher.tell({"type": "close"}))["question"]["answered"] == 1
        await refused(post(at(teacher, "answer"), json=mine), 400, "closed")
        await teacher.tell(part(0, {"type": "round"}))
        while "events" not in good.types:
            await asyncio.sleep(0.02)
        watching.cancel()

    in_class(url, work)


def test_a_run_that_is_too_long_is_refused_and_the_next_is_shown(url):
    async def work(teacher):
        headers = {"x-class-secret": teacher.secret}
        line = {"type": "round", "padding": "x" * 900_000}
        await teacher.tell(BEGIN)
        for number in range(6):
            await teacher.tell(part(number, line))

        async def refused_part(message, status, words):
            more = {"window": 1, "first": True, "messages": [message]}
            asked = teacher.http.post(at(teacher, "teach"), json=more, headers=headers)
            await refused(asked, status, words)

        await refused_part(part(6, line, line), 413, "too large")
        await refused_part(part(6, line), 400, "too long")
        await refused_part(part(8, line), 409, "events before this one are missing")
        await teacher.tell({**BEGIN, "run": 1}, part(0, line))

    in_class(url, work)


@pytest.mark.slow
def test_two_hundred_students_get_everything_in_order_and_soon(url):
    sent, students = asyncio.run(lesson(url, students=200, messages=60, gap_s=0.25))
    expected = [*range(1, 62)]
    assert all([number for number, _ in one.seen][:-1] == expected for one in students)
    assert all(one.types[-1] == "end" for one in students)
    times = sorted(sent.values())
    behind = sorted(
        bisect(times, when) - bisect(times, sent[number])
        for one in students
        for number, when in one.seen
        if number in sent
    )
    assert behind[len(behind) * 95 // 100] <= 2, "messages that the teacher had sent since"


@pytest.mark.slow
def test_a_flood_of_joins_does_not_affect_students_who_are_present(url):
    async def work(teacher):
        good: Student = await teacher.student()
        watching = asyncio.create_task(good.watch(url, teacher.code))
        await teacher.tell(BEGIN)
        joins = [teacher.http.post(at(teacher, "join"), json={}) for _ in range(1000)]
        statuses = [reply.status_code for reply in await asyncio.gather(*joins)]
        assert set(statuses) == {200, 429}
        again = await teacher.http.post(at(teacher, "join"), json={"student": good.token})
        assert again.json()["student"] == good.token
        await teacher.tell(part(0, {"type": "round"}))
        while "events" not in good.types:
            await asyncio.sleep(0.02)
        watching.cancel()

    in_class(url, work)


def test_code_guessing_is_limited_but_not_for_known_students(url):
    async def work(teacher):
        student = await teacher.student()
        elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
        async with httpx.AsyncClient(base_url=url, transport=elsewhere, timeout=PATIENCE_S) as guesser:
            replies = [await guesser.post(f"/{PREFIX}/ZZZZZ/join", json={}) for _ in range(MISS_BURST + 10)]
            assert {reply.status_code for reply in replies} == {404, 429}
            await refused(guesser.post(at(teacher, "join"), json={}), 429, "Too many codes")
            await refused(guesser.get(at(teacher, "news?student=x")), 429, "Too many codes")
            again = await guesser.post(at(teacher, "join"), json={"student": student.token})
            assert again.json()["student"] == student.token
            news = await guesser.get(at(teacher, f"own?student={student.token}"))
            assert news.status_code in (200, 400) and "codes" not in news.text
            known = {"x-class-secret": teacher.secret}
            assert (await guesser.get(at(teacher, "summary"), headers=known)).status_code == 200
        assert (await teacher.student()).token, "who asks from elsewhere joins as before"

    in_class(url, work)
