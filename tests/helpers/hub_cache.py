"""Checkpoints in the form of the hub: in its cache on disk, and served on this machine."""

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from huggingface_hub import constants

NEWEST = "f" * 40


def use_cache(monkeypatch, cache: Path) -> None:
    """Have the hub's library keep its files in ``cache``, and never go online."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def put(cache: Path, name: str, folder: Path, revision: str = NEWEST) -> None:
    """Store a checkpoint where the hub's library looks for it."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    shutil.copytree(folder, repository / "snapshots" / revision)


class Hub:
    """A hub with the given models."""

    def __init__(self) -> None:
        self.models: dict[str, Path] = {}
        self.broken: dict[str, int] = {}  # how many transfers of each file are cut in the middle
        self.gated: set[str] = set()  # models for which the hub requires an account
        self.asked: list[str] = []  # names of the files that were read

    def answer(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        path = request.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            name, kind, revision = match.groups()
            if self._admitted(request, name, revision):
                found = [
                    {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": file.name}
                    for file in sorted(self.models[name].iterdir())
                ]
                if kind == "revision":
                    found = {"id": name, "sha": NEWEST, "siblings": []}
                _send(request, 200, {"Content-Type": "application/json"}, json.dumps(found).encode())
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            name, revision, file = match.groups()
            if self._admitted(request, name, revision):
                self._file(request, self.models[name] / file, body)
        else:
            _send(request, 404, {}, b"")

    def _admitted(self, request: BaseHTTPRequestHandler, name: str, revision: str) -> bool:
        if name in self.gated:
            status, code = 403, "GatedRepo"
        elif name not in self.models:
            status, code = 401, "RepoNotFound"
        elif revision not in ("main", NEWEST):
            status, code = 404, "RevisionNotFound"
        else:
            return True
        _send(request, status, {"X-Error-Code": code}, b"")
        return False

    def _file(self, request: BaseHTTPRequestHandler, file: Path, body: bool) -> None:
        content = file.read_bytes()
        headers = {"X-Repo-Commit": NEWEST, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if not body:
            _send(request, 200, {**headers, "Content-Length": str(len(content))}, b"")
            return
        self.asked.append(file.name)
        start = int(request.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
        part = content[start:]
        if self.broken.get(file.name, 0) > 0:
            self.broken[file.name] -= 1
            part = part[: len(part) // 2]
        headers["Content-Length"] = str(len(content) - start)
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        _send(request, 206 if start else 200, headers, part)
        request.close_connection = True


@contextmanager
def served(hub: Hub) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            hub.answer(self, body=True)

        def do_HEAD(self):
            hub.answer(self, body=False)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)
