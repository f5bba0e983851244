"""The widgets for the settings of a run, and the settings in an address; the service checks them again."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import gradio as gr

from specdemo.pairs.presets import OfferedPairs
from specdemo.records import limits
from specdemo.records.drafter_kinds import DRAFT, KINDS, NEEDED_NAMES, SERVER, drafters_with, usual_drafter
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import AUTO, MAX_REPEATS, Mode, Rule, RunConfig
from specdemo.ui.component import PREFIX
from specdemo.ui.jobs import QUIET
from specdemo.ui.stage import SETTINGS

DEFAULTS = RunConfig(
    prompt="What is deep learning? Answer in two sentences.", mode=Mode.CHAT, max_new_tokens=64
)
FIRST_K = 4
"""The draft length until a visitor chooses another one."""
PLAIN_SETTINGS = {name: getattr(DEFAULTS, name) for name in SETTINGS}
"""The settings of a lesson's run, unless the lesson sets other values."""

API_LINK = '<a href="?view=api">Use via API</a>'
ABOUT_CALIBRATION = "Measures pass costs again, for auto k and the theory."

_WORDS = frozenset({"prompt", "mode", "drafter", "rule"})
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_SWITCHES = {"true": True, "false": False}
SAMPLING_TEMPERATURE = 0.8
"""The temperature after a change from the greedy rule to another one."""
PAGE_MODULE = f"import(new URL('{PREFIX}/common/page.js', document.baseURI))"


class Example(NamedTuple):
    label: str
    prompt: str
    mode: Mode


EXAMPLES = (
    Example("Days", "What are the seven days of the week?", Mode.CHAT),
    Example("Email", "Write a short email that thanks a colleague for their help.", Mode.CHAT),
    Example(
        "Code", "Write a Python function that returns the first n Fibonacci numbers as a list.", Mode.CHAT
    ),
    Example("Story", "Write a short story about a lighthouse keeper who finds a message.", Mode.CHAT),
    Example(
        "Copy",
        "Repeat this text word for word: The quick brown fox jumps over the lazy dog. "
        "The meeting has moved to Thursday afternoon; please send your slides before noon.",
        Mode.CHAT,
    ),
)


class Controls(NamedTuple):
    """The widgets of a run, named after the fields of ``RunConfig``; ``auto`` sets k to "auto"."""

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
    repeats: gr.Slider
    pair: gr.Dropdown


def build_controls(
    drafters: Sequence[str], offered: OfferedPairs
) -> tuple[Controls, gr.Button, gr.Button, tuple[gr.Button, gr.HTML]]:
    """Add the widgets; return them, the buttons Run and Stop, and Recalibrate with its result's component."""
    with gr.Row(elem_id="ask", equal_height=True):
        prompt = gr.Textbox(
            value=DEFAULTS.prompt,
            label="Prompt",
            placeholder="Write a prompt for the target model",
            lines=1,
            max_lines=4,
            scale=8,
            min_width=220,
            container=False,
            elem_id="prompt",
        )
        k = gr.Slider(
            1, limits.MAX_K, FIRST_K, step=1, label="Draft length k", min_width=150, scale=0, elem_id="k"
        )
        auto = gr.Checkbox(False, label="auto k", min_width=70, scale=0, container=False, elem_id="auto")
        run_button = gr.Button("Run", variant="primary", scale=0, min_width=90, elem_id="run")
        stop_button = gr.Button("Stop", interactive=False, scale=0, min_width=76, elem_id="stop")
        with gr.Accordion("⚙ Settings", open=False, elem_id="more"):
            mode = _prompt_choice(prompt)
            controls = _settings(prompt, mode, k, auto, drafters, offered)
            recalibrate_button = gr.Button("Recalibrate", size="sm", elem_id="recalibrate")
            costs = gr.HTML(
                ABOUT_CALIBRATION, js_on_load=None, apply_default_css=False, elem_classes="sd-choice"
            )
            mount = f"{PAGE_MODULE}.then((module) => module.mountSettings());"
            gr.HTML(API_LINK, js_on_load=mount, apply_default_css=False, elem_classes="sd-choice")
    # Of the sentences about the choices of a menu, the page shows that of the chosen one.
    for widget in (controls.drafter, controls.rule):
        js = f"async (...chosen) => {{ (await {PAGE_MODULE}).showAbout(chosen); return []; }}"
        widget.change(None, [controls.drafter, controls.rule], js=js, **QUIET)
    # Enter presses Run; Shift with Enter starts a new line.
    prompt.submit(None, js="() => document.querySelector('#run:enabled')?.click()", **QUIET)
    return controls, run_button, stop_button, (recalibrate_button, costs)


def _prompt_choice(prompt: gr.Textbox) -> gr.Radio:
    """Add the examples of prompts and the prompt mode; return the mode."""
    with gr.Row(elem_id="examples"):
        gr.HTML("Try", js_on_load=None, apply_default_css=False, elem_id="try", min_width=30)
        buttons = [gr.Button(example.label, size="sm", min_width=60, scale=0) for example in EXAMPLES]
    mode = gr.Radio(
        [("continue", str(Mode.RAW)), ("answer", str(Mode.CHAT))],
        value=str(DEFAULTS.mode),
        label="Prompt mode",
        container=False,
        scale=0,
        min_width=170,
        elem_id="mode",
    )
    for example, button in zip(EXAMPLES, buttons, strict=True):
        values = json.dumps([example.prompt, example.mode])
        cue = f"async () => ((await {PAGE_MODULE}).cueRun(), {values})"
        button.click(None, outputs=[prompt, mode], js=cue)
    return mode


def _settings(
    prompt: gr.Textbox,
    mode: gr.Radio,
    k: gr.Slider,
    auto: gr.Checkbox,
    drafters: Sequence[str],
    offered: OfferedPairs,
) -> Controls:
    """Add the widgets of the settings panel, and return all widgets of a run."""
    drafter = gr.Dropdown(
        _labelled(drafters), value=usual_drafter(drafters), label="Drafter", elem_id="drafter"
    )
    choices = (*drafters_with(*NEEDED_NAMES), SERVER)
    _add_about({name: KINDS[name].about for name in choices}, usual_drafter(drafters))
    rule = gr.Radio(
        [(rule.label, str(rule)) for rule in Rule],
        value=str(DEFAULTS.rule),
        label="Verification rule",
        elem_id="rule",
    )
    _add_about({rule: rule.about for rule in Rule}, DEFAULTS.rule)
    temperature = gr.Slider(
        0.0,
        limits.MAX_TEMPERATURE,
        0.0,
        step=0.1,
        label="Temperature",
        info="0 selects the greedy rule; above 0, you can choose a sampling rule.",
    )
    max_new_tokens = gr.Number(
        DEFAULTS.max_new_tokens, label="New tokens", precision=0, minimum=1, elem_id="new-tokens"
    )
    pair = _pair_choice(offered)
    seed = gr.Number(
        DEFAULTS.seed,
        label="Seed",
        info="The same seed repeats a text, unless k is auto under rejection sampling or block verification.",
        precision=0,
        minimum=0,
    )
    top_k = gr.Number(DEFAULTS.top_k, label="top-k (0 = all)", precision=0, minimum=0)
    top_p = gr.Slider(0.01, 1.0, DEFAULTS.top_p, step=0.01, label="top-p (1 = all)")
    baseline = gr.Checkbox(DEFAULTS.baseline, label="Also run the target alone")
    draft_alone = gr.Checkbox(
        DEFAULTS.draft_alone,
        label="Also run the draft model alone",
        interactive=DEFAULTS.drafter in drafters,  # True if there is a draft model
    )
    repeats = gr.Slider(
        1,
        MAX_REPEATS,
        DEFAULTS.repeats,
        step=1,
        label="Repeats",
        visible=False,  # the stage's button "Repeat" and addresses set it, for one run
    )
    sampling = temperature, rule, max_new_tokens, seed, top_k, top_p
    return Controls(prompt, mode, drafter, k, auto, *sampling, baseline, draft_alone, repeats, pair)


def _add_about(sentences: Mapping[str, str], first: str) -> None:
    """Add a sentence about each choice of a menu; the browser shows only the sentence of the chosen one."""
    lines = [
        f'<p data-choice="{name}"{"" if name == first else " hidden"}>{escape(words)}</p>'
        for name, words in sentences.items()
    ]
    gr.HTML("".join(lines), js_on_load=None, apply_default_css=False, elem_classes="sd-choice")


def _pair_choice(offered: OfferedPairs) -> gr.Dropdown:
    return gr.Dropdown(
        [(title, name) for name, title in offered.titles.items()] or [offered.default],
        value=offered.default,
        label="Models",
        info="Or enter two hub ids, such as owner/target, owner/draft" if offered.any_model else None,
        allow_custom_value=offered.any_model,
        visible=offered.any_model or len(offered.titles) > 1,
        min_width=260,
        elem_id="pair",
    )


def keep_drafters_possible(controls: Controls, at_default: Sequence[str], offered: OfferedPairs) -> None:
    """Limit the menu of drafters to those that the chosen pair can use; ``at_default`` are the default's."""
    guests = drafters_with(DRAFT)  # other pairs have a draft model, but no feature draft and no n-gram table

    def choices(pair: Any, drafter: str) -> list[Any]:
        watched = isinstance(pair, str) and pair in offered.watched
        # A watched server chooses its own drafter.
        names = at_default if pair == offered.default else (SERVER,) if watched else guests
        return [
            gr.Dropdown(_labelled(names), value=drafter if drafter in names else usual_drafter(names)),
            gr.Checkbox(interactive=DEFAULTS.drafter in names),
        ]

    controls.pair.change(
        choices, [controls.pair, controls.drafter], [controls.drafter, controls.draft_alone], **QUIET
    )


def _labelled(drafters: Sequence[str]) -> list[tuple[str, str]]:
    kinds = sorted((KINDS[name] for name in drafters), key=lambda kind: kind.advanced)
    return [(f"{kind.label} (advanced)" if kind.advanced else kind.label, kind.name) for kind in kinds]


def widget_values(settings: Mapping[str, Any]) -> list[Any]:
    """Return updates for the widgets of ``Controls``, in their order; k may be "auto"."""
    named = _by_widget(settings)
    values: dict[str, Any] = {key: gr.update(value=value) for key, value in named.items()}
    if "auto" in named:
        values["k"] = values.get("k", {}) | gr.update(interactive=not named["auto"])
    return [values.get(name, gr.skip()) for name in Controls._fields]


def values_with(base: Mapping[str, Any], parameters: Mapping[str, str], values: Sequence[Any]) -> list[Any]:
    """Return the values of the widgets with the settings ``base`` and those in an address."""
    named = _by_widget({**base, **settings_from(parameters, DEFAULTS.prompt)})
    return [named.get(name, value) for name, value in zip(Controls._fields, values, strict=True)]


def _by_widget(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by the names of their widgets; "auto" has one of its own, next to that of k."""
    if "k" not in settings:
        return dict(settings)
    auto = settings["k"] == AUTO
    return {key: value for key, value in settings.items() if key != "k" or not auto} | {"auto": auto}


def settings_from(parameters: Mapping[str, str], default_prompt: str) -> dict[str, Any]:
    """Return the settings in an address; ``default_prompt`` serves only to check the others."""
    named = {key: _typed(key, text) for key, text in parameters.items() if key in SETTINGS}
    if not named:
        return {}
    config = parse_config({"prompt": default_prompt, **named})
    # A temperature implies a rule, and a rule implies a temperature.
    implied = {"temperature", "rule"} if {"temperature", "rule"} & named.keys() else set()
    return {key: getattr(config, key) for key in named.keys() | implied}


def _typed(key: str, text: str) -> Any:
    """Return a parameter as a float or bool if possible, else unchanged for ``parse_config`` to check."""
    if key in _WORDS or text == AUTO:
        return text
    if text in _SWITCHES:
        return _SWITCHES[text]
    return float(text) if _NUMBER.fullmatch(text) else text


def keep_consistent(temperature: gr.Slider, rule: gr.Radio, auto: gr.Checkbox, k: gr.Slider) -> None:
    """When a visitor changes one of these widgets, change another one that would contradict it."""
    temperature.input(
        with_refusals_shown(rule_for), [temperature, rule], rule, trigger_mode="always_last", **QUIET
    )
    auto.input(lambda auto: gr.Slider(interactive=not auto), auto, k, **QUIET)
    rule.input(with_refusals_shown(temperature_for), [rule, temperature], temperature, **QUIET)


def rule_for(temperature: Any, rule: Any) -> str:
    """Return the rule that fits a new temperature: the current one if possible. Both are unchecked."""
    chosen = _rule(rule)
    if _temperature(temperature) < limits.GREEDY_BELOW:
        return str(Rule.GREEDY)
    return str(Rule.REJECTION if chosen is Rule.GREEDY else chosen)


def temperature_for(rule: Any, temperature: Any) -> float:
    """Return the temperature that fits a new rule: the current one if possible. Both are unchecked."""
    current = _temperature(temperature)
    if _rule(rule) is Rule.GREEDY:
        return 0.0
    return current if current >= limits.GREEDY_BELOW else SAMPLING_TEMPERATURE


def _temperature(value: Any) -> float:
    return limits.number({"temperature": value}, "temperature", 0.0, 0.0, limits.MAX_TEMPERATURE)


def _rule(value: Any) -> Rule:
    return limits.choice({"rule": value}, "rule", Rule, Rule.GREEDY)


def with_refusals_shown(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``handler`` that shows a ``UserError`` as a ``gr.Error``, which is not logged."""

    @functools.wraps(handler)
    def shown(*values: Any) -> Any:
        try:
            return handler(*values)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return shown
