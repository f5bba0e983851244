"""The stage, which shows runs: its component, and the routes of the page's files and of Plotly (no CDN)."""

from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from specdemo.charts.palette import css_variables
from specdemo.charts.stage import MARK_LIFT, skeletons
from specdemo.records.drafter_kinds import KINDS
from specdemo.ui.component import PREFIX, STATIC, component

ARRIVAL = "arrival"
"""The recording that plays at a plain address: a run of the page's first prompt."""
STAGE_SHEETS = ("base", "stage", "lanes")
"""The style sheets that the stage needs wherever it is mounted."""
STYLE_SHEETS = ("page", *STAGE_SHEETS, "learn", "quiz", "play", "proof", "lab", "class")
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
REVALIDATE = {"Cache-Control": "no-cache"}
"""Module addresses carry no version, so a browser must ask for updates; a 304 costs nothing."""


def build_stage() -> gr.HTML:
    """Return the component; its value is the NDJSON of a run."""
    return component("stage", "stage.js", "mount", settings())


def head() -> str:
    """Return the page's part of the document's head: the palette as CSS variables, and the style sheets."""
    sheets = [f'<link rel="stylesheet" href="{PREFIX}/{name}.css">' for name in STYLE_SHEETS]
    return "".join([f"<style>{css_variables()}</style>", *sheets])


def routes() -> list[BaseRoute]:
    """Return the routes of the page's files."""
    return [
        Route(f"/{PREFIX}/plotly.min.js", _plotly),
        # Not a Mount: it looks in the wrong place behind a proxy that removes its folder from the path.
        Route(f"/{PREFIX}/{{name:path}}", _static),
    ]


def settings() -> dict[str, Any]:
    """Return the settings of the stage's JavaScript, wherever it is mounted."""
    kinds = {kind.name: {"who": kind.who, "source": kind.source} for kind in KINDS.values()}
    return {"figures": skeletons(), "markLift": MARK_LIFT, "drafters": kinds, "arrival": ARRIVAL}


def _plotly(_request: Any) -> Response:
    return FileResponse(PLOTLY_JS, media_type="text/javascript", headers=REVALIDATE)


async def _static(request: Request) -> Response:
    return await _FILES.get_response(request.path_params["name"], request.scope)


class _Revalidated(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(REVALIDATE)
        return response


_FILES = _Revalidated(directory=STATIC)
