"""Our components next to Gradio's widgets: constant templates that our own modules bring to life.

A component's value is NDJSON, or nothing. Text of visitors and models never passes through a template: the
browser parses the lines and writes text nodes only.
"""

import json
from pathlib import Path
from typing import Any

import gradio as gr

STATIC = Path(__file__).parent / "static"
PREFIX = "specdemo-static"
DRESS = """<script>
const darkly = matchMedia("(prefers-color-scheme: dark)");
const dress = () => document.body.classList.toggle("dark", darkly.matches);
darkly.addEventListener("change", dress);
dress();
</script>"""
"""A script for pages without Gradio that follows the browser's theme; it is first in the body."""


def component(
    name: str,
    module: str,
    function: str,
    settings: dict[str, Any] | None = None,
    label: str = "Events as NDJSON",
) -> gr.HTML:
    """Return the template ``NAME.html``, passed to a function of ``module`` once it is on the page.

    The function is given one object: ``element`` (what holds the template), ``props``, ``watch`` and
    ``trigger`` (value, its changes and events, as Gradio has them), ``base`` (where the static files are)
    and ``settings``. ``label`` says in the API's documentation what the value is.
    """
    passed = json.dumps(settings or {})
    given = f"element, props, watch, trigger, base, settings: {passed}"
    return gr.HTML(
        value="",
        html_template=static_text(f"{name}.html"),
        js_on_load=(
            f"const base = new URL('{PREFIX}/', document.baseURI);"
            f"import(new URL('{module}', base))"
            f".then((module) => module.{function}({{{given}}}));"
        ),
        apply_default_css=False,
        elem_id=name,
        label=label,
    )


def static_text(name: str) -> str:
    """Return the text of a static file."""
    return (STATIC / name).read_text(encoding="utf-8")


def inline_json(value: Any) -> str:
    """Return ``value`` as JSON that may stand inside a script element."""
    return json.dumps(value).replace("<", r"\u003c")
