"""The program's start, its end by a signal or a lost device, restarts by a supervisor, and its health."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from helpers.http_visitor import HttpVisitor
from helpers.pages import MOUNTED, SKIP_PREDICTION
from helpers.stand_in import StandIn
from helpers.visitor import run_to_end
from helpers.waiting import PATIENCE_S, until
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdemo.cli.main import exit_status, parsed
from specdemo.cli.serve import check_settings, serve
from specdemo.records.limits import UserError
from specdemo.service.hosting import Hosting
from specdemo.service.service import RESTARTING, State
from specdemo.ui import serving
from specdemo.ui.http.own_routes import HEALTH_SENTENCES, health_route
from specdemo.ui.serving import LOST_DEVICE, serve_until_ended

ROOT = Path(__file__).parents[2]
RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 8}


class Served:
    """A page and a service in one that record how they are closed."""

    def __init__(self) -> None:
        self.lost = False
        self.ended: list[Any] = []
        self._queue = SimpleNamespace(pending_event_ids_session={"left": set()})

    def launch(self, prevent_thread_lock: bool, quiet: bool, **options: Any) -> None:
        assert prevent_thread_lock and quiet
        if options.get("taken"):
            raise OSError("Cannot find empty port in range: 7860-7959.")
        self.local_url = "http://127.0.0.1:7/"
        self.server = SimpleNamespace(servers=[SimpleNamespace(sockets=options.get("sockets", []))])

    def close(self, *within_s: float, verbose: bool = True) -> None:
        self.ended.append(within_s)

    def serve(self, **options: Any) -> int:
        return serve_until_ended(self, self, options)  # type: ignore[arg-type]


@pytest.fixture
def served(monkeypatch: Any) -> Iterator[Served]:
    monkeypatch.setattr(serving, "LAST_WORDS_S", 0.0)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Served()
    for number, handler in before.items():
        signal.signal(number, handler)


def soon(action: Callable[[], None]) -> None:
    threading.Timer(0.15, action).start()


def test_a_terminated_program_lets_the_run_finish_then_closes_and_a_second_signal_ends_it(served, capsys):
    soon(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert served.serve() == 0
    assert served.ended == [(serving.FINISH_S,), ()], "first the service, then the page"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert capsys.readouterr().out == "Open http://127.0.0.1:7/ in a browser; Ctrl-C ends the page.\n"


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "http://10.0.0.5"), ("::", "http://[fd00::5]"), ("127.0.0.1", None)]
)
def test_a_page_that_listens_on_all_addresses_prints_those_for_other_machines(
    served, capsys, monkeypatch, host, address
):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    known = ("127.0.1.1", "fe80::1%eth0", "fd00::5" if ":" in host else "10.0.0.5")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [(family, 0, 0, "", (one, 0)) for one in known])
    served.lost = True
    with socket.create_server((host, 0), family=family) as listener:
        served.serve(sockets=[listener])
        port = listener.getsockname()[1]
    _, *others = capsys.readouterr().out.splitlines()
    if address is None:
        assert not others
    else:
        (line,) = others
        assert line.startswith("Other machines can reach the page at ") and f"{address}:{port}" in line
        assert "127.0.1.1" not in line and "fe80" not in line


def test_the_page_closes_after_the_last_events_are_delivered(served, monkeypatch):
    monkeypatch.setattr(serving, "LAST_WORDS_S", PATIENCE_S)
    pending = served._queue.pending_event_ids_session["reading"] = {"error"}

    def deliver() -> None:
        served.ended.append("delivered")
        pending.clear()

    served.lost = True
    close = served.close
    served.close = lambda *within_s, **options: (close(*within_s), soon(deliver) if within_s else None)
    assert served.serve() == LOST_DEVICE
    assert served.ended == [(serving.FINISH_S,), "delivered", ()]


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_an_interrupt_ends_the_program_at_once_even_if_the_shell_ignores_it(served, before):
    signal.signal(signal.SIGINT, before)
    soon(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert exit_status(lambda: served.serve()) == 130
    assert served.ended == [(0.0,), ()]


def test_a_missing_free_port_is_reported(served):
    with pytest.raises(UserError, match=r"^The page cannot be served: Cannot find empty port"):
        served.serve(taken=True)


SAME = (pytest.param(host, marks=pytest.mark.slow) for host in ("::1", "[::1]", "localhost", "0.0.0.0"))


@pytest.mark.parametrize("host", ["::", "0", *SAME])
def test_the_page_starts_at_every_kind_of_address(host, served, monkeypatch, capsys):
    if ":" in host and not has_ipv6():
        pytest.skip("no IPv6 on this machine")
    service = StandIn()
    service.load = service.close = lambda *_: None  # type: ignore[attr-defined]
    service.lost = False  # type: ignore[attr-defined]
    monkeypatch.setattr(Hosting, "service", lambda *_: service)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    replies: list[int] = []
    called = "[::1]" if ":" in host else "127.0.0.1"

    def visit() -> None:
        until(lambda: "Open http://" in capsys.readouterr().out)
        replies.append(httpx.get(f"http://{called}:{port}/config").status_code)
        os.kill(os.getpid(), signal.SIGTERM)

    options = parsed(["serve", "--host", host, "--port", str(port), "--only-pair"])
    check_settings(options)
    visitor = threading.Thread(target=visit, daemon=True)
    visitor.start()
    assert serve(options) == 0
    visitor.join()
    assert replies[-1] == 200


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_health_is_200_when_ready_and_503_otherwise():
    service = Served()
    client = TestClient(Starlette(routes=[health_route(service)]))  # type: ignore[arg-type]
    for state in State:
        service.state = state  # type: ignore[attr-defined]
        ready = state is State.READY
        reply = client.get("/health")
        assert reply.json() == ({"status": "ready"} if ready else {"error": HEALTH_SENTENCES[state]})
        assert client.head("/health").status_code == reply.status_code == (200 if ready else 503)


APP = """
import runpy, sys
from pathlib import Path
sys.path[:0] = ["tests"]
import torch
from helpers.tiny import tiny_pair
from specdemo.pairs import calibrate
from specdemo.service import hosting, jobs, service

flag, lost, new_zeros = Path(sys.argv.pop()), [], torch.Tensor.new_zeros

def allocated(*args, **options):
    if flag.exists():
        flag.unlink()
        lost.append(True)
    if lost:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    return new_zeros(*args, **options)

torch.set_num_threads(1)
torch.Tensor.new_zeros = allocated
calibrate.REPEATS = 1
jobs.devices_answer = lambda: not lost
local = service.local_service
hosting.Hosting.service = lambda self, offer: local(lambda *_: tiny_pair(), offer, self.bounds)
runpy.run_path("app.py", run_name="__main__")
"""
"""The app around tiny models, whose device is lost when a file appears."""


START_S = 5 * PATIENCE_S


class Supervisor:
    """Restarts the app whenever it ends, as ``Restart=always`` does."""

    def __init__(self, flag: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        self.flag = flag
        self.statuses: list[int] = []
        self._command = [sys.executable, "-c", APP, "--port", port, "--only-pair", str(flag)]
        self._over = False
        self._thread = threading.Thread(target=self._supervise)
        self._thread.start()

    def _supervise(self) -> None:
        while not self._over:
            options = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "cwd": ROOT}
            # Not files, which may not grow in some tests.
            options |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(self._command, **options)
            self.statuses.append(self.process.wait())

    def health(self) -> int:
        try:
            return httpx.get(f"{self.url}/health").status_code
        except httpx.TransportError:
            return 0

    def stop(self) -> None:
        self._over = True
        while self._thread.is_alive():
            self.process.kill()
            self._thread.join(0.1)


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: Any) -> Iterator[Supervisor]:
    one = Supervisor(tmp_path_factory.mktemp("app") / "lost")
    yield one
    one.stop()


@pytest.fixture
def app(supervisor: Supervisor) -> Supervisor:
    until(lambda: supervisor.health() == 200, START_S)
    return supervisor


def outcome(url: str) -> dict[str, Any]:
    session, visitor = uuid.uuid4().hex, HttpVisitor(url)
    with closing(visitor.http):
        number = visitor.join("run", RUN, session)
        return visitor.outcomes(session, 1)[number]


@pytest.mark.slow
def test_after_a_lost_device_the_browser_shows_an_error_and_runs_on_the_restarted_app(app, patient_page):
    page = patient_page()
    page.add_init_script(SKIP_PREDICTION)
    page.goto(app.url)
    page.wait_for_selector(MOUNTED, state="attached")
    assert outcome(app.url)["success"]
    app.flag.touch()
    page.click("#run")
    page.wait_for_selector(".sd[data-state=error]")
    error = page.inner_text("[role=alert][data-role=error]")
    assert error.startswith("The device failed (CUDA error: an illegal memory access")
    until(lambda: app.statuses == [LOST_DEVICE] and app.health() == 200, START_S)
    page.reload()
    page.wait_for_selector(MOUNTED, state="attached")
    run_to_end(page)


ENDINGS = [(signal.SIGKILL, -signal.SIGKILL, ""), (signal.SIGINT, 130, RESTARTING), (signal.SIGTERM, 0, "")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "error"), ENDINGS)
def test_an_app_ended_in_the_middle_of_a_run_starts_again_even_if_no_file_can_be_written(
    app, number, status, error
):
    resource.prlimit(app.process.pid, resource.RLIMIT_FSIZE, (0, 0))
    assert outcome(app.url)["success"]
    visitor, session, ended = HttpVisitor(app.url), uuid.uuid4().hex, len(app.statuses)
    visitor.join("run", RUN | {"max_new_tokens": 400}, session)
    signalled, message = False, {}
    with closing(visitor.http), suppress(httpx.TransportError):
        for message in visitor.messages(session):
            if "round" in str(message.get("output")) and not signalled:
                signalled = True
                app.process.send_signal(number)
                if number == signal.SIGTERM:
                    until(lambda: app.health() == 503)
                    assert outcome(app.url)["output"]["error"] == RESTARTING
            if message["msg"] == "process_completed":
                break
    until(lambda: len(app.statuses) > ended)
    assert signalled and app.statuses[ended] == status and error in str(message)
    if number == signal.SIGTERM:
        last = json.loads(message["output"]["data"][0].splitlines()[-1])
        assert message["success"] and (last["type"], last["finish"]) == ("end", "length")
