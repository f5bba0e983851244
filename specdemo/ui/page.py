"""The page: widgets, what pressing them does, and the API endpoint ``run``.

Widgets only collect values: each one goes untouched through the service's own check. Loads no model
and knows none.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import gradio as gr

from specdemo.pairs.pair import drafters_with
from specdemo.records import limits
from specdemo.records.limits import UserError
from specdemo.records.trace import AUTO, Mode, Rule, RunConfig
from specdemo.service.job_kinds import JobKind
from specdemo.service.offer import Offer
from specdemo.service.queue import Stop
from specdemo.service.shares import Visitor
from specdemo.ui import api_endpoints as ways_in
from specdemo.ui import jobs
from specdemo.ui import stage as stage_ui
from specdemo.ui.address import settings_from, with_pair_named
from specdemo.ui.component import PREFIX, component
from specdemo.ui.consistency import keep_consistent, told
from specdemo.ui.http import guard, lab_routes, traces
from specdemo.ui.jobs import QUIET
from specdemo.ui.requests import SETTINGS, raw_request
from specdemo.ui.streams import Events, EventSource, Stops, error_line
from specdemo.ui.tabs.lab import build_lab
from specdemo.ui.tabs.play import build_play
from specdemo.ui.tabs.proof import build_proof
from specdemo.ui.tabs.quiz import build_quiz

TITLE = "Speculative decoding, live"
HEADER = (
    f'<header class="sd-header"><h1>{TITLE}</h1><p>A small <b>draft</b> model guesses k tokens; '
    "the large <b>target</b> model checks them all in one pass.</p></header>"
)
MOST_THREADS = 100
"""Every visitor who waits for the device, or for models, holds a thread that mostly sleeps."""
MOST_SESSIONS = 200
"""Whose page Gradio remembers, a quarter of a megabyte each; who is forgotten loses nothing."""

DRAFTER_LABELS = {
    "draft-model": "draft model",
    "prompt-lookup": "copy from the text",
    "lookup+model": "copy, else draft model",
    "feature-draft": "feature draft",
    "lookup+feature": "copy, else feature draft",
    "early-exit": "early exit",
}
DEFAULTS = RunConfig(prompt="The capital of France is", mode=Mode.RAW)
FIRST_SETTINGS = {"k": AUTO}
"""What a visitor finds who comes by a plain address: what a longer draft costs differs from host to host."""
PLAIN_SETTINGS = {name: getattr(DEFAULTS, name) for name in SETTINGS}
"""What a lesson's run has where it asks for nothing else."""


class Example(NamedTuple):
    """A prompt a visitor can take with one press."""

    label: str
    prompt: str
    mode: Mode


EXAMPLES = (
    Example("Capital of France", "The capital of France is", Mode.RAW),
    Example("Thank-you email", "Thank you for your email. I will get back to you", Mode.RAW),
    Example(
        "Code", "Write a Python function that returns the first n Fibonacci numbers as a list.", Mode.CHAT
    ),
    Example("Story", "Write a short story about a lighthouse keeper who finds a message.", Mode.CHAT),
    Example(
        "Copy-edit",
        "Rewrite this so that Friday becomes Thursday: The meeting has moved to Friday afternoon. "
        "Please send your slides before Friday noon, and tell me by Friday morning if you cannot come.",
        Mode.CHAT,
    ),
)


class Controls(NamedTuple):
    """The widgets of a run, named after the fields of ``RunConfig``; ``auto`` makes k "auto"."""

    prompt: gr.Textbox
    mode: gr.Radio
    drafter: gr.Dropdown
    k: gr.Slider
    auto: gr.Checkbox
    temperature: gr.Slider
    rule: gr.Radio
    max_new_tokens: gr.Number
    seed: gr.Number
    top_k: gr.Number
    top_p: gr.Slider
    baseline: gr.Checkbox
    draft_alone: gr.Checkbox
    pair: gr.Dropdown


def build_page(
    service: EventSource, drafters: Sequence[str] = limits.DRAFTERS[:1], offer: Offer | None = None
) -> gr.Blocks:
    """The whole page around one service.

    Args:
        service: Decodes.
        drafters: The kinds to choose from, as far as the pair at home has what they need.
        offer: The pairs to choose from.
    """
    offer = offer or Offer()
    stops = Stops()
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        gr.HTML(HEADER, js_on_load=None, apply_default_css=False)
        with gr.Tabs(elem_id="tabs", overflow_behavior="wrap") as tabs:
            with gr.Tab("Run", id="run", elem_id="tab-run"), gr.Column(elem_id="controls"):
                controls, run_button, stop_button = _controls(drafters, offer)
            with gr.Tab("Learn", id="learn", elem_id="tab-learn", render_children=True):
                lessons = component("lessons", "lessons.js", "mountLessons")
                asking = build_quiz(service, controls.pair)
            with gr.Tab("Play", id="play", elem_id="tab-play", render_children=True):
                playing = build_play(service, controls.pair)
            with gr.Tab("Is it the same?", id="proof", elem_id="tab-proof", render_children=True):
                proving = build_proof(service, controls.pair)
            with gr.Tab("Lab", id="lab", elem_id="tab-lab", render_children=True):
                measuring = build_lab(service, controls.pair)
        stage = stage_ui.build_stage()
        keep_consistent(controls.temperature, controls.rule, controls.auto, controls.k)
        _offer_drafters(controls, drafters, offer)
        _wire_address(page, tabs, controls, stage, offer)
        _wire_lessons(lessons, controls)
        _wire_class_link(lessons, controls)
        jobs.wire(stops, run_endpoint(service, stops), controls, stage, (run_button, stop_button))
        generating = ways_in.build_generate(page, service)
        page.unload(jobs.leaver(stops, asking, playing, proving, measuring, generating))
    return page.queue(max_size=MOST_THREADS, api_open=False)


def launch_options(allowed: Sequence[str] = (), listening: str = "") -> dict[str, Any]:
    """What ``launch()`` needs beside host and port for the page to look and work as built.

    Args:
        allowed: Further names of the page, and whose pages may call it.
        listening: The name of what the server listens on.
    """
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
    return {
        "theme": gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=fonts, font_mono=mono),
        "head": stage_ui.head(),
        "app_kwargs": {
            "routes": [*traces.routes(), *lab_routes.routes(), *stage_ui.routes()],
            "lifespan": guard.lifespan(allowed, listening),
        },
        "footer_links": ["api"],
        "max_threads": MOST_THREADS,
        "state_session_capacity": MOST_SESSIONS,
        "run_history": False,
        "enable_monitoring": False,
        "ssr_mode": False,
        "show_error": False,
        "inbrowser": False,
    }


def _controls(drafters: Sequence[str], offer: Offer) -> tuple[Controls, gr.Button, gr.Button]:
    with gr.Row(elem_id="ask", equal_height=True):
        prompt = gr.Textbox(
            value=DEFAULTS.prompt,
            label="Prompt",
            placeholder="Write something for the models to continue or to answer",
            lines=1,
            max_lines=4,
            scale=8,
            min_width=260,
            container=False,
            elem_id="prompt",
        )
        run_button = gr.Button("Run", variant="primary", scale=0, min_width=120, elem_id="run")
        stop_button = gr.Button("Stop", interactive=False, scale=0, min_width=90, elem_id="stop")
    with gr.Row(elem_id="examples"):
        mode = gr.Radio(
            [("continue the text", str(Mode.RAW)), ("answer as chat", str(Mode.CHAT))],
            value=str(DEFAULTS.mode),
            label="What to do with the prompt",
            container=False,
            scale=0,
            min_width=310,
            elem_id="mode",
        )
        gr.HTML("Try", js_on_load=None, apply_default_css=False, elem_id="try", min_width=30)
        for example in EXAMPLES:
            _example_button(example, prompt, mode)
    with gr.Row(elem_id="settings"):
        widgets = _settings(drafters, offer)
    return Controls(prompt, mode, *widgets), run_button, stop_button


def _example_button(example: Example, prompt: gr.Textbox, mode: gr.Radio) -> None:
    values = json.dumps([example.prompt, example.mode])
    gr.Button(example.label, size="sm", min_width=60, scale=0).click(
        None, outputs=[prompt, mode], js=f"() => {values}"
    )


def _settings(drafters: Sequence[str], offer: Offer) -> tuple[gr.components.Component, ...]:
    drafter = gr.Dropdown(
        _labelled(drafters),
        value=DEFAULTS.drafter if DEFAULTS.drafter in drafters else drafters[0],
        label="Drafter",
        min_width=160,
        scale=1,
        elem_id="drafter",
    )
    k = gr.Slider(1, limits.MAX_K, DEFAULTS.k, step=1, label="Draft length k", min_width=170, scale=3)
    auto = gr.Checkbox(False, label="auto k", min_width=92, scale=0, elem_id="auto")
    temperature = gr.Slider(
        0.0, limits.MAX_TEMPERATURE, 0.0, step=0.1, label="Temperature", min_width=140, scale=2
    )
    rule = gr.Radio(
        [("greedy", Rule.GREEDY), ("rejection", Rule.REJECTION), ("shared noise", Rule.SHARED_NOISE)],
        value=str(DEFAULTS.rule),
        label="Verification rule",
        min_width=374,
        scale=0,
        elem_id="rule",
    )
    length = gr.Number(
        DEFAULTS.max_new_tokens,
        label="New tokens",
        precision=0,
        minimum=1,
        min_width=100,
        scale=0,
        elem_id="new-tokens",
    )
    with gr.Accordion("More", open=False, elem_id="more"):
        pair = _pair_choice(offer)
        seed = gr.Number(
            DEFAULTS.seed,
            label="Seed",
            info="repeats a sampled text; not with auto k under rejection, which drafts by measured times",
            precision=0,
            minimum=0,
        )
        top_k = gr.Number(DEFAULTS.top_k, label="top-k (0 = all tokens)", precision=0, minimum=0)
        top_p = gr.Slider(0.01, 1.0, DEFAULTS.top_p, step=0.01, label="top-p (1 = all tokens)")
        baseline = gr.Checkbox(DEFAULTS.baseline, label="race the target alone")
        draft_alone = gr.Checkbox(
            DEFAULTS.draft_alone,
            label="run the draft alone as well",
            interactive=DEFAULTS.drafter in drafters,  # which says that there is a draft model
        )
    return drafter, k, auto, temperature, rule, length, seed, top_k, top_p, baseline, draft_alone, pair


def _pair_choice(offer: Offer) -> gr.Dropdown:
    """Which models are to do it; not shown where there is nothing to choose."""
    return gr.Dropdown(
        [(title, name) for name, title in offer.titles.items()] or [offer.home],
        value=offer.home,
        label="Models" if not offer.any_model else "Models, or any two as TARGET/ID, DRAFT/ID",
        allow_custom_value=offer.any_model,
        visible=offer.any_model or len(offer.titles) > 1,
        min_width=260,
        elem_id="pair",
    )


def _offer_drafters(controls: Controls, at_home: Sequence[str], offer: Offer) -> None:
    """Pairs other than the one at home have a draft model and nothing else to draft with."""
    guests = drafters_with(draft=True, feature_draft=False)

    def choices(pair: str, drafter: str) -> list[Any]:
        names = at_home if pair == offer.home else guests
        return [
            gr.Dropdown(_labelled(names), value=drafter if drafter in names else names[0]),
            gr.Checkbox(interactive=DEFAULTS.drafter in names),
        ]

    controls.pair.change(
        choices, [controls.pair, controls.drafter], [controls.drafter, controls.draft_alone], **QUIET
    )


def _labelled(drafters: Sequence[str]) -> list[tuple[str, str]]:
    return [(DRAFTER_LABELS[name], name) for name in drafters]


def _wire_address(page: gr.Blocks, tabs: gr.Tabs, controls: Controls, stage: gr.HTML, offer: Offer) -> None:
    def load(request: gr.Request) -> list[Any]:
        tab = gr.Tabs(selected="learn") if "lesson" in request.query_params else gr.skip()
        try:
            settings = FIRST_SETTINGS | settings_from(request.query_params, DEFAULTS.prompt)
            if "pair" in request.query_params:
                settings["pair"] = offer.named(request.query_params["pair"])
        except UserError as error:
            return [tab, *[gr.skip()] * len(controls), error_line(str(error))]
        return [tab, *widget_values(settings), gr.skip()]

    page.load(load, None, [tabs, *controls, stage], **QUIET)


def _wire_lessons(lessons: gr.HTML, controls: Controls) -> None:
    """A lesson asks for a run by an address's settings: they go into the widgets, and Run is pressed."""

    def prepare(asked: gr.EventData) -> list[Any]:
        parameters = dict(parse_qsl(str(getattr(asked, "address", ""))))
        settings = PLAIN_SETTINGS | settings_from(parameters, DEFAULTS.prompt)
        return widget_values(settings)

    prepared = lessons.submit(told(prepare), None, list(controls), **QUIET)
    prepared.success(None, js="() => document.querySelector('#run').click()")


def _wire_class_link(lessons: gr.HTML, controls: Controls) -> None:
    """The lessons' button asks for a link; only Gradio knows what the widgets hold."""
    module = f"new URL('{PREFIX}/classlink.js', document.baseURI)"
    names = json.dumps(Controls._fields)
    lessons.copy(
        None,
        list(controls),
        js=f"async (...values) => {{ (await import({module})).copyClassLink({names}, values); return []; }}",
    )


def widget_values(settings: Mapping[str, Any]) -> list[Any]:
    """What each widget of ``Controls`` is to show; those not named stay as they are."""
    values: dict[str, Any] = {key: gr.update(value=value) for key, value in settings.items()}
    if "k" in settings:
        auto = settings["k"] == AUTO
        length = {} if auto else {"value": settings["k"]}
        values |= {"k": gr.update(interactive=not auto, **length), "auto": gr.update(value=auto)}
    return [values.get(name, gr.skip()) for name in Controls._fields]


def run_endpoint(service: EventSource, stops: Stops) -> Callable[..., Iterator[str]]:
    """The function behind the Run button and the API endpoint ``run``."""

    def run(
        prompt: str,
        mode: str,
        drafter: str,
        k: int,
        auto: bool,
        temperature: float,
        rule: str,
        max_new_tokens: int,
        seed: int,
        top_k: int,
        top_p: float,
        baseline: bool,
        draft_alone: bool,
        pair: str,
        request: gr.Request,
    ) -> Iterator[str]:
        """Decode a prompt with and without drafts; yields the run's events as growing NDJSON.

        ``auto`` lets the decoder choose each draft's length; ``k`` is then not looked at. ``baseline``
        races the target alone, ``draft_alone`` runs the draft model by itself as well. ``pair`` names the
        models, where there are several to choose from.
        """
        raw = raw_request(locals())

        def events(stop: Stop, visitor: Visitor) -> Events:
            if limits.flag({"auto": auto}, "auto", False):
                raw["k"] = AUTO
            yield from with_pair_named(service.events(JobKind.RUN, raw, stop, pair, visitor), pair)

        yield from jobs.stream(stops, request, events)

    return run
