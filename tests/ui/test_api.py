"""The API endpoints and the MCP tool ``generate`` through real clients: their descriptions and answers."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from gradio_client import Client
from helpers.asking import HAS_MCP, MCP, tool_call
from helpers.http_visitor import PLAIN, served
from helpers.readme import example
from helpers.replay import proved
from helpers.stand_in import planted
from helpers.tiny import service_of, tiny_pair
from helpers.visitor import served_at_last
from helpers.waiting import PATIENCE_S, until

import specdemo
from specdemo.quiz.questions import QUESTIONS
from specdemo.records.limits import DRAFTERS, SCRIPTED
from specdemo.records.trace import SPECULATIVE
from specdemo.service.fairness import Visitor
from specdemo.service.jobs import JobKind
from specdemo.ui import streams
from specdemo.ui.api_endpoints import AnswerSoFar, Figures, with_mcp
from specdemo.ui.http.visitors import visitor_of
from specdemo.ui.page import build_page, launch_options

RUN = {"prompt": "The capital of France is", "mode": "raw", "k": 4, "max_new_tokens": 32}
GENERATE = {"prompt": "abc <s>", "mode": "raw", "k": 3, "max_new_tokens": 12}


def served_with_tools(page: Any) -> Iterator[str]:
    """Yield the address of a page, with an MCP server if the package is installed."""
    yield from served(page, **(with_mcp(page, launch_options()) if HAS_MCP else launch_options()))


@pytest.fixture(scope="module")
def pair() -> Any:
    return tiny_pair()


@pytest.fixture(scope="module")
def live_url(pair: Any) -> Iterator[str]:
    yield from served_with_tools(build_page(service_of(pair)))


@pytest.fixture(scope="module")
def replay_url(replay: Any) -> Iterator[str]:
    yield from served_with_tools(build_page(replay))


def client_of(url: str) -> Iterator[Any]:
    client = Client(url, verbose=False)
    yield client
    client.close()  # or it goes on asking for a server that is gone


@pytest.fixture(scope="module")
def client(replay_url: str) -> Iterator[Any]:
    yield from client_of(replay_url)


@pytest.fixture(scope="module")
def live_client(live_url: str) -> Iterator[Any]:
    yield from client_of(live_url)


def events_of(client: Any, endpoint: str, **values: Any) -> list[dict[str, Any]]:
    """Return the events of a job, without its progress."""
    events = [json.loads(line) for line in client.predict(**values, api_name=endpoint).splitlines()]
    return [event for event in events if event["type"] != "progress"]


def test_a_run_returns_its_events(client, service):
    events = events_of(client, "/run", **RUN)
    assert [event["type"] for event in events] == [event["type"] for event in service.replayed]
    assert events[-1] == service.replayed[-1]
    assert service.requests[-1].items() >= RUN.items()


def test_a_game_is_played_turn_by_turn(client, service):
    turn: dict[str, Any] = {"text": "I will get back to you", "draft": " as late"}
    for written in (" as s", " as soon a"):
        events = events_of(client, "/play", **turn)
        judged = {event["player"]: event["score"] for event in events if event["type"] == "judged"}
        assert events[-1]["text"] == turn["text"] + written
        turn |= {"draft": "oon ", "written": events[-1]["written"], "scores": judged}
    assert judged["one"]["rounds"] == 2 and judged["one"]["accepted"] == 8


def test_proofs_quiz_and_measurements_return_their_events(client, service):
    assert events_of(client, "/prove", proof="greedy", prompts=4) == proved("greedy")
    events_of(client, "/prove", rule="no-residual", draws=500)
    asked = {"proof": "distribution", "rule": "no-residual", "draws": 500, "prompt": "The sea is"}
    assert service.requests[-1].items() >= asked.items()

    service.outcomes["cost"] = (planted(speedup=1.7), planted(speedup=0.9))
    [cost] = [number for number, question in enumerate(QUESTIONS, 1) if question.name == "cost"]
    events = events_of(client, "/quiz", question=cost)
    assert [event["type"] for event in events] == ["question", "side", "side", "verdict"]
    assert events[-1]["option"] == 2

    events = events_of(client, "/measure", experiment="overhead", max_new_tokens=4)
    assert [event["type"] for event in events] == ["experiment", "point", "point", "end"]


PARAMETERS = {
    "/generate": "prompt mode drafter k temperature rule max_new_tokens seed top_k top_p repeats pair",
    "/measure": "experiment k temperature max_new_tokens prompts prompt mode seed pair",
    "/play": "text draft second_draft written scores pair",
    "/prove": "proof prompts temperature draws rule prompt pair",
    "/quiz": "question pair",
    "/run": "prompt mode drafter k auto temperature rule max_new_tokens seed top_k top_p baseline "
    "draft_alone repeats pair",
}


def test_every_endpoint_describes_its_parameters(client):
    endpoints = client.view_api(return_format="dict")["named_endpoints"]
    parameters = {
        name: {p["parameter_name"]: p for p in one["parameters"]} for name, one in endpoints.items()
    }
    names = {name: " ".join(described) for name, described in parameters.items()}
    assert names == PARAMETERS, "and no endpoint for the page's own wiring"
    for name, endpoint in endpoints.items():
        assert len(endpoint["description"]) > 40, name
        for described in (*endpoint["parameters"], *endpoint["returns"]):
            label = described["label"]
            assert label and not label.startswith(("parameter_", "value_")), (name, described)
            assert described["python_type"]["type"] != "Any", (name, described)
    for name in ("/measure", "/prove"):
        assert all(f"``{one}``" in endpoints[name]["description"] for one in parameters[name]), name
        assert all(described["parameter_has_default"] for described in parameters[name].values())
    described = parameters["/generate"]
    assert [name for name, one in described.items() if not one["parameter_has_default"]] == ["prompt"]
    assert described["mode"]["python_type"]["type"] == "Literal['chat', 'raw']"
    assert all(drafter in described["drafter"]["label"] for drafter in DRAFTERS if drafter != SCRIPTED)
    assert "speedup: None | float" in endpoints["/generate"]["returns"][0]["python_type"]["type"]


def test_generate_returns_the_target_s_text_with_its_figures(live_client, pair):
    drawn = {"seed": 5, "temperature": 0.8, "rule": "shared-noise"}
    answer = live_client.predict(**GENERATE, **drawn, api_name="/generate")
    settings = {name: value for name, value in GENERATE.items() if name != "prompt"}
    run = specdemo.compare(pair, GENERATE["prompt"], **settings, **drawn)
    kept = [token for token in run.lanes[SPECULATIVE].ids if token not in run.specials]
    assert answer["text"] == pair.pieces.text(kept)
    totals = answer["totals"]
    assert totals["identical"] is True and totals["speedup"] > 0
    assert all(totals[name] == run.totals[name] for name in ("tokens", "tau", "alpha_compared", "divergence"))
    assert totals.keys() == Figures.__annotations__.keys()
    assert answer["pair"] == {"target": "tiny target", "draft": "tiny draft"}
    assert answer["device"] == pair.place
    assert (
        answer["sentence"].startswith("Same text") and " target passes instead of 12." in answer["sentence"]
    )


def test_generated_text_grows_during_the_run(pair):
    answer, growing = AnswerSoFar(), []
    for event in service_of(pair).events(JobKind.RUN, {**GENERATE, "baseline": False}, lambda: False):
        answer.add(event)
        growing.append(answer.copy())
    *growing, last = growing
    texts = [answer["text"] for answer in growing]
    assert len(set(texts)) > 3 and all(last["text"].startswith(text) for text in texts)
    assert growing[0]["totals"] is None and growing[-1]["sentence"] == "" != last["sentence"]


def test_control_tokens_discarded_tokens_and_other_lanes_are_no_text():
    drafted = [{"id": 2, "status": "accepted"}, {"id": 2, "status": "discarded"}]
    pieces = {"pieces": {1: "PC9zPg==", 2: "w6k="}, "specials": [1], "run": {"device": "d", "pair": {}}}
    answer, totals = AnswerSoFar(), dict.fromkeys(Figures.__annotations__)
    answer.add({"type": "start", **pieces})
    for lane in ("speculative", "baseline"):
        done = {"drafted": drafted, "emission": {"id": 1}}
        answer.add({"type": "round", "lane": lane, "round": done, "totals": totals})
    assert answer.copy()["text"] == "é"


def test_the_readme_s_client_example_works(live_url, capsys):
    exec(example("gradio_client").replace("http://127.0.0.1:7860", live_url), {})
    printed = capsys.readouterr().out
    assert "Same text. " in printed
    assert int(printed.splitlines()[-1].removesuffix(" events so far")) > 10


def test_a_client_that_disconnects_ends_its_run(replay_url, service):
    service.gap_s = 0.1
    values = ["abc", "raw", "draft-model", 3, 0, None, 12, 0, 0, 1, 1, ""]
    joined = PLAIN.post(f"{replay_url}gradio_api/call/generate", json={"data": values})
    with PLAIN.stream("GET", f"{replay_url}gradio_api/call/generate/{joined.json()['event_id']}") as reply:
        assert any(service.served > 2 for _ in reply.iter_lines())
    rounds = sum(event["type"] == "round" for event in service.replayed)
    assert 2 < served_at_last(service) < rounds


needs_mcp = pytest.mark.skipif(not HAS_MCP, reason="the package mcp is not installed (gradio[mcp])")


def in_tool_session(url: str, *calls: tuple[str, dict[str, Any]]) -> Any:
    """Return the listed tools, and the replies to calls of tools."""

    async def session() -> Any:
        from mcp import ClientSession
        from mcp.client.streamable_http import streamable_http_client

        async with (
            streamable_http_client(f"{url}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            listed = await session.list_tools()
            return listed.tools, *[await session.call_tool(*call) for call in calls]

    return asyncio.run(session())


@needs_mcp
def test_the_one_tool_is_generate_and_it_is_described(live_url):
    (tool,), unknown, bad = in_tool_session(
        live_url, ("run", {"prompt": "x"}), ("generate", {**GENERATE, "rule": "rejection"})
    )
    assert tool.name == "generate" and tool.description.startswith("Write a text by speculative decoding")
    properties = tool.inputSchema["properties"]
    assert tool.inputSchema["required"] == ["prompt"]
    assert properties["k"]["anyOf"] == [{"type": "integer"}, {"const": "auto"}]
    assert all(about["description"] for about in properties.values())
    assert [one["name"] for one in PLAIN.get(f"{live_url}gradio_api/mcp/schema").json()] == ["generate"]
    assert unknown.isError and "Unknown tool" in unknown.content[0].text
    assert bad.isError and "needs a temperature" in bad.content[0].text


@needs_mcp
def test_a_tool_call_returns_the_answer_of_the_endpoint_and_counts_towards_its_address(
    live_url, live_client, monkeypatch
):
    seen = []

    def noted(request: Any) -> Any:
        seen.append(visitor_of(request))
        return seen[-1]

    with monkeypatch.context() as patch:
        patch.setattr(streams, "visitor_of", noted)
        _, reply = in_tool_session(live_url, ("generate", GENERATE))
    assert seen == [Visitor("127.0.0.1")], "and not to the one session of all tool calls"
    answer = json.loads(reply.content[0].text)
    assert answer["text"] == live_client.predict(**GENERATE, api_name="/generate")["text"]
    assert not reply.isError and answer["totals"]["identical"] is True


@needs_mcp
def test_a_page_that_is_closed_calls_itself_no_more(pair):
    page = build_page(service_of(pair))
    serving = served_with_tools(page)
    in_tool_session(next(serving), ("generate", GENERATE))
    client = page.mcp_server_obj._client_instance
    assert client.heartbeat.is_alive(), "while it is served"
    assert next(serving, None) is None
    assert not client.heartbeat.is_alive()


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


@pytest.mark.slow
@needs_mcp
def test_a_tool_call_that_hangs_up_ends_its_run_within_a_round(replay_url, service):
    service.hold_at = 2
    with tool_call_under_way(replay_url):
        until(lambda: service.served == 2)
    assert served_at_last(service) <= 3


@pytest.mark.slow
@needs_mcp
def test_a_tool_call_that_hangs_up_ends_no_other(replay_url, service):
    service.gap_s = 0.05
    with tool_call_under_way(replay_url) as staying:
        until(lambda: service.served > 1)
        with tool_call_under_way(replay_url):
            until(lambda: len(service.requests) == 2)
        service.go_on()
        events = [line.removeprefix("data: ") for line in staying.iter_lines() if line.startswith("data: ")]
    answer = json.loads(json.loads(events[-1])["result"]["content"][0]["text"])
    end = service.replayed[-1]
    assert answer["sentence"] == f"{end['sentence']} {end['remarks']}"
