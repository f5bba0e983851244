"""Many concurrent visitors on a real server, and the outcomes of their runs."""

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from helpers.http_visitor import HttpVisitor
from helpers.visitor import emitted

from specdemo.records.trace import SPECULATIVE

PROMPTS = (
    "The capital of France is",
    "Thank you for your email. I will get back to you",
    "def add(a, b):",
    "Once upon a time",
    "The recipe needs",
)


@dataclass(frozen=True)
class Outcome:
    ids: tuple[int, ...] | None  # what the speculative lane wrote; None if the run was refused
    refusal: str | None
    wait_s: float  # from the request to the first event of the run
    total_s: float  # from the request to the end of the run


def visit(visitor: HttpVisitor, **values: Any) -> Outcome:
    session, began = uuid.uuid4().hex, time.monotonic()
    visitor.join("run", values, session)
    first, text, error = 0.0, "", None
    for message in visitor.messages(session):
        output = message.get("output") or {}
        told = json.dumps(output.get("data"))
        if not first and '\\"type\\":\\"start\\"' in told:
            first = time.monotonic()
        if message["msg"] == "process_completed":
            error, text = output.get("error"), (output.get("data") or [""])[0]
            break
    ended = time.monotonic()
    if error:
        return Outcome(None, error, ended - began, ended - began)
    events = [json.loads(line) for line in text.splitlines()]
    return Outcome(tuple(emitted(events, SPECULATIVE)), None, (first or ended) - began, ended - began)


def storm(url: str, requests: list[dict[str, Any]]) -> list[Outcome]:
    """Run all requests at once, each over its own connection; return the outcomes in their order."""
    visitors = [HttpVisitor(url) for _ in requests]
    ready = threading.Barrier(len(requests))

    def come(visitor: HttpVisitor, request: dict[str, Any]) -> Outcome:
        ready.wait()
        return visit(visitor, **request)

    with ThreadPoolExecutor(len(requests)) as threads:
        outcomes = list(threads.map(come, visitors, requests))
    for visitor in visitors:
        visitor.http.close()
    return outcomes


def requests_of(count: int, tokens: int) -> list[dict[str, Any]]:
    """Return requests with different prompts; half of them are sampled, each with its own seed."""
    return [
        {"prompt": PROMPTS[place % len(PROMPTS)], "mode": "raw", "max_new_tokens": tokens, "seed": place}
        | ({"temperature": 0.8, "rule": "rejection"} if place % 2 else {})
        for place in range(count)
    ]
