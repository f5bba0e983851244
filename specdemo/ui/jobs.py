"""Buttons that start a job, stream its events and end it; Gradio's own queue only passes jobs on."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import gradio as gr

from specdemo.ui.http.gradio_internals import Dependency
from specdemo.ui.streams import Stops, first_line, session_of

DEVICE = "device"
"""The concurrency group of all jobs."""
BUSY = "The server is busy; please try again in a minute."
CUT = "The connection was lost before the end; please start the run again."
# The browser adds the line without asking the server, because the failure may be the server's.
EXPLAIN = f"""(shown) => {{
    const last = JSON.parse(shown.trimEnd().split("\\n").at(-1) || "{{}}");
    if (last.type === "error") return shown;
    const message = shown === {json.dumps(first_line())} ? {json.dumps(BUSY)} : {json.dumps(CUT)};
    return shown + JSON.stringify({{ type: "error", message }}) + "\\n";
}}"""
"""A JavaScript function that returns the text so far with an ``error`` line as its last line."""
QUIET: dict[str, Any] = {
    "queue": False,
    "preprocess": False,  # it would fail on values that no widget can have, and log that as a fault
    "show_progress": "hidden",
    "api_visibility": "private",
}


def wire(
    stops: Stops,
    endpoint: Callable[..., Iterator[str]],
    starts: Sequence[tuple[gr.Button, Sequence[gr.components.Component]]],
    shown: gr.HTML,
    stop_button: gr.Button,
    values: str | None = None,
    after: tuple[Sequence[gr.components.Component], str] = ((), "() => []"),
) -> None:
    """Connect start buttons and a stop button to ``endpoint``, whose events appear in ``shown``.

    Args:
        endpoint: A function of the raw values of a button's inputs and of the request. Its name becomes the
            name of the API endpoint.
        starts: The start buttons, each with its inputs. The first button's inputs have the default values of
            the API endpoint.
        values: A JavaScript function that returns the values of all inputs except the last one (the pair);
            None if the values are in Gradio's widgets.
        after: Widgets to update when a job has ended, and a JavaScript function of the list of their values
            that returns their updates.
    """
    buttons = [*(button for button, _ in starts), stop_button]

    def begin(request: gr.Request) -> list[Any]:
        stops.begin(session_of(request))
        return [first_line(), *[gr.Button(interactive=False) for _ in starts], gr.Button(interactive=True)]

    ready = [{"__type__": "update", "interactive": button is not stop_button} for button in buttons]
    widgets, updates = list(after[0]), after[1]
    at_rest = f"...{json.dumps(ready)}, ...(await ({updates})(values))"
    settled = [*buttons, *widgets]
    for index, (button, inputs) in enumerate(starts):
        pressed = button.click(begin, None, [shown, *buttons], **QUIET)
        running = _queued(pressed, endpoint, inputs, shown, values, "private" if index else "public")
        # In Gradio 6, ``then`` runs only after success.
        running.success(None, widgets, settled, js=f"async (...values) => [{at_rest}]", **QUIET)
        explained = f"async (shown, ...values) => [({EXPLAIN})(shown), {at_rest}]"
        running.failure(None, [shown, *widgets], [shown, *settled], js=explained, **QUIET)
    stop_button.click(_stopper(stops), None, None, **QUIET)


def wire_component(
    stops: Stops,
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    values: str,
    settle: str,
) -> None:
    """Do the same for a component whose events ``submit`` and ``stop`` start and end the job.

    ``settle`` is a JavaScript function to call when the job has ended.
    """

    def begin(request: gr.Request) -> str:
        stops.begin(session_of(request))
        return first_line()

    running = _queued(shown.submit(begin, None, shown, **QUIET), endpoint, inputs, shown, values)
    running.success(None, js=settle)
    running.failure(None, shown, shown, js=EXPLAIN, **QUIET).then(None, js=settle)
    shown.stop(_stopper(stops), None, None, **QUIET)


def _queued(
    pressed: Dependency,
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    values: str | None,
    visibility: Literal["public", "private"] = "public",
) -> Dependency:
    return pressed.then(
        endpoint,
        list(inputs),
        shown,
        js=values and f"async (...values) => [...(await ({values})()), values.at(-1)]",
        api_name=endpoint.__name__,
        api_visibility=visibility,
        preprocess=False,
        concurrency_limit=None,
        concurrency_id=DEVICE,
        show_progress="hidden",
    )


def _stopper(stops: Stops) -> Callable[[gr.Request], None]:
    def stop(request: gr.Request) -> None:
        stops.stop(session_of(request))

    return stop
