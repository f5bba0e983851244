"""The private parts of Gradio that the page needs; no other module uses any.

Check them after an update of Gradio: each names its purpose and the public feature that would replace it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr

# A function of the page; for annotations, because Gradio exports its type nowhere.
from gradio.block_function import BlockFunction as BlockFunction
from gradio.context import LocalContext

# The result of a component's event; for annotations as well.
from gradio.events import Dependency as Dependency
from gradio.utils import get_function_description

# Whether Gradio would fetch a posted value as a file before calling a function; an option would do.
from gradio_client.utils import is_file_obj as is_file_obj
from starlette.types import Scope
from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS


def page_of(scope: Scope) -> gr.Blocks:
    """Return the page that a request's app serves; our own app would have it as an attribute."""
    return scope["app"].get_blocks()


def functions(page: gr.Blocks) -> Mapping[int, BlockFunction]:
    """Return the functions of the page, by the numbers that the browser uses.

    They serve to check requests before Gradio fails on them; validation by Gradio itself would do.
    """
    return page.fns


def page_names(page: gr.Blocks) -> Mapping[str, Any]:
    """Return the pages of the program by name: Gradio fails on unknown ones; a 404 would do."""
    return page.config["page"]


def public_endpoints(page: gr.Blocks) -> Mapping[str, Any]:
    """Return the content of Gradio's route ``info`` by endpoint; a documented method would do."""
    return page.get_api_info()["named_endpoints"]


def is_pending(page: gr.Blocks, event: str) -> bool:
    """Return whether the queue has an event or its answer, which it forgets after delivery.

    Gradio never answers a request for another one; a 404 would do.
    """
    return any(event in events for events in page._queue.pending_event_ids_session.values())


def idle_sessions(page: gr.Blocks) -> set[str]:
    """Return the sessions that have data in the queue but no running event.

    Call it on the event loop. With ``forget_session`` it limits the data of sessions that never fetch it; a
    time limit in Gradio would do.
    """
    queue = page._queue
    kept = {*queue.pending_messages_per_session, *queue.pending_event_ids_session}
    return kept - {event.session_hash for event in queue.event_ids_to_events.values()}


def forget_session(page: gr.Blocks, session: str) -> None:
    """Drop a session's messages and the last values of its page, a whole run each."""
    page._queue.pending_messages_per_session.pop(session, None)
    page._queue.pending_event_ids_session.pop(session, None)
    page.state_holder.session_data.pop(session, None)
    page.state_holder.time_last_used.pop(session, None)


def current_event() -> str | None:
    """Return the id of the event that this thread handles, or None.

    Gradio gives an event without a session this id as its session; no session in ``gr.Request`` would do.
    """
    return LocalContext.event_id.get(None)


def unread_messages() -> Callable[[], int]:
    """Return a function that counts the unfetched messages of the current event.

    Call it on the thread that handles the event. A callback when a reader leaves, or a limit on unfetched
    messages, would do.
    """
    page, event_id = LocalContext.blocks.get(None), current_event()
    event = page and event_id and page._queue.event_ids_to_events.get(event_id)
    if not page or not event:
        return lambda: 0
    return page._queue.pending_messages_per_session[event.session_hash].qsize


def listening_sockets(page: gr.Blocks) -> Sequence[Any]:
    """Return the sockets that a launched page listens on; options for the web server would do."""
    return [listener for server in page.server.servers for listener in server.sockets]


def describe_values(
    page: gr.Blocks, endpoint: Callable[..., Any], added: Mapping[str, Any], result: str
) -> None:
    """Have the API page show the descriptions of arguments in the docstring of a ``gr.api`` endpoint.

    Gradio uses them for tools only; ``gr.api`` doing the same would do.

    Args:
        page: The page with the endpoint.
        endpoint: The function; its first argument is the request, which is not shown.
        added: The dependency that ``gr.api`` returned.
        result: A word for the return value.
    """
    _request, *descriptions = get_function_description(endpoint)[1].values()
    for block, label in zip(added["inputs"] + added["outputs"], [*descriptions, result], strict=True):
        value: Any = page.blocks[block]
        value.label = label


def serves_tools(page: gr.Blocks) -> bool:
    """Return whether the page was launched with an MCP server."""
    return page.mcp_server


def serve_one_tool(page: gr.Blocks, endpoint: str, written: Callable[[Any], str]) -> None:
    """Serve one endpoint of a page launched with MCP as a tool, with results converted by ``written``.

    Gradio makes every public endpoint a tool and writes results as Python literals; a choice of tools, and
    JSON results, would do. Call it before the first request.
    """
    server: Any = page.mcp_server_obj
    server.tool_to_endpoint = {
        tool: served for tool, served in server.tool_to_endpoint.items() if served == f"/{endpoint}"
    }
    server.postprocess_output_data = lambda data, _root: [
        server.types.TextContent(type="text", text=written(given)) for given in data
    ]


def pass_all_requests_to_the_guard() -> None:
    """Have uvicorn, which Gradio starts with its defaults, parse requests with h11 and without WebSockets.

    httptools and the WebSocket libraries answer some odd requests themselves, past the guard. Options of
    ``launch()`` would do.
    """
    HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["h11"]
    WS_PROTOCOLS["auto"] = WS_PROTOCOLS["none"]
