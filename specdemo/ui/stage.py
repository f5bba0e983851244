"""The settings of the stage, which shows runs, and the routes of the page's files."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import plotly
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from specdemo.charts.palette import css_variables
from specdemo.charts.stage import skeletons
from specdemo.records.drafter_kinds import KINDS
from specdemo.records.trace import Rule, RunConfig
from specdemo.records.trace_file import MAX_BYTES
from specdemo.ui.component import PREFIX, STATIC

TABS = {
    "run": "Run",
    "learn": "Learn",
    "play": "Play",
    "proof": "Is it the same?",
    "lab": "Lab",
    "class": "Class",
}
SETTINGS = tuple(field.name for field in fields(RunConfig) if field.name != "script")
"""The settings of a run on the page, which does not offer scripted drafts."""
ARRIVAL = "arrival"
"""The recording of the page's initial prompt, which plays if the address chooses no other."""
STAGE_SHEETS = ("common/base", "stage/stage", "stage/pass", "stage/lanes", "stage/overlap")
STYLE_SHEETS = (
    "common/page",
    *STAGE_SHEETS,
    "stage/prediction",
    "learn/learn",
    "learn/quiz",
    "play/play",
    "proof/proof",
    "lab/lab",
    "class/class",
)
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
COMPRESSED = [Middleware(GZipMiddleware, compresslevel=4)]
"""For routes of texts that Gradio does not compress: it does so by a list of file endings."""
REVALIDATE = {"Cache-Control": "no-cache"}
"""File addresses have no version, so browsers must ask for changes each time."""


def head() -> str:
    sheets = [f'<link rel="stylesheet" href="{PREFIX}/{name}.css">' for name in STYLE_SHEETS]
    return "".join([f"<style>{css_variables()}</style>", *sheets])


def routes() -> list[BaseRoute]:
    return [
        Route(f"/{PREFIX}/plotly.min.js", _plotly),
        Route(f"/{PREFIX}/{{name:path}}.ndjson", _ndjson, middleware=COMPRESSED),
        # Not a Mount: behind a proxy that removes its own folder from the path, it looks in the wrong place.
        Route(f"/{PREFIX}/{{name:path}}", _static),
    ]


def settings(has_live_copy: bool = False) -> dict[str, Any]:
    """Return the settings of the stage's JavaScript, the same on every page with a stage but for the link."""
    return {
        "figures": skeletons(),
        "arrival": ARRIVAL,
        "drafters": {
            kind.name: {"who": kind.who, "source": kind.source, "empty": kind.empty_reason}
            for kind in KINDS.values()
        },
        "rules": {rule: {"label": rule.label, "about": rule.about} for rule in Rule},
        "tabs": TABS,
        "linked": [*SETTINGS, "pair"],
        "max_trace_bytes": MAX_BYTES,
        "has_live_copy": has_live_copy,
    }


def _plotly(_request: Any) -> Response:
    return FileResponse(PLOTLY_JS, media_type="text/javascript", headers=REVALIDATE)


async def _static(request: Request) -> Response:
    return await _FILES.get_response(request.path_params["name"], request.scope)


async def _ndjson(request: Request) -> Response:
    return await _FILES.get_response(f"{request.path_params['name']}.ndjson", request.scope)


class _Revalidated(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(REVALIDATE)
        return response


_FILES = _Revalidated(directory=STATIC)
