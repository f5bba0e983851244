"""The private parts of Gradio that the page needs; no other module uses a private part.

Check this module after each update of Gradio. The comments name features that would make a part unnecessary.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

# The type of a function on the page, for annotations; Gradio does not export it.
from gradio.block_function import BlockFunction as BlockFunction
from gradio.context import LocalContext

# The type that a component's event returns, for annotations; Gradio does not export it.
from gradio.events import Dependency as Dependency
from gradio.utils import get_function_description

# Returns whether Gradio would treat a posted value as a file and fetch it before it calls a function.
# Unnecessary if an option of Gradio turned that off.
from gradio_client.utils import is_file_obj as is_file_obj
from packaging.specifiers import SpecifierSet
from starlette.types import Scope
from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS

from specdemo.ui.http.connections import BoundedConnection, quiet_repeats

TESTED = SpecifierSet(">=6.28,<6.32")
"""The versions of Gradio that ``requirements.txt`` allows."""


def untested_version() -> str | None:
    """Return a sentence about the installed version of Gradio if it is outside the tested range."""
    if TESTED.contains(gr.__version__):
        return None
    return (
        f"Gradio {gr.__version__} is installed, which was not tested, so parts of the page may fail; install "
        f"a tested version with: pip install 'gradio{TESTED}'."
    )


_NEXT_FRAME = re.compile(r"(performance\.now\(\)-\w+\(\w+\)\)/1e3\),)\w+&&\w+\(\)\}")
_ASSETS = Path(gr.__file__).parent / "templates" / "frontend" / "assets"


def stopped_counters() -> tuple[str, str] | None:
    """Return the name of Gradio's script that counts the seconds of events, and its text without the count.

    Each widget of a pending event has a counter, as had the loading screen, whose counter never ends. They
    run in every frame for a display that this page does not show, and take a tenth of a processor core that
    the models need. None if no script counts.
    """
    # Unnecessary if Gradio counted only where it shows the seconds.
    for script in _ASSETS.glob("statustracker-*.js"):
        text, found = _NEXT_FRAME.subn(r"\1void 0}", script.read_text(encoding="utf-8"))
        if found:
            return script.name, text
    return None


def page_of(scope: Scope) -> gr.Blocks:
    # A page that is mounted on an app of our own could be an attribute of the app.
    return scope["app"].get_blocks()


def functions(page: gr.Blocks) -> Mapping[int, BlockFunction]:
    """Return the functions of the page, by the numbers that the browser uses for them."""
    # Unnecessary if Gradio checked requests itself, instead of failing on some.
    return page.fns


def page_names(page: gr.Blocks) -> Mapping[str, Any]:
    # Unnecessary if Gradio replied with status 404 to other names.
    return page.config["page"]


def public_endpoints(page: gr.Blocks) -> Mapping[str, Any]:
    # Unnecessary if Gradio documented a method for the content of its route info.
    return page.get_api_info()["named_endpoints"]


def is_pending(page: gr.Blocks, event: str) -> bool:
    """Return whether an event is in the queue, or its answer waits to be fetched."""
    # Unnecessary if Gradio replied with status 404 to a request for another event; it never replies.
    return any(event in events for events in page._queue.pending_event_ids_session.values())


def has_undelivered_events(page: gr.Blocks) -> bool:
    """Return whether an event is in the queue, or an answer waits to be fetched."""
    # Unnecessary if Blocks.close waited until the answers are delivered.
    return any(page._queue.pending_event_ids_session.values())


def idle_sessions(page: gr.Blocks) -> set[str]:
    """Return the sessions with data in the queue but no waiting or running event; call on the event loop."""
    # Unnecessary if Gradio had a time limit for data that is never fetched.
    queue = page._queue
    kept = {*queue.pending_messages_per_session, *queue.pending_event_ids_session}
    return kept - {event.session_hash for event in queue.event_ids_to_events.values()}


def forget_session(page: gr.Blocks, session: str) -> None:
    """Delete a session's messages and its page's last values; either may contain a whole run."""
    page._queue.pending_messages_per_session.pop(session, None)
    page._queue.pending_event_ids_session.pop(session, None)
    page.state_holder.session_data.pop(session, None)
    page.state_holder.time_last_used.pop(session, None)


def current_event() -> str | None:
    """Return the id of the event that this thread handles, or None if it handles none."""
    # Gradio uses it as the session of an event without a session. Unnecessary if gr.Request had none then.
    return LocalContext.event_id.get(None)


def unread_messages() -> Callable[[], int]:
    """Return a function that counts the unfetched messages of the session of this thread's event."""
    # Unnecessary if Gradio had a callback for readers who leave, or a limit of unfetched messages.
    page, event_id = LocalContext.blocks.get(None), current_event()
    event = page and event_id and page._queue.event_ids_to_events.get(event_id)
    if not page or not event:
        return lambda: 0  # this thread handles no event
    return page._queue.pending_messages_per_session[event.session_hash].qsize


def listening_sockets(page: gr.Blocks) -> Sequence[Any]:
    # Unnecessary if launch() had options for the web server's sockets.
    return [listener for server in page.server.servers for listener in server.sockets]


def describe_values(
    page: gr.Blocks, endpoint: Callable[..., Any], added: Mapping[str, Any], result: str
) -> None:
    """Show the descriptions of arguments, from the docstring of a ``gr.api`` endpoint, on the API page."""
    # Unnecessary if Gradio used these descriptions not only for MCP tools.
    # The first argument is the request, which is not shown.
    _request, *descriptions = get_function_description(endpoint)[1].values()
    for block, label in zip(added["inputs"] + added["outputs"], [*descriptions, result], strict=True):
        value: Any = page.blocks[block]
        value.label = label


def serves_tools(page: gr.Blocks) -> bool:
    return page.mcp_server


def serve_one_tool(page: gr.Blocks, endpoint: str, written: Callable[[Any], str]) -> None:
    """Make one endpoint the only MCP tool of a page with an MCP server, before the first request."""
    # Unnecessary if Gradio let an app choose its tools, and wrote results as JSON, not as Python literals.
    server: Any = page.mcp_server_obj
    server.tool_to_endpoint = {
        tool: served for tool, served in server.tool_to_endpoint.items() if served == f"/{endpoint}"
    }
    server.postprocess_output_data = lambda data, _root: [
        server.types.TextContent(type="text", text=written(given)) for given in data
    ]


def close_tool_client(page: gr.Blocks) -> None:
    """End the client with which the MCP server calls its own page, or it would go on after the page."""
    # Unnecessary if Gradio closed it together with the page.
    server: Any = page.mcp_server_obj
    if server._client_instance:
        server._client_instance.close()


def pass_all_requests_to_the_guard() -> None:
    """Make uvicorn, Gradio's web server, parse requests with h11, bound connections and refuse WebSockets."""
    # httptools and the WebSocket libraries answer some unusual requests before the guard sees them.
    # Unnecessary if launch() had options for this.
    HTTP_PROTOCOLS["auto"] = f"{BoundedConnection.__module__}:{BoundedConnection.__name__}"
    quiet_repeats()
    WS_PROTOCOLS["auto"] = WS_PROTOCOLS["none"]
