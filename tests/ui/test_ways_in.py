"""The API endpoint ``generate`` and the same as an MCP tool, through real clients and a real server."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from helpers.asking import MCP
from helpers.readme import example
from helpers.tiny import service_of, tiny_pair
from helpers.visitor import served_at_last, wait_until

import app
import specdemo
from specdemo.records.limits import DRAFTERS, SCRIPTED, UserError, parse_config
from specdemo.records.trace import SPECULATIVE
from specdemo.service.jobs import JobKind
from specdemo.service.shares import Visitor
from specdemo.ui import api_endpoints, streams
from specdemo.ui.http.visitors import visitor_of
from specdemo.ui.page import build_page, launch_options

GOOD = {"prompt": "abc <s>", "mode": "raw", "k": 3, "max_new_tokens": 12}
needs_mcp = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason="the package mcp is not installed (gradio[mcp])"
)


@pytest.fixture(scope="module")
def pair() -> Any:
    """A small pair with nothing to fetch."""
    return tiny_pair()


@pytest.fixture(scope="module")
def live_url(pair: Any) -> Iterator[str]:
    """The address of a page around the real service; an MCP server where it can be one."""
    page = build_page(service_of(pair))
    there = importlib.util.find_spec("mcp") is not None
    options = api_endpoints.with_mcp(page, launch_options()) if there else launch_options()
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **options)
    yield address
    page.close()


@pytest.fixture(scope="module")
def client(live_url: str) -> Iterator[Any]:
    """A client of that page."""
    client = Client(live_url, verbose=False)
    yield client
    client.close()  # or it goes on asking for a server that is gone


def test_generate_gives_the_text_of_the_target_with_its_figures(client, pair):
    answer = client.predict(**GOOD, seed=5, temperature=0.8, rule="shared-noise", api_name="/generate")
    settings = {name: value for name, value in GOOD.items() if name != "prompt"}
    run = specdemo.compare(pair, GOOD["prompt"], **settings, seed=5, temperature=0.8, rule="shared-noise")
    kept = [token for token in run.lanes[SPECULATIVE].ids if token not in run.specials]
    assert answer["text"] == pair.pieces.text(kept)
    assert answer["totals"]["identical"] is True and answer["totals"]["speedup"] > 0
    for name in ("tokens", "tau", "alpha_compared", "divergence"):
        assert answer["totals"][name] == run.totals[name]
    assert answer["totals"].keys() == api_endpoints.Figures.__annotations__.keys()
    assert (
        answer["pair"] == {"target": "tiny target", "draft": "tiny draft"} and answer["device"] == pair.place
    )
    assert answer["sentence"].startswith("Same text") and " passes instead of 12." in answer["sentence"]


def test_a_text_grows_while_it_is_written_and_control_tokens_are_left_out(pair):
    answer, growing = api_endpoints.AnswerSoFar(), []
    for event in service_of(pair).events(JobKind.RUN, {**GOOD, "baseline": False}, lambda: False):
        answer.add(event)
        growing.append(answer.copy())
    *growing, last = growing
    texts = [answer["text"] for answer in growing]
    assert len(set(texts)) > 3 and all(last["text"].startswith(text) for text in texts)
    assert growing[0]["totals"] is None and growing[-1]["sentence"] == "" != last["sentence"]


def test_control_tokens_are_no_text():
    pieces = {1: "PC9zPg==", 2: "w6k="}
    start = {"type": "start", "run": {"device": "d", "pair": {}}, "pieces": pieces, "specials": [1]}
    emitted = [
        {"drafted": [{"id": 2, "status": "accepted"}, {"id": 2, "status": "discarded"}]},
        {"drafted": []},
    ]
    totals = dict.fromkeys(api_endpoints.Figures.__annotations__)
    rounds = [
        {"type": "round", "lane": lane, "round": round_ | {"emission": {"id": 1}}, "totals": totals}
        for round_ in emitted
        for lane in ("speculative", "baseline")
    ]
    answer = api_endpoints.AnswerSoFar()
    for event in (start, *rounds):
        answer.add(event)
    assert answer.copy()["text"] == "é"


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 99},
        {"k": "four"},
        {"k": 3.7},
        {"temperature": float("1e9")},
        {"temperature": "NaN"},
        {"mode": "shout"},
        {"rule": "rejection"},
        {"max_new_tokens": 1.5},
        {"prompt": ""},
        {"prompt": ["no", "text"]},
        {"seed": True},
        {"drafter": "oracle"},
    ],
    ids=str,
)
def test_a_bad_value_is_refused_with_the_sentence_of_the_limits(client, wrong):
    with pytest.raises(UserError) as sentence:
        parse_config({**GOOD, **wrong})
    with pytest.raises(AppError) as refused:
        client.predict(**{**GOOD, **wrong}, api_name="/generate")
    assert str(refused.value) == str(sentence.value)


def test_every_endpoint_says_what_its_parameters_are(client):
    endpoints = client.view_api(return_format="dict")["named_endpoints"]
    assert sorted(endpoints) == ["/generate", "/measure", "/play", "/prove", "/quiz", "/run"]
    for name, endpoint in endpoints.items():
        assert len(endpoint["description"]) > 40, name
        for parameter in (*endpoint["parameters"], *endpoint["returns"]):
            label = parameter["label"]
            assert label and not label.startswith(("parameter_", "value_")), (name, parameter)
            assert parameter["python_type"]["type"] != "Any", (name, parameter)
    described = {p["parameter_name"]: p for p in endpoints["/generate"]["parameters"]}
    names = "prompt mode drafter k temperature rule max_new_tokens seed top_k top_p pair"
    assert list(described) == names.split()
    assert [name for name, about in described.items() if not about["parameter_has_default"]] == ["prompt"]
    assert described["mode"]["python_type"]["type"] == "Literal['chat', 'raw']"
    assert all(drafter in described["drafter"]["label"] for drafter in DRAFTERS if drafter != SCRIPTED)
    assert "speedup: None | float" in endpoints["/generate"]["returns"][0]["python_type"]["type"]


def test_who_goes_away_ends_the_run(url, service):
    service.gap_s = 0.1
    values = ["abc", "raw", "draft-model", 3, 0, None, 12, 0, 0, 1, ""]
    joined = httpx.post(f"{url}gradio_api/call/generate", json={"data": values})
    with httpx.stream("GET", f"{url}gradio_api/call/generate/{joined.json()['event_id']}") as reply:
        assert any(service.served > 2 for _ in reply.iter_lines())
    rounds = sum(event["type"] == "round" for event in service.replayed)
    assert 2 < served_at_last(service) < rounds


def test_the_readmes_example_of_a_client_runs_as_it_stands(live_url, capsys):
    exec(example("gradio_client").replace("http://127.0.0.1:7860", live_url), {})
    printed = capsys.readouterr().out
    assert "Same text" in printed
    assert int(printed.splitlines()[-1].removesuffix(" events so far")) > 10


@asynccontextmanager
async def tool_session(url: str) -> Any:
    """A session of the real MCP client."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with (
        streamable_http_client(f"{url}gradio_api/mcp/") as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def tools_of(url: str) -> Any:
    async def ask() -> Any:
        async with tool_session(url) as session:
            return (await session.list_tools()).tools

    return asyncio.run(ask())


def called(url: str, tool: str, **arguments: Any) -> Any:
    async def ask() -> Any:
        async with tool_session(url) as session:
            return await session.call_tool(tool, arguments)

    return asyncio.run(ask())


@needs_mcp
def test_the_one_tool_is_generate_and_it_is_described(live_url):
    (tool,) = tools_of(live_url)
    assert tool.name == "generate" and tool.description.startswith("Write a text by speculative decoding")
    properties = tool.inputSchema["properties"]
    assert tool.inputSchema["required"] == ["prompt"]
    assert properties["k"]["anyOf"] == [{"type": "integer"}, {"const": "auto"}]
    assert all(about["description"] for about in properties.values())
    (schema,) = httpx.get(f"{live_url}gradio_api/mcp/schema").json()
    assert schema["name"] == "generate"


@needs_mcp
def test_a_tool_call_gives_what_the_endpoint_gives(live_url, client):
    reply = called(live_url, "generate", **GOOD)
    assert not reply.isError
    answer = json.loads(reply.content[0].text)
    assert answer["text"] == client.predict(**GOOD, api_name="/generate")["text"]
    assert answer["totals"]["identical"] is True


@pytest.fixture(scope="module")
def tools_url(replay: Any) -> Iterator[str]:
    """The address of an MCP server around the replay service."""
    page = build_page(replay)
    options = api_endpoints.with_mcp(page, launch_options())
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **options)
    yield address
    page.close()


@contextmanager
def tool_call_under_way(url: str) -> Iterator[httpx.Response]:
    """A call of the tool whose answer is still to come; it is hung up at the end."""
    params = {"name": "generate", "arguments": {"prompt": "x", "mode": "raw", "max_new_tokens": 32}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with (
        httpx.Client(timeout=60) as http,
        http.stream("POST", f"{url}gradio_api/mcp/", json=message, headers=MCP) as reply,
    ):
        assert reply.status_code == 200
        yield reply


@needs_mcp
def test_a_tool_call_that_hangs_up_ends_its_run_within_a_round(tools_url, service):
    service.gap_s = 0.2
    with tool_call_under_way(tools_url):
        wait_until(lambda: service.served > 1)
        seen = service.served
    assert served_at_last(service) <= seen + 2


@needs_mcp
def test_a_tool_call_that_hangs_up_ends_no_other(tools_url, service):
    service.gap_s = 0.05
    with tool_call_under_way(tools_url) as staying:
        wait_until(lambda: service.served > 1)
        with tool_call_under_way(tools_url):
            wait_until(lambda: len(service.requests) == 2)
        events = [line.removeprefix("data: ") for line in staying.iter_lines() if line.startswith("data: ")]
    answer = json.loads(json.loads(events[-1])["result"]["content"][0]["text"])
    assert answer["sentence"] == service.replayed[-1]["sentence"] != "Stopped early."


@needs_mcp
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "sse", 404),
        ("GET", "sse", 404),
        ("POST", "messages/", 404),
        ("HEAD", "", 405),
        ("PUT", "", 405),
        ("GET", "", 200),
        ("GET", "schema", 200),
    ],
)
def test_only_the_promised_mcp_addresses_are_served(tools_url, capfd, method, path, status):
    reply = httpx.request(method, f"{tools_url}gradio_api/mcp/{path}", timeout=5)
    assert reply.status_code == status
    assert "default-src" in reply.headers["content-security-policy"]
    if status >= 400 and method != "HEAD":
        assert reply.json()["error"].endswith(".")
    assert "Traceback" not in capfd.readouterr().err


@needs_mcp
def test_a_tool_call_counts_to_the_share_of_its_caller_s_address(live_url, monkeypatch):
    seen = []

    def noted(request: Any) -> Any:
        seen.append(visitor_of(request))
        return seen[-1]

    monkeypatch.setattr(streams, "visitor_of", noted)
    assert not called(live_url, "generate", **GOOD).isError
    assert seen == [Visitor("127.0.0.1")], "and not to the one session of all tool calls"


@needs_mcp
@pytest.mark.parametrize("wrong", [{"k": 99}, {"prompt": " "}, {"rule": "rejection"}], ids=str)
def test_a_bad_tool_call_gets_the_sentence(live_url, wrong):
    with pytest.raises(UserError) as sentence:
        parse_config({**GOOD, **wrong})
    reply = called(live_url, "generate", **{**GOOD, **wrong})
    assert reply.isError and reply.content[0].text == str(sentence.value)


@needs_mcp
@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://localhost:6274"}, 200),
    ],
    ids=str,
)
def test_other_sites_pages_have_no_tools(live_url, header, status):
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepted = {"Accept": "application/json, text/event-stream"}
    reply = httpx.post(f"{live_url}gradio_api/mcp/", json=asked, headers=accepted | header)
    assert reply.status_code == status and ("generate" in reply.text) == (status == 200)


@needs_mcp
def test_no_other_endpoint_is_a_tool(live_url):
    reply = called(live_url, "run", prompt="x")
    assert reply.isError and "Unknown tool" in reply.content[0].text


def test_the_switch_without_its_package_says_what_to_install():
    code = (
        "import importlib.util, runpy, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'mcp' else found(name, *rest)\n"
        "sys.argv = ['app.py', '--mcp']\n"
        "runpy.run_path('app.py', run_name='__main__')"
    )
    root = Path(app.__file__).parent
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=300)
    said = "specdemo: --mcp needs the package mcp; install it with: pip install 'gradio[mcp]'.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_the_switch_is_an_option_or_a_variable(monkeypatch):
    monkeypatch.delenv("SPECDEMO_MCP", raising=False)
    assert not app.parse_settings([]).mcp and app.parse_settings(["--mcp"]).mcp
    monkeypatch.setenv("SPECDEMO_MCP", "1")
    assert app.parse_settings([]).mcp
