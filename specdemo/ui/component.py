"""The page's own components: constant HTML templates, each with a JavaScript module.

Text of visitors and models never passes through a template: the browser writes it as text nodes only.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Any

import gradio as gr

STATIC = Path(__file__).parent / "static"
PREFIX = "specdemo-static"
CLAIM = (
    "A small model drafts tokens; a large model verifies all draft tokens in one pass. Same text, or the "
    "same distribution when sampling, in fewer slow passes."
)
DRESS = """<script>
const darkly = matchMedia("(prefers-color-scheme: dark)");
const asked = new URLSearchParams(location.search).get("__theme");
const isDark = () => (["dark", "light"].includes(asked) ? asked === "dark" : darkly.matches);
const dress = () => document.body.classList.toggle("dark", isDark());
darkly.addEventListener("change", dress);
dress();
</script>"""
"""A script for pages without Gradio, first in the body, which sets the theme."""


def component(
    name: str,
    module: str,
    function: str,
    settings: dict[str, Any] | None = None,
    label: str = "Events as NDJSON",
) -> gr.HTML:
    """Return a component with the template ``NAME.html`` next to ``module``, whose ``function`` controls it.

    Its value is NDJSON, or empty; ``label`` describes it in the API's documentation.
    """
    passed = json.dumps(settings or {})
    given = f"element, props, watch, trigger, base, settings: {passed}"
    return gr.HTML(
        value="",
        html_template=static_text(f"{PurePosixPath(module).parent}/{name}.html"),
        js_on_load=(
            f"const base = new URL('{PREFIX}/', document.baseURI);"
            # A press before the module is there would be lost, and that of a form would load the page again.
            "element.inert = true;"
            f"import(new URL('{module}', base)).finally(() => {{ element.inert = false; }})"
            f".then((module) => module.{function}({{{given}}}));"
        ),
        apply_default_css=False,
        elem_id=name,
        label=label,
    )


def static_text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def inline_json(value: Any) -> str:
    """Return ``value`` as JSON in which no ``<`` can end the script element around it."""
    return json.dumps(value).replace("<", r"\u003c")
