"""The visitor whose share a job counts towards, and jobs that nobody reads, on a real server."""

import asyncio
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from gradio.context import LocalContext
from helpers.http_visitor import HttpVisitor, request_from
from helpers.waiting import PATIENCE_S, until
from starlette.testclient import TestClient

from specdemo.records.limits import UserError
from specdemo.service.fairness import Visitor
from specdemo.service.queue import Bounds
from specdemo.service.service import local_service
from specdemo.ui import streams
from specdemo.ui.http import visitors
from specdemo.ui.http.visitors import Loopback, caller_gone, visitor_of
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.serving import notice_lost_readers
from specdemo.ui.streams import PageJob

RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 4}
SHARE = "Each address may have one job of each kind and 3 jobs in all"


class Hall:
    """Jobs that hold the device until the test releases them."""

    def __init__(self) -> None:
        self.service = local_service(lambda name, _progress: name, None, Bounds(max_waiting=8), self._perform)  # type: ignore[arg-type, return-value]
        self._events, self.service.events = self.service.events, self._counted  # type: ignore[method-assign]
        self._requests: set[object] = set()
        self.open = threading.Event()
        self.payload = ""

    @property
    def taken(self) -> int:
        """The number of requests that wait or run."""
        return len(self._requests)

    def _counted(self, *request: Any) -> Iterator[Any]:
        self._requests.add(one := object())
        try:
            yield from self._events(*request)
        finally:
            self._requests.remove(one)

    def _perform(self, _pair: Any, _request: Any, stop: Any) -> Iterator[Any]:
        rounds = 0
        while not stop() and not self.open.wait(0.01):
            yield {"type": "round", "number": (rounds := rounds + 1), "payload": self.payload}


@pytest.fixture(scope="module")
def running_hall() -> Iterator[tuple[Hall, str]]:
    """Yield the hall and the address of a page around it that trusts no proxy."""
    hall = Hall()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(visitors.TRUSTED, "")
        page = build_page(hall.service)
        _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
        notice_lost_readers(page)
        yield hall, address
        hall.open.set()
        page.close()


@pytest.fixture
def hall(running_hall: tuple[Hall, str]) -> Iterator[Hall]:
    hall, _ = running_hall
    hall.open.clear()
    yield hall
    hall.open.set()
    until(lambda: hall.taken == 0)


@pytest.fixture
def visitor(running_hall: tuple[Hall, str]) -> HttpVisitor:
    return HttpVisitor(running_hall[1])


@pytest.fixture
def _impatient(monkeypatch: Any) -> None:
    monkeypatch.setattr(streams, "UNREAD_S", 0.4)
    monkeypatch.setattr("specdemo.service.queue.POLL_S", 0.1)


def called(visitor: HttpVisitor, **headers: str) -> str:
    """Ask for a run without a session; return the address of the answer, unread."""
    body = {"data": visitor.values("run", RUN)}
    reply = visitor.http.post("/gradio_api/call/run", json=body, headers=headers)
    return f"/gradio_api/call/run/{reply.json()['event_id']}"


@pytest.mark.slow
def test_unread_calls_leave_room_for_others(hall, visitor):
    unread = [called(visitor, **{"X-Forwarded-For": f"10.0.0.{number}"}) for number in range(25)]
    session = uuid.uuid4().hex
    number = visitor.join("run", RUN, session)
    until(lambda: hall.taken == 2)
    event, reported = visitor.answer(unread[-1])
    assert event == "error" and reported["error"].startswith(SHARE)
    hall.open.set()
    assert visitor.outcomes(session, 1)[number]["success"]


@pytest.mark.parametrize("begun", [True, False])
def test_a_visitor_who_disconnects_frees_the_device(hall, visitor, monkeypatch, begun):
    monkeypatch.setattr(streams, "UNREAD_S", 10 * PATIENCE_S)
    session = uuid.uuid4().hex
    visitor.join("run", RUN, session)
    with closing(visitor.messages(session)) as messages:
        assert any(not begun or "round" in str(message.get("output")) for message in messages)
    until(lambda: hall.taken == 0)


@pytest.mark.usefixtures("_impatient")
def test_unread_jobs_end_whether_or_not_they_have_begun_and_a_job_that_is_read_stays(
    hall, visitor, monkeypatch
):
    monkeypatch.setattr(streams, "UNREAD_S", PATIENCE_S)
    sessions = [uuid.uuid4().hex for _ in range(3)]
    numbers = [visitor.join("run", RUN, session) for session in sessions]
    until(lambda: hall.taken == 3)
    monkeypatch.setattr(streams, "UNREAD_S", 0.4)
    until(lambda: hall.taken == 0)
    read = uuid.uuid4().hex
    stays = visitor.join("run", RUN, read)
    closing = threading.Timer(0.8, hall.open.set)
    closing.start()
    assert visitor.outcomes(read, 1)[stays]["success"]
    closing.join()
    for session, number in zip(sessions, numbers, strict=True):
        ended = visitor.outcomes(session, 1)[number]
        assert not ended["success"] and ended["output"]["error"] == streams.UNREAD


@pytest.mark.slow
@pytest.mark.usefixtures("_impatient")
def test_a_visitor_who_stops_reading_loses_the_device_soon(hall, visitor, monkeypatch):
    monkeypatch.setattr(hall, "payload", "x" * 20_000)
    session = uuid.uuid4().hex
    visitor.join("run", RUN, session)
    with visitor.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
        lines = stream.iter_lines()
        while "round" not in next(lines):
            pass
        until(lambda: hall.taken == 0)


class Messages:
    """The unread messages of a job, on a clock of their own."""

    def __init__(self, unread: int = 2) -> None:
        self.unread, self.now = unread, 0.0
        self.job = PageJob(Visitor(""), lambda: False, lambda: self.unread, lambda: self.now)

    def after(self, seconds: float, fetched: int = 0) -> bool:
        """Return whether the job ends after so many more seconds and one more update."""
        self.now += seconds
        self.unread = max(0, self.unread - fetched) + 1
        try:
            return not self.job.due({"type": "start"})
        except UserError:
            return True


def test_a_job_ends_after_ten_seconds_without_a_reader():
    never_there, slow_job, stopped, slow_reader = Messages(), Messages(), Messages(), Messages(50)
    assert [never_there.after(1.0) for _ in range(12)].index(True) in (10, 11)
    assert not any(slow_job.after(30.0, fetched=10) for _ in range(5))
    assert not any(stopped.after(0.2, fetched=1) for _ in range(100))
    assert [stopped.after(0.2) for _ in range(60)].index(True) == pytest.approx(50, abs=3)
    assert not any(slow_reader.after(4.0, fetched=4) for _ in range(10))
    assert streams.FRESH < 5


def test_a_visitor_is_identified_by_session_or_address():
    assert visitor_of(request_from("10.0.0.1", "abc")) == Visitor("10.0.0.1", "abc")
    assert visitor_of(request_from("10.0.0.1", None)) == Visitor("10.0.0.1")
    assert visitor_of(request_from(None, None)) == Visitor("")
    assert visitor_of(request_from("10.0.0.1", "abc", **{visitors._LOOPED: True})) == Visitor("10.0.0.1")
    assert not caller_gone(request_from("10.0.0.1", "abc"))()
    assert caller_gone(request_from("10.0.0.1", "abc", **{visitors._LOOPED: None}))(), "before it arrived"
    token = LocalContext.event_id.set("abc")
    assert visitor_of(request_from("10.0.0.1", "abc")) == Visitor("10.0.0.1"), "made up by Gradio"
    LocalContext.event_id.reset(token)


async def told_client(scope: Any, receive: Any, send: Any) -> None:
    """An app that replies with its caller's address and the header for calls to itself."""
    headers = dict(scope["headers"])
    body = f"{scope['client'][0]}|{headers[b'x-specdemo-caller'].decode()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def test_a_request_to_itself_belongs_to_its_caller():
    app = Loopback(told_client)
    outside, server = (TestClient(app, client=(address, 1)) for address in ("10.0.0.7", "127.0.0.1"))
    address, _, signed = outside.get("/").text.partition("|")
    assert address == "10.0.0.7" and signed.endswith(" 10.0.0.7")
    assert server.get("/", headers={"x-specdemo-caller": signed}).text.startswith("10.0.0.7|")
    for forged in ("10.0.0.9", "x 10.0.0.9", " 10.0.0.9", "é 10.0.0.9"):
        reply = outside.get("/", headers={"x-specdemo-caller": forged.encode()})
        address, _, header = reply.text.partition("|")
        assert address == "10.0.0.7" and header != forged and header.endswith(" 10.0.0.7")


def test_forwarded_addresses_count_only_from_trusted_proxies(monkeypatch):
    for trusted, peer, client in (
        ("", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "9.9.9.9"),
        ("127.0.0.1", "10.1.2.3", "10.1.2.3"),
        ("127.0.0.1, 10.0.0.0/8", "10.1.2.3", "9.9.9.9"),
    ):
        monkeypatch.setenv(visitors.TRUSTED, trusted)
        config = uvicorn.Config(Loopback(told_client))
        config.load()
        asking = TestClient(config.loaded_app, client=(peer, 1))
        # The visitor's own value precedes the one that the proxy added.
        forwarded = asking.get("/", headers={"X-Forwarded-For": "8.8.8.8, 9.9.9.9"})
        assert forwarded.text.startswith(f"{client}|"), trusted


def test_an_idle_session_is_forgotten_and_a_busy_one_is_kept(monkeypatch):
    monkeypatch.setattr(visitors, "LOOK_S", 0.01)
    monkeypatch.setattr(visitors, "KEPT_S", 0.02)
    sessions = ("idle", "busy")
    queue = SimpleNamespace(
        pending_messages_per_session=dict.fromkeys(sessions, "a run"),
        pending_event_ids_session={name: {name} for name in sessions},
        event_ids_to_events={"1": SimpleNamespace(session_hash="busy")},
    )
    states = SimpleNamespace(
        session_data=dict.fromkeys(sessions, "values"), time_last_used=dict.fromkeys(sessions, 0)
    )

    async def look() -> None:
        page = SimpleNamespace(_queue=queue, state_holder=states)
        task = asyncio.create_task(visitors.forget_idle_sessions(page))
        while "idle" in states.session_data:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # several more looks
        assert not task.done()
        task.cancel()

    asyncio.run(look())
    kept = (queue.pending_messages_per_session, queue.pending_event_ids_session, *vars(states).values())
    assert [set(one) for one in kept] == [{"busy"}] * 4
