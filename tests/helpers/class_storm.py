"""A class of many students as HTTP clients that record when each message arrives.

In ``tests``, ``python -m helpers.class_storm URL --students 200`` opens a class on a running app and prints
how late what the teacher shows arrives. Students speak HTTP/1.1 over plain sockets: two hundred of them must
cost less than the server they measure.
"""

import argparse
import asyncio
import ctypes
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from helpers.http_visitor import LIMITS
from helpers.rooms import BEGIN, ROUND, part
from helpers.waiting import PATIENCE_S

PREFIX = "specdemo-class"
SO_ATTACH_FILTER = 26  # of Linux; Python has no name for it


@dataclass
class Student:
    """One reader of the class at ``url``."""

    url: str
    token: str
    seen: list[tuple[int, float]] = field(default_factory=list)  # id and time.perf_counter() of each message
    types: list[str] = field(default_factory=list)

    async def watch(self, vanishing: asyncio.Event | None = None) -> None:
        """Read until the class ends or the task is cancelled, starting after the last message seen.

        Once ``vanishing`` is set, no packet arrives any more.
        """
        parts = urlsplit(self.url)
        assert parts.hostname and parts.port
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**23)
        if vanishing:
            own = writer.get_extra_info("socket")
            asyncio.create_task(vanishing.wait()).add_done_callback(lambda _: drop_packets(own))
        after = self.seen[-1][0] if self.seen else 0
        path = f"{parts.path}/events?student={self.token}&after={after}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        try:
            while self.types[-1:] != ["end"] and (line := await reader.readline()):
                if line.startswith(b"data: "):
                    self._take(line[6:])
        finally:
            writer.close()

    def _take(self, data: bytes) -> None:
        # Its number and type stand in front; to parse the rest two hundred times would be most of the work.
        now = time.perf_counter()
        kind = data[data.index(b'"type":"') + 8 :].partition(b'"')[0].decode()
        number = int(data[6:].partition(b",")[0]) if data.startswith(b'{"id":') else 0
        if kind != "here":
            self.seen.append((number, now))
            self.types.append(kind)


def drop_packets(connection: Any) -> None:
    """Make the kernel drop what arrives, before it is acknowledged."""
    keep_nothing = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # return 0
    program = struct.pack("HL", 1, ctypes.addressof(keep_nothing))
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


class Teacher:
    """A teacher who opens a class and ends it; the paths of ``http`` are those of the class."""

    http: httpx.AsyncClient
    code: str
    secret: dict[str, str]

    def __init__(self, url: str):
        self._url = url

    async def __aenter__(self) -> "Teacher":
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            room = (
                (await http.post(f"{self._url}{PREFIX}", json={"address": self._url}))
                .raise_for_status()
                .json()
            )
        self.code, self.secret = room["code"], {"x-class-secret": room["secret"]}
        base = f"{self._url}{PREFIX}/{self.code}"
        self.http = httpx.AsyncClient(base_url=base, timeout=PATIENCE_S, limits=LIMITS)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.http.post("end", json={}, headers=self.secret)
        await self.http.aclose()

    async def tell(self, *messages: dict[str, Any]) -> dict[str, Any]:
        post = {"window": 1, "first": True, "messages": messages}
        return (await self.http.post("teach", json=post, headers=self.secret)).raise_for_status().json()

    async def student(self) -> Student:
        """Let a student join, as soon as the limit of joins allows it."""
        while (reply := await self.http.post("join", json={})).status_code == 429:
            await asyncio.sleep(0.1)
        token = reply.raise_for_status().json()["student"]
        return Student(str(self.http.base_url).rstrip("/"), token)


async def lesson(
    url: str, students: int, messages: int, gap_s: float
) -> tuple[dict[int, float], list[Student]]:
    """Share ``messages`` parts of a run, ``gap_s`` apart; return when each was sent, and the students."""
    async with Teacher(url) as teacher:
        await teacher.tell(BEGIN)
        everybody = [await teacher.student() for _ in range(students)]
        watching = [asyncio.create_task(one.watch()) for one in everybody]
        while (await teacher.tell())["students"] < students:
            await asyncio.sleep(0.1)
        sent: dict[int, float] = {}
        for number in range(messages):
            sent[number + 2] = time.perf_counter()
            await teacher.tell(part(number, {**ROUND, "padding": "x" * 2000}))
            await asyncio.sleep(gap_s)
    await asyncio.gather(*watching)
    return sent, everybody


def main() -> None:
    parser = argparse.ArgumentParser(description="A class of many students on a running app.")
    parser.add_argument("url")
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--gap", type=float, default=0.25, help="seconds between two messages")
    settings = parser.parse_args()
    sent, everybody = asyncio.run(lesson(settings.url, settings.students, settings.messages, settings.gap))
    late = sorted(when - sent[number] for one in everybody for number, when in one.seen if number in sent)
    complete = sum(len(one.seen) == settings.messages + 2 for one in everybody)
    figures = {f"p{share}_ms": round(1000 * late[len(late) * share // 100]) for share in (50, 95, 99)}
    print(json.dumps({"students": settings.students, "complete": complete, **figures}))


if __name__ == "__main__":
    main()
