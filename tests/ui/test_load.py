"""Many visitors at once on a real server with tiny models: each gets a right run or a clear refusal."""

import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from helpers.http_visitor import HttpVisitor
from helpers.storm import requests_of, storm, visit
from helpers.tiny import tiny_pair
from helpers.waiting import PATIENCE_S, until

from specdemo.service.queue import Bounds
from specdemo.service.service import Service, local_service
from specdemo.ui.page import build_page, launch_options

BOUNDS = Bounds(max_waiting=8, max_seconds=5.0)
FULL = re.compile(r"The queue is full: 8 jobs are waiting; please try again in about \d+ s\.")
DISPLACED = re.compile(r"The queue is full, and more than half of the jobs came from your address; .*\d+ s\.")


@pytest.fixture(scope="module")
def service() -> Service:
    pair = tiny_pair()
    return local_service(lambda _name, _progress: pair, bounds=BOUNDS)


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    page = build_page(service)
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    yield address
    page.close()


@pytest.fixture
def visitor(url: str) -> Iterator[HttpVisitor]:
    one = HttpVisitor(url)
    yield one
    one.http.close()


@contextmanager
def greedy_client(url: str, visitor: HttpVisitor) -> Iterator[list[str]]:
    """Ask for everything from another address, under a new session each time, and read nothing."""
    over, asked = threading.Event(), []
    data, number = visitor.values("run", requests_of(1, 400)[0]), visitor.numbers["run"]

    def ask() -> None:
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=url, transport=elsewhere, timeout=PATIENCE_S) as http:
            while not over.wait(0.02):
                asked.append(uuid.uuid4().hex)
                body = {"data": data, "fn_index": number, "session_hash": asked[-1]}
                http.post("/gradio_api/queue/join", json=body)

    asking = threading.Thread(target=ask)
    asking.start()
    yield asked
    over.set()
    asking.join()


@pytest.mark.slow
def test_fifty_visitors_next_to_a_greedy_client_get_a_right_run_or_a_clear_refusal(url, visitor, service):
    requests = requests_of(49, tokens=16)
    alone = [visit(visitor, **request).ids for request in requests]
    assert len(set(alone)) > 25, "seeds and prompts make different texts"

    def right(outcomes: list[Any]) -> int:
        """Return the number of right runs; the others must be clear refusals."""
        refused = [str(o.refusal) for o in outcomes if o.refusal]
        assert [words for words in refused if not (FULL.fullmatch(words) or DISPLACED.fullmatch(words))] == []
        count = sum(o.ids == ids for o, ids in zip(outcomes, alone, strict=True))
        assert count + len(refused) == len(requests)
        return count

    assert right(storm(url, requests)) >= 1 + BOUNDS.max_waiting
    with greedy_client(url, visitor) as asked:
        until(lambda: len(service._queue._of_visitors()) == 1 + BOUNDS.max_waiting)
        assert right(storm(url, requests)) >= BOUNDS.max_waiting // 2, "the greedy client has at most half"
        assert len(asked) > BOUNDS.max_waiting
    until(lambda: not service._queue._of_visitors())
    assert visit(visitor, **requests[0]).ids == alone[0]


@pytest.mark.slow
def test_many_runs_leave_no_threads_behind(visitor):
    def run() -> None:
        assert visit(visitor, prompt="abc", mode="raw", max_new_tokens=2).ids

    run()
    before = threading.active_count()
    for _ in range(30):
        run()
    assert threading.active_count() <= before + 2
