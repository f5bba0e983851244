"""One hostile client: the page around tiny models stays fast and available for others."""

import json
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.asking import HAS_MCP, MCP, tool_call
from helpers.http_visitor import API, PLAIN, HttpVisitor, served
from helpers.tiny import service_of, tiny_pair
from helpers.waiting import PATIENCE_S, until

from specdemo.classroom.rooms import Rooms
from specdemo.service.service import State
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.http import own_routes, posts
from specdemo.ui.http.class_routes import PREFIX, class_routes
from specdemo.ui.http.own_routes import health_route
from specdemo.ui.page import build_page, launch_options

SAMPLES = 11
RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 64}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    service = service_of(tiny_pair())
    service.load()
    until(lambda: service.state is State.READY)
    page = build_page(service)
    options = launch_options([health_route(service), *class_routes(Rooms())])
    options = with_mcp(page, options) if HAS_MCP else options
    yield from served(page, **options)


@contextmanager
def repeating(work: Callable[[], Any]) -> Iterator[None]:
    """Call ``work`` again and again on a thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    yield
    over.set()
    thread.join()


def health_s(url: str) -> float:
    """Return the median time of a reply."""
    took = []
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        for _ in range(SAMPLES):
            began = time.perf_counter()
            assert http.get("/health").json() == {"status": "ready"}
            took.append(time.perf_counter() - began)
            time.sleep(0.02)
    return statistics.median(took)


def lists(size: int) -> bytes:
    return b"[" + b"[]," * (size // 3) + b"[]]"


TEACH = f"/{PREFIX}/CODE/teach"
BODIES = {
    "a job": (f"{API}/queue/join", b'{"data":%s}' % lists(199_000), 400),
    "a value": (f"{API}/call/v2/run", b'{"prompt":%s}' % lists(3 * 7_000), 200),
    "a tool": (f"{API}/mcp/", json.dumps(tool_call({"prompt": [[]] * 7_000})).encode(), 200),
    "a class": (TEACH, b'{"messages":%s}' % lists(3 * 29_000), 400),
    "a file": ("/specdemo-traces", lists(3 * 499_000), 400),
}
"""The path, the body and the reply's status of requests with as many lists as are accepted, or more."""


@pytest.fixture
def post(url: str) -> Iterator[Callable[[str], httpx.Response]]:
    """Yield ``post(name)``, which posts one of ``BODIES``; the teacher of an open class posts it."""
    room = PLAIN.post(f"{url}{PREFIX}", json={"address": url}).json()
    headers = MCP | {"x-class-secret": room["secret"]}
    with httpx.Client(base_url=url, timeout=2 * PATIENCE_S, headers=headers) as http:
        yield lambda name: http.post(BODIES[name][0].replace("CODE", room["code"]), content=BODIES[name][1])
        http.post(f"/{PREFIX}/{room['code']}/end", json={}).raise_for_status()


def shared_s(url: str) -> float:
    """Return the median time of a reply while another thread of this process computes."""
    with repeating(lambda: sum(range(10_000))):
        return health_s(url)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BODIES if HAS_MCP or name != "a tool"])
def test_health_is_quick_beside_a_client_that_posts(url, post, name):
    statuses, post_s = set(), []

    def timed() -> None:
        began = time.perf_counter()
        statuses.add(post(name).status_code)
        post_s.append(time.perf_counter() - began)

    before_s = shared_s(url)
    with repeating(timed):
        until(lambda: post_s)
        took_s = health_s(url)
    assert took_s < statistics.median(post_s) / 2 + 30 * max(before_s, shared_s(url))
    assert statuses == {BODIES[name][2]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a job", "a class", "a file"])
def test_health_is_answered_while_a_large_body_is_checked(url, post, name, monkeypatch):
    begun, answered = threading.Event(), threading.Event()

    def held(_body: bytes, _max_values: int) -> None:
        begun.set()
        answered.wait(PATIENCE_S)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        for module in (posts, own_routes):
            patch.setattr(module, "require_few_values", held)
        posted = pool.submit(post, name)
        assert begun.wait(PATIENCE_S)
        assert httpx.get(f"{url}health", timeout=PATIENCE_S / 2).json() == {"status": "ready"}
        assert not posted.done()
        answered.set()


def run_to_end(visitor: HttpVisitor) -> None:
    session = uuid.uuid4().hex
    number = visitor.join("run", RUN, session)
    assert visitor.outcomes(session, 1)[number]["success"]


def test_pressing_stop_many_times_affects_nobody(url):
    visitor, session = HttpVisitor(url), uuid.uuid4().hex
    stops = [number for name, number in visitor.numbers.items() if name.startswith("stop")]
    number = visitor.join("run", RUN | {"max_new_tokens": 400}, session)
    for stop in stops * 20:
        reply = visitor.post("run/predict", {"fn_index": stop, "data": [], "session_hash": session})
        assert reply.status_code == 200, reply.text
    assert number in visitor.outcomes(session, 1)
    run_to_end(visitor)
    visitor.http.close()


def resident_mb() -> float:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_a_file_of_200_megabytes_is_refused_and_not_kept(url):
    before = resident_mb()
    parts = (b"[" * 1_000_000 for _ in range(200))
    try:
        status = httpx.post(f"{url}specdemo-traces", content=parts, timeout=PATIENCE_S).status_code
    except httpx.TransportError:  # the server hung up before everything was sent
        status = 413
    assert status == 413
    assert resident_mb() < before + 64
    run_to_end(HttpVisitor(url))
