"""The layout of the page, and the events that connect its parts."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import Route

from specdemo.pairs.presets import OfferedPairs
from specdemo.records import limits
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs, stage
from specdemo.ui.api_endpoints import build_generate
from specdemo.ui.component import CLAIM, PREFIX, STATIC, component
from specdemo.ui.controls import (
    DEFAULTS,
    PAGE_MODULE,
    PLAIN_SETTINGS,
    Controls,
    build_controls,
    keep_consistent,
    keep_drafters_possible,
    settings_from,
    values_with,
    widget_values,
)
from specdemo.ui.http import guard, own_routes
from specdemo.ui.http.gradio_internals import pass_all_requests_to_the_guard
from specdemo.ui.http.posts import ERROR_HANDLERS
from specdemo.ui.http.sharing import FAVICON, Sharing
from specdemo.ui.jobs import QUIET
from specdemo.ui.streams import Stops, error_line, session_of, streamed
from specdemo.ui.tabs.lab import build_lab
from specdemo.ui.tabs.play import OPENINGS, build_play
from specdemo.ui.tabs.proof import build_proof
from specdemo.ui.tabs.quiz import build_quiz, shown_questions
from specdemo.ui.tabs.run import run, wire_recalibration

TITLE = "Speculative decoding, live"
HEADER = (
    f'<header class="sd-header"><h1>{TITLE}</h1>'
    '<button type="button" class="sd-skip">Skip to the run</button>'
    f'<p class="sd-claim">{CLAIM}</p></header>'
)
TOOLS = '<div class="sd-header-tools"></div>'
"""The container of the stage's tools: next to the tabs, and after them in the tab order."""
MAX_THREADS = 100
"""The maximum number of threads. Each visitor who waits for the device or for models occupies one thread."""
MAX_SESSIONS = 200
"""The maximum number of sessions that Gradio remembers; each takes a quarter of a megabyte."""


def build_page(
    service: RunService,
    drafters: Sequence[str] = limits.DRAFTERS[:1],
    offered: OfferedPairs | None = None,
    has_live_copy: bool = False,
) -> gr.Blocks:
    """Return the page; ``drafters`` are the default pair's. By default it offers only the built-in pair."""
    offered = offered or OfferedPairs()
    run_stops = Stops()
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HEADER, elem_id="header", js_on_load=None, apply_default_css=False)
        with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
            with _tab("run"), gr.Column(elem_id="controls"):
                controls, run_button, stop_button, recalibration = build_controls(drafters, offered)
            with _tab("learn", render_children=True):
                lessons = component("lessons", "learn/lessons.js", "mountLessons")
                quiz_stops = build_quiz(service, controls.pair)
            with _tab("play", render_children=True):
                play_stops = build_play(service, controls.pair)
            with _tab("proof", render_children=True):
                proof_stops = build_proof(service, controls.pair)
            with _tab("lab", render_children=True):
                lab_stops = build_lab(service, controls.pair)
            with _tab("class", render_children=True):
                openings = [opening._asdict() for opening in OPENINGS]
                named = controls._asdict().items()
                defaults = {name: widget.value for name, widget in named if name != "auto"}
                class_settings = {"questions": shown_questions(), "openings": openings, "defaults": defaults}
                component("class", "class/class.js", "mountClass", class_settings)
        gr.HTML(TOOLS, elem_id="tools", js_on_load=None, apply_default_css=False)
        # A watched server drafts as it likes, so nothing can be predicted about k.
        asks = offered.default not in offered.watched
        prediction = component("prediction", "stage/prediction.js", "mountPrediction", {"asks": asks})
        shown = component("stage", "stage/stage.js", "mount", stage.settings(has_live_copy))
        component("footer", "common/footer.js", "mountFooter", {"source": source_address()})
        keep_consistent(controls.temperature, controls.rule, controls.auto, controls.k)
        keep_drafters_possible(controls, drafters, offered)
        _wire_address(page, tabs, controls, shown, offered)
        _wire_class_link(lessons, controls)
        jobs.wire(
            run_stops,
            streamed(service, run_stops, JobKind.RUN, run),
            [(run_button, controls)],
            shown,
            stop_button,
            asking=[
                (lessons, partial(values_with, PLAIN_SETTINGS)),
                (prediction, partial(values_with, {})),
                (shown, partial(values_with, {})),
            ],
            then_set={controls.repeats: DEFAULTS.repeats},  # it holds for one run only
        )
        wire_recalibration(service, *recalibration, controls.pair)
        generate_stops = build_generate(page, service)
        kinds = run_stops, quiz_stops, play_stops, proof_stops, lab_stops, generate_stops

        def leave(request: gr.Request) -> None:
            for stops in kinds:
                stops.leave(session_of(request))

        page.unload(leave)
    return page.queue(max_size=MAX_THREADS, api_open=False)


def source_address() -> str | None:
    """Return the public address of a Space's source code; None outside a Space."""
    space = os.environ.get("SPACE_ID")
    return f"https://huggingface.co/spaces/{space}/tree/main" if space else None


def launch_options(
    more_routes: Sequence[Route] = (),
    allowed: Sequence[str] = (),
    listening: str = "",
    framed_by: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the options for ``page.launch()``, except host and port.

    Args:
        more_routes: Additional routes, such as those of classes.
        allowed: Additional host names of the page; pages of sites with these names may also call it.
        listening: The host name that the server listens on.
        framed_by: Host names of other sites whose pages may show the whole page in a frame.
    """
    pass_all_requests_to_the_guard()
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    return {
        "theme": gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=fonts, font_mono=mono),
        "head": stage.head(),
        "app_kwargs": {
            "routes": [*own_routes.own_routes(), *stage.routes(), *more_routes],
            "exception_handlers": ERROR_HANDLERS,
            "middleware": [Middleware(Sharing, title=TITLE, claim=CLAIM)],
            "lifespan": guard.lifespan(allowed, listening, framed_by),
        },
        "favicon_path": STATIC / FAVICON,
        "footer_links": [],
        "max_threads": MAX_THREADS,
        "state_session_capacity": MAX_SESSIONS,
        "run_history": False,
        "enable_monitoring": False,
        "ssr_mode": False,
        "show_error": False,
        "inbrowser": False,
    }


def _tab(name: str, **options: Any) -> gr.Tab:
    return gr.Tab(stage.TABS[name], id=name, elem_id=f"tab-{name}", **options)


def _wire_address(
    page: gr.Blocks, tabs: gr.Tabs, controls: Controls, shown: gr.HTML, offered: OfferedPairs
) -> None:
    names = json.dumps(Controls._fields)
    widgets = list(controls)
    kept = gr.Textbox(visible=False)  # the settings before a reload, as the query of an address

    def load(kept: str, request: gr.Request) -> list[Any]:
        tab = gr.Tabs(selected="learn") if "lesson" in request.query_params else gr.skip()
        try:
            settings = asked(request.query_params)
        except UserError as error:
            return [tab, *[gr.skip()] * len(controls), error_line(str(error))]
        with suppress(UserError):  # a widget can have a value that no run can
            settings |= asked(dict(parse_qsl(str(kept))))
        return [tab, *widget_values(settings), gr.skip()]

    def asked(parameters: Mapping[str, str]) -> dict[str, Any]:
        pair = {"pair": offered.named(parameters["pair"])} if "pair" in parameters else {}
        return settings_from(parameters, DEFAULTS.prompt) | pair

    restore = f"async () => [(await {PAGE_MODULE}).keptSettings({names})]"
    page.load(load, kept, [tabs, *widgets, shown], js=restore, **QUIET)
    keep = f"async (...values) => {{ (await {PAGE_MODULE}).keepForReload({names}, values); return []; }}"
    gr.on([widget.change for widget in widgets], None, widgets, js=keep, **QUIET)


def _wire_class_link(lessons: gr.HTML, controls: Controls) -> None:
    """Pass the widgets' values, which only Gradio knows, to the lessons' button that copies a class link."""
    module = f"new URL('{PREFIX}/learn/lessons.js', document.baseURI)"
    names = json.dumps(Controls._fields)
    lessons.copy(
        None,
        list(controls),
        js=f"async (...values) => {{ (await import({module})).copyClassLink({names}, values); return []; }}",
    )
