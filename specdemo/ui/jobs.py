"""What a pair of buttons does: one starts a job on the device and streams its events, one ends it.

Every job of the page waits in one queue for one device. A visitor has at most one of each kind; each kind
has its own ``Stops``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr
from gradio.events import Dependency

from specdemo.limits import UserError
from specdemo.ui.runs import Events, Stops, explain_failure, first_line, ndjson

DEVICE = "device"
"""The concurrency group of all jobs: one at a time, whoever asked and for what."""
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def session_of(request: gr.Request) -> str:
    """Whose request it is; the empty name where Gradio gives none."""
    return request.session_hash or ""


def stream(stops: Stops, request: gr.Request, start: Callable[[Callable[[], bool]], Events]) -> Iterator[str]:
    """The growing NDJSON of the job that ``start(stop)`` makes, which the session's Stop ends."""
    session = session_of(request)
    event = stops.current(session)
    try:
        yield from ndjson(start(event.is_set))
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
) -> None:
    """Have the first button start ``endpoint`` into ``shown`` and the second one end it.

    Args:
        endpoint: Takes the raw values of ``inputs`` and the request; its name is that of the API endpoint.
    """
    start_button, stop_button = buttons

    def begin(request: gr.Request) -> tuple[str, gr.Button, gr.Button]:
        stops.begin(session_of(request))
        return first_line(), gr.Button(interactive=False), gr.Button(interactive=True)

    def finish() -> tuple[gr.Button, gr.Button]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    def failed(text: str) -> tuple[str, gr.Button, gr.Button]:
        return explain_failure(text), *finish()

    def stop(request: gr.Request) -> None:
        stops.stop(session_of(request))

    running = _run(start_button.click(begin, None, [shown, *buttons], **QUIET), endpoint, inputs, shown)
    # In Gradio 6 ``then`` follows success only.
    running.success(finish, None, list(buttons), **QUIET)
    running.failure(failed, shown, [shown, *buttons], **QUIET)
    stop_button.click(stop, None, None, **QUIET)


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
        scripts: Two JavaScript functions: what the values of ``inputs`` are, as a list, and what to do when
            the job is over, however it ended.
    """
    values, settle = scripts

    def begin(request: gr.Request) -> str:
        stops.begin(session_of(request))
        return first_line()

    def stop(request: gr.Request) -> None:
        stops.stop(session_of(request))

    running = _run(shown.submit(begin, None, shown, **QUIET), endpoint, inputs, shown, values)
    running.success(None, js=settle)
    running.failure(explain_failure, shown, shown, **QUIET).then(None, js=settle)
    shown.stop(stop, None, None, **QUIET)


def _run(
    pressed: Dependency,
    endpoint: Callable[..., Iterator[str]],
    inputs: Sequence[gr.components.Component],
    shown: gr.HTML,
    values: str | None = None,
) -> Dependency:
    """Queue ``endpoint`` behind ``pressed``; ``values`` is JavaScript that stands in for the inputs' own."""
    return pressed.then(
        endpoint,
        list(inputs),
        shown,
        js=values,
        api_name=endpoint.__name__,
        preprocess=False,
        concurrency_limit=1,
        concurrency_id=DEVICE,
        show_progress="hidden",
    )


def leaver(*kinds: Stops) -> Callable[[gr.Request], None]:
    """For ``Blocks.unload``: ends what the visitor who left had under way."""

    def leave(request: gr.Request) -> None:
        for stops in kinds:
            stops.stop(session_of(request))
            stops.leave(session_of(request))

    return leave
