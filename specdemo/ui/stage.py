"""The stage: a Gradio HTML component whose constant template our own JavaScript brings to life.

Its value is the NDJSON of a run. Text of visitors and models never passes through a template: the
browser parses the lines and writes text nodes only. Serves its own files and Plotly's, no CDN.
"""

import json
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from specdemo.palette import css_variables
from specdemo.plots import MARK_LIFT, skeletons

STATIC = Path(__file__).parent / "static"
PREFIX = "specdemo-static"
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
REVALIDATE = {"Cache-Control": "no-cache"}
"""Modules import each other by bare names, so a browser must ask after an update; a 304 costs nothing."""


def build_stage() -> gr.HTML:
    """The component; stream NDJSON into its value."""
    return gr.HTML(
        value="",
        html_template=(STATIC / "stage.html").read_text(encoding="utf-8"),
        js_on_load=_mount_script(),
        apply_default_css=False,
        elem_id="stage",
    )


def head() -> str:
    """What the stage needs in the document's head: the palette as CSS variables, and the style sheet."""
    return (
        f"<style>{css_variables()}</style>"
        f'<link rel="stylesheet" href="{PREFIX}/page.css"><link rel="stylesheet" href="{PREFIX}/stage.css">'
    )


def routes() -> list[BaseRoute]:
    """Where the browser finds the stage's files."""
    return [
        Route(f"/{PREFIX}/plotly.min.js", _plotly),
        Mount(f"/{PREFIX}", _Revalidated(directory=STATIC)),
    ]


def settings() -> dict[str, Any]:
    """What the stage's JavaScript takes from Python, wherever it is mounted."""
    return {"figures": skeletons(), "markLift": MARK_LIFT}


def _mount_script() -> str:
    passed = json.dumps(settings())
    return (
        f"const base = new URL('{PREFIX}/', document.baseURI);"
        f"import(new URL('stage.js', base))"
        f".then((module) => module.mount({{element, props, watch, base, settings: {passed}}}));"
    )


def _plotly(_request: Any) -> Response:
    return FileResponse(PLOTLY_JS, media_type="text/javascript", headers=REVALIDATE)


class _Revalidated(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(REVALIDATE)
        return response
