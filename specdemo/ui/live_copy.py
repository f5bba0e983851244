"""The live copy that a server offers: written once in the background, then served at a path of its own."""

import hashlib
import logging
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from specdemo import __version__
from specdemo.pairs.cache_folder import cache_folder
from specdemo.records.limits import UserError
from specdemo.records.output import scratch_folder
from specdemo.service.service import Service, State
from specdemo.ui.http.own_routes import LIVE_COPY
from specdemo.ui.site import ISOLATION, write_site
from specdemo.ui.stage import REVALIDATE

PACKAGE = Path(__file__).parent.parent
FOLDER, SCRATCH = "live-", "live.partial-"
"""The start of the names of finished and unfinished copies."""
POLL_S = 1.0
_log = logging.getLogger(__name__)


class LiveCopy:
    """The copy and its routes, which answer 404 until the copy is complete."""

    def __init__(self) -> None:
        self._files: StaticFiles | None = None

    def write_soon(self, service: Service) -> None:
        """Write the copy once the server's own models are loaded, because both need the same processors."""

        def work() -> None:
            while service.state is State.LOADING:
                time.sleep(POLL_S)
            self.write()

        threading.Thread(target=work, name="live copy", daemon=True).start()

    def write(self) -> None:
        """Write the copy unless an earlier start of this release has done so; a failure is logged."""
        try:
            folder = _written(cache_folder())
        except (UserError, OSError) as error:
            reason = f"{error.strerror}." if isinstance(error, OSError) else str(error)
            _log.warning("The live copy was not written, so no page links to it: %s", reason)
        else:
            self._files = StaticFiles(directory=folder, html=True)

    def routes(self) -> list[Route]:
        at = f"/{LIVE_COPY}"
        to_page = Route(at, lambda _request: RedirectResponse(f"{LIVE_COPY}/"))
        return [to_page, Route(f"{at}/{{name:path}}", self._file)]

    async def _file(self, request: Request) -> Response:
        if self._files is None:
            raise HTTPException(404)
        reply = await self._files.get_response(request.path_params["name"] or ".", request.scope)
        reply.headers.update({**ISOLATION, **REVALIDATE})
        return reply


def _written(cache: Path) -> Path:
    folder = cache / f"{FOLDER}{__version__}-{_digest()}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with scratch_folder(cache, SCRATCH) as scratch:
            write_site(scratch / "copy", live=True)
            with suppress(OSError):  # another server has written the same copy meanwhile
                (scratch / "copy").rename(folder)
    for other in cache.glob(f"{FOLDER}*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _digest() -> str:
    """Return a name for the program's files, from which the copy is written."""
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]
