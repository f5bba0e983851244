"""Abuse every route of a running app, and sample the app's memory.

From the folder ``tests``, ``python -m helpers.soak --minutes 20 --log soak.csv`` starts the app around a tiny
pair and samples its memory. Each round of abuse is the same, so memory that is never given back shows as a
rising line.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from helpers.asking import ENDPOINTS, HAS_MCP, MCP, tool_call
from helpers.http_visitor import API, HttpVisitor
from helpers.storm import resident_mb
from helpers.tiny_runs import finished
from helpers.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
CLASS = "/specdemo-class"
APP = """
import runpy, sys
sys.path[:0] = ["tests"]
import torch
from helpers.tiny import tiny_pair
from specdemo.service import hosting, service as services
from specdemo.ui import page

def service(self, offer):
    def load(*_):
        return tiny_pair()
    return services.local_service(load, offer, self.bounds)

torch.set_num_threads(1)
page.MAX_SESSIONS = 20
hosting.Hosting.service = service
runpy.run_path("app.py", run_name="__main__")
"""
"""The app with its own options, around tiny models; every bound is reached within a minute."""


class Abuser:
    """One client; each method is a way to misuse the app once."""

    def __init__(self, url: str):
        self.url = url
        self.visitor = HttpVisitor(url)
        self.http = self.visitor.http
        self._trace = finished().to_json().encode()

    def close(self) -> None:
        self.http.close()

    def _run(self, tokens: int) -> dict[str, Any]:
        seed = uuid.uuid4().int % 2**32
        values = {"max_new_tokens": tokens, "seed": seed, "prompt": f"abc {seed}"}
        return ENDPOINTS["run"].good | values

    def read_run(self) -> None:
        session = uuid.uuid4().hex
        number = self.visitor.join("run", self._run(64), session)
        self.visitor.outcomes(session, 1)[number]

    def unread_run(self) -> None:
        self.visitor.join("run", self._run(64), uuid.uuid4().hex)

    def unread_call(self) -> None:
        """Ask for a run by its name and never fetch it."""
        self.visitor.post("call/run", {"data": self.visitor.values("run", self._run(64))})

    def abandoned_run(self) -> None:
        """Read the beginning of a run, and hang up."""
        session = uuid.uuid4().hex
        self.visitor.join("run", self._run(400), session)
        with closing(self.visitor.messages(session)) as messages:
            for message in messages:
                if "round" in str(message.get("output")) or message["msg"] == "process_completed":
                    return

    def refused_run(self) -> None:
        session = uuid.uuid4().hex
        number = self.visitor.join("run", self._run(64) | {"k": 99}, session)
        self.visitor.outcomes(session, 1)[number]

    def page_visit(self) -> None:
        session = uuid.uuid4().hex
        self.http.get("/")
        self.http.get("/config")
        number, count = self.visitor.events[0]
        body = {"fn_index": number, "data": [None] * count, "session_hash": session}
        self.visitor.post("run/event", body | {"event_data": {"address": "k=3"}})
        with self.http.stream("GET", f"{API}/heartbeat/{session}") as reply:
            next(reply.iter_lines())

    def called_tool(self) -> None:
        self.http.post(f"{API}/mcp/", json=self._tool(32), headers=MCP)

    def abandoned_tool(self) -> None:
        with self.http.stream("POST", f"{API}/mcp/", json=self._tool(400), headers=MCP):
            time.sleep(0.1)

    def _tool(self, tokens: int) -> dict[str, Any]:
        return tool_call({"prompt": "abc", "mode": "raw", "k": 2, "max_new_tokens": tokens})

    def held_class(self) -> None:
        """Open a class, join it, show it something, cut a stream, and end it or leave it."""
        room = self.http.post(CLASS, json={"address": self.url}).json()
        if "code" not in room:
            return
        at, teacher = f"{CLASS}/{room['code']}", {"x-class-secret": room["secret"]}
        events = [{"type": "round", "padding": "x" * 2_000}] * 20
        messages = [{"type": "begin", "run": 1}, {"type": "events", "run": 1, "from": 0, "events": events}]
        taught = {"window": 1, "first": True, "messages": messages}
        self.http.post(f"{at}/teach", json=taught, headers=teacher)
        for _ in range(3):
            student = self.http.post(f"{at}/join", json={}).json()["student"]
            with self.http.stream("GET", f"{at}/events?student={student}&after=0") as reply:
                next(reply.iter_lines())
        self.http.post(f"{at}/end", json={}, headers=teacher)

    def guessed_code(self) -> None:
        self.http.post(f"{CLASS}/ZZZZZ/join", json={})

    def good_trace(self) -> None:
        self.http.post("/specdemo-traces", content=self._trace)

    def bad_trace(self) -> None:
        self.http.post("/specdemo-lab/run", content=self._trace.replace(b'"version":', b'"version":9', 1))

    def large_bodies(self) -> None:
        self.http.post(f"{API}/queue/join", content=b'{"data":[%s0]}' % (b"[]," * 60_000))
        self.http.post("/specdemo-traces", content=b"[%s0]" % (b"[]," * 1_000_000))

    def stalled_upload(self) -> None:
        """Begin to send a file, and hang up."""
        parts = urlsplit(self.url)
        assert parts.hostname and parts.port
        head = f"POST /specdemo-traces HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: 9999999\r\n\r\n"
        with socket.create_connection((parts.hostname, parts.port)) as line:
            line.sendall(head.encode() + b"{" * 2_000_000)

    def theory(self) -> None:
        self.http.get("/specdemo-lab/run/five.json")


WAYS: dict[str, Callable[[Abuser], None]] = {
    name: way for name, way in vars(Abuser).items() if callable(way) and name[0] != "_" and name != "close"
}
if not HAS_MCP:
    del WAYS["called_tool"], WAYS["abandoned_tool"]


@contextmanager
def serving(log: Path, *options: str, port: int = 0) -> Iterator[tuple[str, int]]:
    """Start the app in a process of its own; yield its address and process id. Its output goes to ``log``."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    switches = ["--port", str(port), "--only-pair", *(["--mcp"] if HAS_MCP else []), *options]
    command = [sys.executable, "-c", APP, *switches]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        log.open("wb") as out,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out) as app,
    ):
        try:
            wait_for(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}", app.pid
        finally:
            app.terminate()
            app.wait(PATIENCE_S)


def wait_for(url: str) -> None:
    for _ in range(240):
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise TimeoutError(url)


def soak(url: str, process: int, seconds: float, every_s: float, gap_s: float) -> list[dict[str, float]]:
    """Abuse the app in every way in turn, ``gap_s`` apart; sample its memory every ``every_s``."""
    abuser, began, samples, acts = Abuser(url), time.monotonic(), [], 0
    with closing(abuser):
        while (passed := time.monotonic() - began) < seconds:
            if not samples or passed - samples[-1]["minute"] * 60 >= every_s:
                asked = time.monotonic()
                httpx.get(f"{url}/health").raise_for_status()
                health_s = time.monotonic() - asked
                sample = {"minute": passed / 60, "rss_mb": resident_mb(process), "health_s": health_s}
                samples.append(sample | {"acts": acts})
                print(json.dumps(samples[-1]), flush=True)
            for way in WAYS.values():
                way(abuser)
                acts += 1
                time.sleep(gap_s)
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description="Abuse the app around tiny models, and watch its memory.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, default=15, help="seconds between two samples")
    parser.add_argument("--gap", type=float, default=0.02, help="seconds between two acts")
    parser.add_argument("--log", type=Path, default=Path("/tmp/soak-app.log"), help="what the app prints")
    settings = parser.parse_args()
    with serving(settings.log) as (url, process):
        soak(url, process, settings.minutes * 60, settings.every, settings.gap)


if __name__ == "__main__":
    main()
