"""A class of many students as HTTP clients that record when each message arrives; for tests and manual use.

In ``tests``, ``python -m helpers.class_storm URL --students 200`` opens a class on a running app and prints
how late what the teacher shows arrives. Students speak HTTP/1.1 over plain sockets: two hundred of them must
cost less than the server they measure.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from helpers.http_visitor import LIMITS
from helpers.waiting import PATIENCE_S

PREFIX = "specdemo-class"


@dataclass
class Student:
    """One reader of a class."""

    token: str
    seen: list[tuple[int, float]] = field(default_factory=list)  # id and time.perf_counter() of each message
    types: list[str] = field(default_factory=list)

    async def watch(self, url: str, code: str) -> None:
        """Read until the class ends or the task is cancelled, starting after the last message seen."""
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**23)
        after = self.seen[-1][0] if self.seen else 0
        path = f"/{PREFIX}/{code}/events?student={self.token}&after={after}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    self._take(line[6:])
                    if self.types[-1:] == ["end"]:
                        return
        finally:
            writer.close()

    def _take(self, data: bytes) -> None:
        # Its number and type stand in front; to parse the rest two hundred times would be most of the work.
        now = time.perf_counter()
        kind = data[data.index(b'"type":"') + 8 :].partition(b'"')[0].decode()
        number = int(data[6:].partition(b",")[0]) if data.startswith(b'{"id":') else 0
        if kind == "here":
            return
        self.seen.append((number, now))
        self.types.append(kind)


class Teacher:
    def __init__(self, url: str):
        self.http = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=LIMITS)
        self.url = url
        self.code = ""
        self.secret = ""

    async def open(self) -> None:
        room = (await self.http.post(f"/{PREFIX}", json={"address": self.url})).raise_for_status().json()
        self.code, self.secret = room["code"], room["secret"]

    async def tell(self, *messages: dict[str, Any]) -> dict[str, Any]:
        return await self.post("teach", {"window": 1, "first": True, "messages": messages})

    async def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Post as the teacher; raise for a refusal."""
        headers = {"x-class-secret": self.secret}
        reply = await self.http.post(f"/{PREFIX}/{self.code}/{path}", json=content, headers=headers)
        return reply.raise_for_status().json()

    async def student(self) -> Student:
        """Let a student join, as soon as the limit of joins allows it."""
        while (reply := await self.http.post(f"/{PREFIX}/{self.code}/join", json={})).status_code == 429:
            await asyncio.sleep(0.1)
        return Student(reply.raise_for_status().json()["student"])


def part(first: int, *events: dict[str, Any]) -> dict[str, Any]:
    """Return a message with events of run 1, the first of which has that number."""
    return {"type": "events", "run": 1, "from": first, "events": list(events)}


def lateness(sent: dict[int, float], students: Sequence[Student]) -> list[float]:
    """Return the sorted seconds between the sending of each message and its arrival at each student."""
    return sorted(when - sent[number] for one in students for number, when in one.seen if number in sent)


async def lesson(
    url: str, students: int, messages: int, gap_s: float
) -> tuple[dict[int, float], list[Student]]:
    """Share ``messages`` parts of a run, ``gap_s`` apart; return when each was sent, and the students."""
    teacher = Teacher(url)
    await teacher.open()
    await teacher.tell({"type": "begin", "run": 1})
    everybody = [await teacher.student() for _ in range(students)]
    watching = [asyncio.create_task(one.watch(url, teacher.code)) for one in everybody]
    while (await teacher.tell())["students"] < students:
        await asyncio.sleep(0.1)
    sent: dict[int, float] = {}
    for number in range(messages):
        sent[number + 2] = time.perf_counter()
        await teacher.tell(part(number, {"type": "round", "padding": "x" * 2000}))
        await asyncio.sleep(gap_s)
    await teacher.post("end", {})
    await asyncio.gather(*watching)
    await teacher.http.aclose()
    return sent, everybody


def main() -> None:
    parser = argparse.ArgumentParser(description="A class of many students on a running app.")
    parser.add_argument("url")
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--gap", type=float, default=0.25, help="seconds between two messages")
    settings = parser.parse_args()
    sent, everybody = asyncio.run(lesson(settings.url, settings.students, settings.messages, settings.gap))
    late = lateness(sent, everybody)
    complete = sum(
        [number for number, _ in one.seen][1:-1] == list(range(2, settings.messages + 2)) for one in everybody
    )
    figures = {f"p{share}_ms": round(1000 * late[len(late) * share // 100]) for share in (50, 95, 99)}
    print(json.dumps({"students": settings.students, "complete": complete, **figures}))


if __name__ == "__main__":
    main()
