"""Many visitors at once on a real server, and what they saw: for the tests, and by hand with the real pair.

In ``tests``, ``python -m helpers.storm --visitors 50 --runs 500`` starts the app on the embedded pair and
prints waits, speed before and after, and memory; it runs where the tests do.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
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
    """What became of one visit.

    Attributes:
        ids: What the speculative lane wrote; None where it was refused.
        refusal: The sentence instead.
        wait_s: From the request to the first event of the run.
        total_s: From the request to its end.
        speculative_s, baseline_s: Both decoders' own seconds per token.
    """

    ids: tuple[int, ...] | None
    refusal: str | None
    wait_s: float
    total_s: float
    speculative_s: float = 0.0
    baseline_s: float = 0.0


def visit(visitor: HttpVisitor, **values: Any) -> Outcome:
    """One run from request to end, as the page asks for it."""
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
    totals = events[-1]["totals"]
    return Outcome(
        tuple(emitted(events, SPECULATIVE)),
        None,
        (first or ended) - began,
        ended - began,
        1 / totals["tokens_per_s"],
        1 / totals["baseline_tokens_per_s"],
    )


def storm(url: str, requests: list[dict[str, Any]]) -> list[Outcome]:
    """All of them at once, each over a connection of its own; in the order of ``requests``."""
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
    """Different prompts, half of them sampled with seeds of their own."""
    return [
        {"prompt": PROMPTS[place % len(PROMPTS)], "mode": "raw", "max_new_tokens": tokens, "seed": place}
        | ({"temperature": 0.8, "rule": "rejection"} if place % 2 else {})
        for place in range(count)
    ]


def resident_mb(process: int | str = "self") -> float:
    """Memory of a process that is not paged out."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no memory told of process {process}")


def main() -> None:
    """The storm on the embedded pair, in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--port", type=int, default=7899)
    asked = parser.parse_args()
    url = f"http://127.0.0.1:{asked.port}"
    app = subprocess.Popen([sys.executable, "app.py", "--port", str(asked.port), "--only-pair"])
    try:
        _report(url, asked, app.pid)
    finally:
        app.terminate()
        app.wait()


def _report(url: str, asked: argparse.Namespace, process: int) -> None:
    visitor = _when_up(url)
    requests = requests_of(asked.visitors, asked.tokens)
    alone = [visit(visitor, **request) for request in requests]
    before = _speed(visitor, asked.tokens)
    print(f"before: {before}; {resident_mb(process):.0f} MB", flush=True)
    outcomes = storm(url, requests)
    right = [o for o, one in zip(outcomes, alone, strict=True) if o.ids is not None and o.ids == one.ids]
    refused = [o for o in outcomes if o.refusal]
    waits = sorted(o.wait_s for o in right)
    p95 = waits[int(0.95 * (len(waits) - 1))]
    wrong = len(outcomes) - len(right) - len(refused)
    print(f"storm of {len(outcomes)}: {len(right)} right, {len(refused)} refused, {wrong} wrong")
    print(f"wait: median {statistics.median(waits):.1f} s, 95th percentile {p95:.1f} s")
    print(f"a refusal took {max((o.total_s for o in refused), default=0):.2f} s at most")
    print(f"the refusals: {sorted({o.refusal for o in refused})}")
    print(f"after: {_speed(visitor, asked.tokens)}", flush=True)
    for run in range(asked.runs):
        if run % 50 == 0:
            print(f"run {run}: {resident_mb(process):.0f} MB", flush=True)
        assert visit(visitor, **requests[run % len(requests)]).ids == alone[run % len(requests)].ids
    print(f"run {asked.runs}: {resident_mb(process):.0f} MB; {_speed(visitor, asked.tokens)}")


def _speed(visitor: HttpVisitor, tokens: int) -> str:
    """Both decoders on one prompt, medians of seven."""
    runs = [visit(visitor, prompt=PROMPTS[1], mode="raw", max_new_tokens=4 * tokens) for _ in range(7)]
    spec = 1 / statistics.median(run.speculative_s for run in runs)
    base = 1 / statistics.median(run.baseline_s for run in runs)
    return f"{spec:.1f} tokens/s with drafts, {base:.1f} alone"


def _when_up(url: str) -> HttpVisitor:
    for _ in range(120):
        try:
            return HttpVisitor(url)
        except Exception:
            time.sleep(1)
    raise TimeoutError(url)


if __name__ == "__main__":
    main()
