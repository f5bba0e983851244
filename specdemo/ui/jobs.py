"""What a pair of buttons does: one starts a job on the device and streams its events, one ends it.

Every job of the page waits in the service's one queue for one device; Gradio's own only hands them on. A
visitor has at most one of each kind; each kind has its own ``Stops``. How a job ended is shown without asking
the server, which may be the reason.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Literal

import gradio as gr

from specdemo.records.limits import UserError
from specdemo.service.jobs import Events
from specdemo.service.shares import Visitor
from specdemo.ui.http.gradio_internals import Dependency, unread_messages
from specdemo.ui.http.reading import UNREAD_S, Reader
from specdemo.ui.http.visitors import caller_gone, visitor_of
from specdemo.ui.streams import Stops, error_line, first_line, ndjson

DEVICE = "device"
"""The concurrency group of all jobs."""
BUSY = "The server takes no more at the moment; please try again in a minute."
UNREAD = f"Nobody read this for {UNREAD_S:g} s, so it was ended; read the answer while it comes."
CUT = "The connection was lost before the end; please run it again."
EXPLAIN = f"""(shown) => {{
    const told = JSON.parse(shown.trimEnd().split("\\n").at(-1) || "{{}}");
    if (told.type === "error") return shown;
    const message = shown === {json.dumps(first_line())} ? {json.dumps(BUSY)} : {json.dumps(CUT)};
    return shown + JSON.stringify({{ type: "error", message }}) + "\\n";
}}"""
"""What is shown after a failure: what was shown before, ended by an ``error`` line if it was not yet."""
QUIET: dict[str, Any] = {
    "queue": False,
    "preprocess": False,  # it fails on what no widget holds, and logs that as a fault
    "show_progress": "hidden",
    "api_visibility": "private",
}


def session_of(request: gr.Request) -> str:
    """The session whose request it is; empty where Gradio gives none."""
    return request.session_hash or ""


def stream(
    stops: Stops, request: gr.Request, start: Callable[[Callable[[], bool], Visitor], Events]
) -> Iterator[str]:
    """Stream one job to a visitor, on the thread of the event of Gradio that asked for it.

    Args:
        stops: Of this kind of job.
        request: Says whose it is.
        start: Makes the job's events; is given ``stop``, True once the session's Stop was pressed or its tool
            call is over, and the visitor.

    Yields:
        The job's events so far as NDJSON; each text begins with the one before.

    Raises:
        gr.Error: The job was refused or failed, or nobody read it for ``UNREAD_S``; its sentence has been
            yielded before, as an ``error`` line.
    """
    session = session_of(request)
    event = stops.current(session)
    gone = caller_gone(request)
    reader = Reader(unread_messages())
    try:
        with closing(ndjson(start(lambda: event.is_set() or gone(), visitor_of(request)))) as texts:
            for text in texts:
                yield text
                if reader.gone():
                    yield text + error_line(UNREAD)
                    raise UserError(UNREAD)
    except UserError as error:
        # The component already shows the sentence; visible=False spares the page a second copy.
        raise gr.Error(str(error), visible=False, print_exception=bool(error.__cause__)) from error
    finally:
        stops.leave(session, event)


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
    """:func:`wire` for several buttons that start the same thing, each from inputs of its own.

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
    """The same for a component with buttons of its own: its event ``submit`` starts, ``stop`` ends.

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
    """What a script returns to change a button."""
    return {"__type__": "update", "interactive": interactive}


def _stopper(stops: Stops) -> Callable[[gr.Request], None]:
    def stop(request: gr.Request) -> None:
        stops.stop(session_of(request))

    return stop


def leaver(*kinds: Stops) -> Callable[[gr.Request], None]:
    """For ``Blocks.unload``: a handler that ends what a visitor who left had under way of these kinds."""

    def leave(request: gr.Request) -> None:
        for stops in kinds:
            stops.stop(session_of(request))
            stops.leave(session_of(request))

    return leave
