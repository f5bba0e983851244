"""Buttons that start a job, stream its events and end it.

Jobs wait in the service's queue; Gradio's own only passes them on. The browser shows how a job ended without
asking the server, which may be the reason.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import gradio as gr

from specdemo.ui.http.gradio_internals import Dependency
from specdemo.ui.streams import Stops, first_line, session_of

DEVICE = "device"
"""The concurrency group of all jobs."""
BUSY = "The server takes no more at the moment; please try again in a minute."
CUT = "The connection was lost before the end; please run it again."
EXPLAIN = f"""(shown) => {{
    const told = JSON.parse(shown.trimEnd().split("\\n").at(-1) || "{{}}");
    if (told.type === "error") return shown;
    const message = shown === {json.dumps(first_line())} ? {json.dumps(BUSY)} : {json.dumps(CUT)};
    return shown + JSON.stringify({{ type: "error", message }}) + "\\n";
}}"""
"""After a failure: the text so far, with an ``error`` line at its end if it has none."""
QUIET: dict[str, Any] = {
    "queue": False,
    "preprocess": False,  # it fails on what no widget holds, and logs that as a fault
    "show_progress": "hidden",
    "api_visibility": "private",
}


def wire(
    stops: Stops,
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    buttons: tuple[gr.Button, gr.Button],
    asked: str | None = None,
) -> None:
    """Have the first button start ``endpoint`` into ``shown`` and the second one end it.

    Args:
        endpoint: Takes the raw values of ``inputs`` and the request; its name is that of the API endpoint.
        asked: A JavaScript function that gives these values, but the last one (which pair is to do it), where
            no widget of Gradio's has them.
    """
    start_button, stop_button = buttons
    wire_each(stops, endpoint, [(start_button, inputs)], shown, stop_button, asked)


def wire_each(
    stops: Stops,
    endpoint: Callable[..., Iterator[str]],
    starts: Sequence[tuple[gr.Button, Sequence[gr.components.Component]]],
    shown: gr.HTML,
    stop_button: gr.Button,
    asked: str | None = None,
) -> None:
    """Do the same as :func:`wire` for several start buttons, each with inputs of its own.

    The API endpoint takes its defaults from the first one's inputs.
    """
    buttons = [*(button for button, _ in starts), stop_button]

    def begin(request: gr.Request) -> list[Any]:
        stops.begin(session_of(request))
        return [first_line(), *[gr.Button(interactive=False) for _ in starts], gr.Button(interactive=True)]

    at_rest = json.dumps([*[_enabled(True)] * len(starts), _enabled(False)])
    for place, (button, inputs) in enumerate(starts):
        pressed = button.click(begin, None, [shown, *buttons], **QUIET)
        running = _queued(pressed, endpoint, inputs, shown, asked, "private" if place else "public")
        # In Gradio 6 ``then`` follows success only.
        running.success(None, None, buttons, js=f"() => {at_rest}", **QUIET)
        running.failure(
            None, shown, [shown, *buttons], js=f"(shown) => [({EXPLAIN})(shown), ...{at_rest}]", **QUIET
        )
    stop_button.click(_stopper(stops), None, None, **QUIET)


def wire_component(
    stops: Stops,
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    scripts: tuple[str, str],
) -> None:
    """Do the same for a component with buttons of its own: its event ``submit`` starts, ``stop`` ends.

    Args:
        endpoint, inputs, shown: As in :func:`wire`.
        scripts: Two JavaScript functions: what the values of ``inputs`` but the last are, as a list, and what
            to do when the job is over, however it ended.
    """
    asked, settle = scripts

    def begin(request: gr.Request) -> str:
        stops.begin(session_of(request))
        return first_line()

    running = _queued(shown.submit(begin, None, shown, **QUIET), endpoint, inputs, shown, asked)
    running.success(None, js=settle)
    running.failure(None, shown, shown, js=EXPLAIN, **QUIET).then(None, js=settle)
    shown.stop(_stopper(stops), None, None, **QUIET)


def _queued(
    pressed: Dependency,
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    asked: str | None = None,
    visibility: Literal["public", "private"] = "public",
) -> Dependency:
    """Have ``endpoint`` wait for the device once ``pressed`` is done."""
    return pressed.then(
        endpoint,
        list(inputs),
        shown,
        js=asked and f"async (...values) => [...(await ({asked})()), values.at(-1)]",
        api_name=endpoint.__name__,
        api_visibility=visibility,
        preprocess=False,
        concurrency_limit=None,
        concurrency_id=DEVICE,
        show_progress="hidden",
    )


def _enabled(interactive: bool) -> dict[str, Any]:
    """Return the value by which a script changes a button."""
    return {"__type__": "update", "interactive": interactive}


def _stopper(stops: Stops) -> Callable[[gr.Request], None]:
    def stop(request: gr.Request) -> None:
        stops.stop(session_of(request))

    return stop
