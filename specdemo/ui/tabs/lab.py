"""The tab "Lab", a component with its own buttons and fields; and the API endpoint ``measure``."""

from typing import Any

import gradio as gr

from specdemo.lab.charts import theory_chart, what_if_chart
from specdemo.lab.conditions import CONDITIONS, CONTRASTS
from specdemo.lab.lab_request import NEW_TOKENS, PROMPTS
from specdemo.lab.points import DRAFT_LENGTH, EXPERIMENTS, SWEEPS, TITLES
from specdemo.records.limits import MAX_K, MAX_LAB_PROMPTS, MAX_LAB_TOKENS, MAX_TEMPERATURE
from specdemo.records.trace import USUAL_K, Mode
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs
from specdemo.ui.component import component
from specdemo.ui.streams import Stops, streamed

LAB = "document.querySelector('#lab .sd-lab').lab"


def build_lab(service: RunService, pair: gr.Dropdown) -> Stops:
    """Add the tab to the page that is being built; return the stop requests of its jobs."""
    stops = Stops()
    inputs = _inputs()
    shown = component("lab", "lab/lab.js", "mountLab", settings(list(inputs)))
    jobs.wire_component(
        stops,
        streamed(service, stops, JobKind.MEASURE, measure),
        [*inputs.values(), pair],
        shown,
        values=f"() => {LAB}.values()",
        settle=f"() => ({LAB}.settle(), [])",
    )
    return stops


def settings(inputs: list[str]) -> dict[str, Any]:
    """Return the settings of the tab's JavaScript; ``inputs`` names the endpoint's inputs, in order."""
    return {
        "inputs": inputs,
        "defaults": {"max_new_tokens": NEW_TOKENS, "prompts": PROMPTS, "k": USUAL_K},
        "limits": {
            "max_new_tokens": MAX_LAB_TOKENS,
            "prompts": MAX_LAB_PROMPTS,
            "k": MAX_K,
            "temperature": MAX_TEMPERATURE,
        },
        "sweeps": [{"name": name, "title": TITLES[name]} for name in SWEEPS],
        "conditions": [
            {name: getattr(contrast, name) for name in ("name", "group", "title", "expected")}
            | {"helps": contrast.helps.label, "hurts": contrast.hurts.label}
            for contrast in CONTRASTS
        ],
        "figures": {"theory": theory_chart(), "what-if": what_if_chart()},
    }


def _inputs() -> dict[str, gr.components.Component]:
    """Return the endpoint's hidden inputs, with the names that ``parse_lab`` expects as keys."""
    hidden: dict[str, Any] = {"visible": False}
    return {
        "experiment": gr.Dropdown(
            [*EXPERIMENTS, *CONDITIONS], value=DRAFT_LENGTH, label="Experiment", **hidden
        ),
        "k": gr.Number(USUAL_K, label="Draft length", precision=0, **hidden),
        "temperature": gr.Number(0.0, label="Temperature", **hidden),
        "max_new_tokens": gr.Number(NEW_TOKENS, label="New tokens per run", precision=0, **hidden),
        "prompts": gr.Number(PROMPTS, label="Number of built-in prompts", precision=0, **hidden),
        "prompt": gr.Textbox("", label="Your own prompt", **hidden),
        "mode": gr.Radio(list(map(str, Mode)), value=str(Mode.CHAT), label="Prompt mode", **hidden),
        "seed": gr.Number(0, label="Seed", precision=0, **hidden),
    }


def measure(
    experiment: str,
    k: int,
    temperature: float,
    max_new_tokens: int,
    prompts: int,
    prompt: str,
    mode: str,
    seed: int,
    pair: str,
    request: gr.Request,
) -> dict[str, Any]:
    """Measure how the speedup depends on a setting; yield the experiment's events as growing NDJSON.

    ``experiment`` is a sweep (draft-length, temperature, category, drafter, draft-quality, draft-cost),
    contrasts (all conditions), the name of one condition, or throughput. ``k`` and ``temperature``
    apply to all points of a sweep, except to a sweep that varies the setting itself. Each point of a sweep
    decodes ``prompts`` built-in prompts, or your own ``prompt``: ``mode`` raw continues it, chat answers it.
    ``max_new_tokens`` and ``seed`` apply to each run of a sweep or condition; throughput uses only ``k``.
    ``pair`` is the name of the models, if there are several.
    """
    run = {"k": k, "temperature": temperature, "max_new_tokens": max_new_tokens, "seed": seed}
    return {"experiment": experiment, "prompts": prompts, "prompt": prompt, "mode": mode, **run}
