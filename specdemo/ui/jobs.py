"""Buttons that start a job, stream its events and end it; Gradio's own queue only passes jobs on."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import parse_qsl

import gradio as gr

from specdemo.records.limits import UserError
from specdemo.ui.http.gradio_internals import Dependency
from specdemo.ui.streams import Stops, error_line, first_line, session_of

Asked = Callable[[Mapping[str, str], Sequence[Any]], Sequence[Any]]

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
    asking: Sequence[tuple[gr.HTML, Asked]] = (),
    then_set: Mapping[gr.components.Component, Any] = MappingProxyType({}),
) -> None:
    """Connect start buttons and a stop button to ``endpoint``, whose events appear in ``shown``.

    Args:
        endpoint: A function of the raw values of a button's inputs and of the request. Its name becomes the
            name of the API endpoint.
        starts: The start buttons, each with its inputs. The first button's inputs have the default values of
            the API endpoint.
        values: A JavaScript function that returns the values of all inputs except the last one (the pair);
            None if the values are in Gradio's widgets.
        asking: Components whose event ``submit`` starts a job with settings of its own, each with a function
            that maps these settings and the values of the first button's inputs to the values of the job.
        then_set: Widgets to set when a job has ended, each with its value.
    """
    buttons = [*(button for button, _ in starts), stop_button]

    def begin(request: gr.Request) -> list[Any]:
        stops.begin(session_of(request))
        return begun

    def settle(running: Dependency) -> None:
        # In Gradio 6, ``then`` runs only after success.
        settled = [*buttons, *then_set]
        running.success(None, None, settled, js=f"() => {at_rest}", **QUIET)
        explained = f"(shown) => [({EXPLAIN})(shown), ...{at_rest}]"
        running.failure(None, shown, [shown, *settled], js=explained, **QUIET)

    begun = [first_line(), *(gr.update(interactive=button is stop_button) for button in buttons)]
    resting = [gr.update(interactive=button is not stop_button) for button in buttons]
    at_rest = json.dumps(resting + [gr.update(value=value) for value in then_set.values()])
    for index, (button, inputs) in enumerate(starts):
        pressed = button.click(begin, None, [shown, *buttons], **QUIET)
        settle(_queued(pressed.then, endpoint, inputs, shown, values, "private" if index else "public"))
    for component, asked in asking:
        component.submit(None, None, [shown, *buttons], js=f"() => {json.dumps(begun)}", **QUIET)
        own = _with_settings(stops, endpoint, asked)
        settle(_queued(component.submit, own, starts[0][1], shown, None, "private"))
    stop_button.click(_stopper(stops), None, None, **QUIET)


def _with_settings(
    stops: Stops, endpoint: Callable[..., Iterator[str]], asked: Asked
) -> Callable[..., Iterator[str]]:
    """Return ``endpoint`` for events with settings: the query of their ``address``."""

    def stream(event: gr.EventData, request: gr.Request, *values: Any) -> Iterator[str]:
        stops.begin(session_of(request))
        try:
            own = asked(dict(parse_qsl(str(getattr(event, "address", "")))), values)
        except UserError as error:
            yield first_line() + error_line(str(error))
            raise gr.Error(str(error), visible=False, print_exception=False) from error
        yield from endpoint(*own, request)

    return stream


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

    pressed = shown.submit(begin, None, shown, **QUIET)
    running = _queued(pressed.then, endpoint, inputs, shown, values)
    running.success(None, js=settle)
    running.failure(None, shown, shown, js=EXPLAIN, **QUIET).then(None, js=settle)
    shown.stop(_stopper(stops), None, None, **QUIET)


def _queued(
    start: Callable[..., Dependency],
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    values: str | None,
    visibility: Literal["public", "private"] = "public",
) -> Dependency:
    return start(
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
