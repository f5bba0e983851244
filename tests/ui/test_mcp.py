"""The MCP tool ``generate``, through the real MCP client and a real server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client
from helpers.asking import HAS_MCP, MCP, tool_call
from helpers.http_visitor import PLAIN
from helpers.tiny import service_of, tiny_pair
from helpers.visitor import served_at_last
from helpers.waiting import PATIENCE_S, until

from specdemo.records.limits import UserError, parse_config
from specdemo.service.fairness import Visitor
from specdemo.ui import streams
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.http.visitors import visitor_of
from specdemo.ui.page import build_page, launch_options

GOOD = {"prompt": "abc <s>", "mode": "raw", "k": 3, "max_new_tokens": 12}
pytestmark = pytest.mark.skipif(not HAS_MCP, reason="the package mcp is not installed (gradio[mcp])")


@pytest.fixture(scope="module")
def live_url() -> Iterator[str]:
    """Yield the address of an MCP server around a tiny pair."""
    yield from served(build_page(service_of(tiny_pair())))


@pytest.fixture(scope="module")
def tools_url(replay: Any) -> Iterator[str]:
    """Yield the address of an MCP server around the replay service."""
    yield from served(build_page(replay))


def served(page: Any) -> Iterator[str]:
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **with_mcp(page, launch_options()))
    yield address
    page.close()


@asynccontextmanager
async def tool_session(url: str) -> Any:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with (
        streamable_http_client(f"{url}gradio_api/mcp/") as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def in_session(url: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    async def session() -> Any:
        async with tool_session(url) as session:
            return await ask(session)

    return asyncio.run(session())


def called(url: str, tool: str, **arguments: Any) -> Any:
    return in_session(url, lambda session: session.call_tool(tool, arguments))


def test_the_one_tool_is_generate_and_it_is_described(live_url):
    (tool,) = in_session(live_url, lambda session: session.list_tools()).tools
    assert tool.name == "generate" and tool.description.startswith("Write a text by speculative decoding")
    properties = tool.inputSchema["properties"]
    assert tool.inputSchema["required"] == ["prompt"]
    assert properties["k"]["anyOf"] == [{"type": "integer"}, {"const": "auto"}]
    assert all(about["description"] for about in properties.values())
    (schema,) = PLAIN.get(f"{live_url}gradio_api/mcp/schema").json()
    assert schema["name"] == "generate"
    reply = called(live_url, "run", prompt="x")
    assert reply.isError and "Unknown tool" in reply.content[0].text


def test_a_tool_call_returns_the_answer_of_the_endpoint_and_counts_towards_its_address(live_url, monkeypatch):
    seen = []

    def noted(request: Any) -> Any:
        seen.append(visitor_of(request))
        return seen[-1]

    monkeypatch.setattr(streams, "visitor_of", noted)
    reply = called(live_url, "generate", **GOOD)
    assert seen == [Visitor("127.0.0.1")], "and not to the one session of all tool calls"
    answer = json.loads(reply.content[0].text)
    client = Client(live_url, verbose=False)
    assert answer["text"] == client.predict(**GOOD, api_name="/generate")["text"]
    client.close()
    assert not reply.isError and answer["totals"]["identical"] is True


@contextmanager
def tool_call_under_way(url: str) -> Iterator[httpx.Response]:
    """Hold a call of the tool that is still running; hang up at the end."""
    message = tool_call({"prompt": "x", "mode": "raw", "max_new_tokens": 32})
    with (
        httpx.Client(timeout=PATIENCE_S) as http,
        http.stream("POST", f"{url}gradio_api/mcp/", json=message, headers=MCP) as reply,
    ):
        assert reply.status_code == 200
        yield reply


def test_a_tool_call_that_hangs_up_ends_its_run_within_a_round(tools_url, service):
    service.hold_at = 2
    with tool_call_under_way(tools_url):
        until(lambda: service.served == 2)
    assert served_at_last(service) <= 3


def test_a_tool_call_that_hangs_up_ends_no_other(tools_url, service):
    service.gap_s = 0.05
    with tool_call_under_way(tools_url) as staying:
        until(lambda: service.served > 1)
        with tool_call_under_way(tools_url):
            until(lambda: len(service.requests) == 2)
        service.go_on()
        events = [line.removeprefix("data: ") for line in staying.iter_lines() if line.startswith("data: ")]
    answer = json.loads(json.loads(events[-1])["result"]["content"][0]["text"])
    assert answer["sentence"] == service.replayed[-1]["sentence"] != "Stopped early."


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("HEAD", "", 405), ("PUT", "", 405), ("GET", "", 200), ("GET", "schema", 200)],
)
def test_mcp_addresses_reply_with_the_policy(tools_url, method, path, status):
    reply = httpx.request(method, f"{tools_url}gradio_api/mcp/{path}", timeout=PATIENCE_S)
    assert reply.status_code == status and "default-src" in reply.headers["content-security-policy"]


def test_a_bad_tool_call_gets_the_sentence(live_url):
    bad = {**GOOD, "rule": "rejection"}
    with pytest.raises(UserError) as sentence:
        parse_config(bad)
    reply = called(live_url, "generate", **bad)
    assert reply.isError and reply.content[0].text == str(sentence.value)


def test_the_switch_without_its_package_names_the_installation():
    code = (
        "import importlib.util, runpy, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'mcp' else found(name, *rest)\n"
        "sys.argv = ['app.py', '--mcp']\n"
        "runpy.run_path('app.py', run_name='__main__')"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=300)
    sentence = "specdemo: --mcp needs the package mcp; install the package with: pip install 'gradio[mcp]'.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)
