"""What the page needs of Gradio that Gradio does not promise to keep; nothing else reaches into it.

After an update of Gradio this is what to look at: each name says why it is needed and what public thing would
take its place.
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
    """The page that the app of a request serves; an app given to ``launch()`` by us would know it."""
    return scope["app"].get_blocks()


def functions(page: gr.Blocks) -> Mapping[int, BlockFunction]:
    """The functions of the page by the number that the browser asks for them by.

    What they are called with is checked before Gradio fails on it; a validation of requests by Gradio itself
    would do.
    """
    return page.fns


def page_names(page: gr.Blocks) -> Mapping[str, Any]:
    """The pages of a program of several by name: Gradio fails on unknown ones; a 404 would do."""
    return page.config["page"]


def public_endpoints(page: gr.Blocks) -> Mapping[str, Any]:
    """What Gradio's route ``info`` says of each endpoint, by name; a documented method would do."""
    return page.get_api_info()["named_endpoints"]


def is_pending(page: gr.Blocks, event: str) -> bool:
    """Whether the queue still has an event or its answer, which it forgets once that is delivered.

    Gradio never answers who fetches another one; a 404 from it would do.
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
    """The id of the event that is handled on this thread, None outside of one.

    Gradio names the session of an event that came without one by this id; ``gr.Request`` saying that it came
    without would do.
    """
    return LocalContext.event_id.get(None)


def unread_messages() -> Callable[[], int]:
    """How many messages of the event that Gradio begins to handle wait to be fetched; none without a queue.

    To be called on the thread that handles the event; what it returns may be called on any. A callback for a
    reader who left, or a bound on what is kept for one, would do.
    """
    page, event_id = LocalContext.blocks.get(None), current_event()
    event = page and event_id and page._queue.event_ids_to_events.get(event_id)
    if not page or not event:
        return lambda: 0
    return page._queue.pending_messages_per_session[event.session_hash].qsize


def listening_sockets(page: gr.Blocks) -> Sequence[Any]:
    """The sockets that a launched page listens on. Options for the web server would do."""
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
    """Whether the page was launched as an MCP server as well."""
    return page.mcp_server


def serve_one_tool(page: gr.Blocks, endpoint: str, written: Callable[[Any], str]) -> None:
    """Of a page launched with MCP, serve one endpoint as a tool and write what it gives by ``written``.

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
