"""The private parts of Gradio that the page needs; nothing else uses any.

Check these after an update of Gradio: each says why it is needed and which public feature would replace it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr

# A function of the page; for annotations, as its type is exported nowhere.
from gradio.block_function import BlockFunction as BlockFunction
from gradio.context import LocalContext

# What an event of a component returns; for annotations as well.
from gradio.events import Dependency as Dependency
from gradio.utils import get_function_description

# Whether Gradio would fetch a posted value as a file before it calls a function; turning files off would do.
from gradio_client.utils import is_file_obj as is_file_obj
from starlette.types import Scope
from uvicorn.config import HTTP_PROTOCOLS


def page_of(scope: Scope) -> gr.Blocks:
    """Return the page that the app of a request serves; an app of our own would know it."""
    return scope["app"].get_blocks()


def functions(page: gr.Blocks) -> Mapping[int, BlockFunction]:
    """Return the functions of the page, by the numbers that the browser uses.

    Requests are checked before Gradio fails on them; a validation by Gradio itself would do.
    """
    return page.fns


def page_names(page: gr.Blocks) -> Mapping[str, Any]:
    """Return the pages of the program by name: Gradio fails on unknown ones; a 404 would do."""
    return page.config["page"]


def public_endpoints(page: gr.Blocks) -> Mapping[str, Any]:
    """Return the contents of Gradio's route ``info`` by endpoint; a documented method would do."""
    return page.get_api_info()["named_endpoints"]


def is_pending(page: gr.Blocks, event: str) -> bool:
    """Return whether the queue still has an event or its answer, which it forgets after delivery.

    Gradio never answers a request for another one; a 404 would do.
    """
    return any(event in events for events in page._queue.pending_event_ids_session.values())


def idle_sessions(page: gr.Blocks) -> set[str]:
    """Return the sessions that the queue keeps something for although none of their events is under way.

    Call it on the event loop. With ``forget_session`` it bounds what is kept for sessions that never fetch
    it; a time limit of Gradio's own would do.
    """
    queue = page._queue
    kept = {*queue.pending_messages_per_session, *queue.pending_event_ids_session}
    return kept - {event.session_hash for event in queue.event_ids_to_events.values()}


def forget_session(page: gr.Blocks, session: str) -> None:
    """Drop a session's messages and the values that its page showed last, a whole run each."""
    page._queue.pending_messages_per_session.pop(session, None)
    page._queue.pending_event_ids_session.pop(session, None)
    page.state_holder.session_data.pop(session, None)
    page.state_holder.time_last_used.pop(session, None)


def current_event() -> str | None:
    """Return the id of the event that is handled on this thread; None outside of one.

    Gradio names the session of an event that came without one by this id; ``gr.Request`` saying that it came
    without would do.
    """
    return LocalContext.event_id.get(None)


def unread_messages() -> Callable[[], int]:
    """Return a function that counts the unfetched messages of the event that Gradio begins to handle.

    Call it on the thread that handles the event. A callback for a reader who left, or a limit on what is kept
    for one, would do.
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
    """Have the API page show what the docstring of a ``gr.api`` endpoint says of its arguments.

    Gradio uses it for tools only; ``gr.api`` doing so itself would do.

    Args:
        page: Has the endpoint.
        endpoint: The function; its first argument is the request, which is not shown.
        added: What ``gr.api`` returned for it.
        result: What it returns, in a word.
    """
    _request, *meanings = get_function_description(endpoint)[1].values()
    for place, meaning in zip(added["inputs"] + added["outputs"], [*meanings, result], strict=True):
        value: Any = page.blocks[place]
        value.label = meaning


def serves_tools(page: gr.Blocks) -> bool:
    """Return whether the page was launched as an MCP server as well."""
    return page.mcp_server


def serve_one_tool(page: gr.Blocks, endpoint: str, written: Callable[[Any], str]) -> None:
    """Serve one endpoint of a page launched with MCP as a tool, its results written by ``written``.

    Gradio makes a tool of every public endpoint and writes results as Python does; a choice of tools, and
    results as JSON, would do. To be called before the first request.
    """
    server: Any = page.mcp_server_obj
    server.tool_to_endpoint = {
        tool: served for tool, served in server.tool_to_endpoint.items() if served == f"/{endpoint}"
    }
    server.postprocess_output_data = lambda data, _root: [
        server.types.TextContent(type="text", text=written(given)) for given in data
    ]


def parse_requests_in_python() -> None:
    """Have uvicorn, which Gradio starts as it comes, read requests by h11 whatever else is installed.

    Where another package has brought httptools it would take that, which answers some malformed requests by
    itself, past the guard.
    """
    HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["h11"]
