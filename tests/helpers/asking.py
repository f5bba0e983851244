"""The jobs of a page with good values, the ways to request them, and odd requests over each."""

import importlib.util
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from helpers.http_visitor import API, HttpVisitor
from helpers.odd import ANYTHING, HEADER_LISTS, files, odd_bodies
from helpers.watched import Watched
from hypothesis import strategies as st

from specdemo.lab.lab_request import parse_lab
from specdemo.play.game import parse_turn
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import number_in
from specdemo.records.limits import flag, parse_config

HAS_MCP = importlib.util.find_spec("mcp") is not None
POSTED = ["queue/join", "call/run", "call/nope", "call/v2/run", "call/v2/nope", "run/run", "run/predict"]
POSTED += ["run/nope", "api/run", "cancel", "reset"]
MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True)
class Endpoint:
    """One of the jobs: good values by parameter, and the function that checks them."""

    good: dict[str, Any]
    parse: Callable[[dict[str, Any]], object]


def parse_run(values: dict[str, Any]) -> object:
    """Check the values as the endpoint does: ``auto`` replaces k."""
    raw = dict(values)
    if flag(raw, "auto", False):
        raw["k"] = "auto"
    del raw["auto"]
    return parse_config(raw)


RUN = {"prompt": "abc", "mode": "raw", "drafter": "draft-model", "k": 2, "auto": False, "temperature": 0}
RUN |= {"rule": "greedy", "max_new_tokens": 3, "seed": 0, "top_k": 0, "top_p": 1, "baseline": True}
ENDPOINTS = {
    "run": Endpoint({**RUN, "draft_alone": False}, parse_run),
    "play": Endpoint(
        {"text": "abc", "draft": " d", "second_draft": "", "written": [], "scores": {}}, parse_turn
    ),
    "prove": Endpoint(
        {"proof": "distribution", "prompts": 1, "temperature": 0.8, "draws": 1, "rule": "true-rule"}
        | {"prompt": "abc"},
        parse_proof,
    ),
    "measure": Endpoint(
        {"experiment": "draft-length", "k": 2, "temperature": 0, "max_new_tokens": 2, "prompts": 1}
        | {"prompt": "", "mode": "raw", "seed": 0},
        parse_lab,
    ),
    "quiz": Endpoint({"question": 1}, lambda raw: number_in(raw, len(QUESTIONS))),
    "generate": Endpoint({name: RUN[name] for name in RUN if name not in ("auto", "baseline")}, parse_config),
}


def tool_call(arguments: dict[str, Any]) -> dict[str, Any]:
    params = {"name": "generate", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def ways_in(visitor: HttpVisitor, name: str, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the path and body of every way to request this job."""
    data, number = visitor.values(name, values), visitor.numbers[name]
    ways = {
        "queue/join": {"data": data, "fn_index": number, "session_hash": uuid.uuid4().hex},
        f"call/{name}": {"data": data},
        f"call/v2/{name}": values,
        f"run/{name}": {"data": data, "fn_index": number},
    }
    return ways | ({"mcp/": tool_call(values)} if HAS_MCP and name == "generate" else {})


@dataclass(frozen=True)
class Odd:
    method: str
    path: str
    body: bytes | None
    headers: dict[bytes, bytes]

    def sent(self, http: httpx.Client) -> httpx.Response:
        """Send it; return the complete reply, unless it is an endless stream."""
        plain = http.build_request(self.method, self.path, content=self.body)
        headers = {name.lower(): value for name, value in plain.headers.raw} | self.headers
        request = httpx.Request(self.method, plain.url, headers=list(headers.items()), content=self.body)
        reply = http.send(request, stream=True)
        if "event-stream" not in reply.headers.get("content-type", ""):
            reply.read()
        reply.close()
        return reply


FETCHED = """/
/config
/theme.css
/manifest.json
/robots.txt
/favicon.ico
/nothing
/specdemo-static/stage/stage.js
/specdemo-static/player.html
/specdemo-traces/index.json
/specdemo-lab/run/five.json
/static/img/logo.svg
/?prompt={long}
/gradio_api/info
/gradio_api/openapi.json
/gradio_api/startup-events
/gradio_api/app_id
/gradio_api/theme.css
/gradio_api/mcp/
/gradio_api/mcp/schema
/gradio_api/queue/data?session_hash=nobody"""


@st.composite
def odd_requests(draw: Any, visitor: HttpVisitor, watched: Watched) -> Odd:
    """Draw a request over one of the ways in, with files, odd values or odd headers."""
    file, headers = files(watched.bait), dict(draw(HEADER_LISTS))
    way = draw(st.sampled_from(["fetch", "ask", "event", "job"]))
    if way == "fetch":
        method = draw(st.sampled_from(["GET", "HEAD", "OPTIONS"]))
        path = draw(st.sampled_from(FETCHED.splitlines())).format(long="x" * 60_001)
        return Odd(method, path, None, headers)
    headers = {name.encode(): value.encode() for name, value in MCP.items()} | headers
    if way == "ask":
        body = draw(odd_bodies() | file.map(lambda one: json.dumps([one]).encode()))
        paths = [*(f"{API}/{path}" for path in (*POSTED, "mcp/")), "/specdemo-traces", "/specdemo-lab/run"]
        return Odd("POST", draw(st.sampled_from(paths)), body, headers)
    if way == "event":
        sent = draw(events_of_the_page(visitor, watched))
        return Odd("POST", f"{API}/run/event", json.dumps(sent).encode(), headers)
    name = draw(st.sampled_from(list(ENDPOINTS)))
    key = draw(st.sampled_from(list(ENDPOINTS[name].good)))
    asked = ways_in(visitor, name, {**ENDPOINTS[name].good, key: draw(file)})
    path = draw(st.sampled_from(list(asked)))
    return Odd("POST", f"{API}/{path}", json.dumps(asked[path]).encode(), headers)


@st.composite
def events_of_the_page(draw: Any, visitor: HttpVisitor, watched: Watched) -> dict[str, Any]:
    """Draw what a press on the page sends, with other values."""
    number, count = draw(st.sampled_from(visitor.events))
    values = ANYTHING | files(watched.bait)
    more = {"event_data": values, "trigger_id": st.integers(0, 200)}
    return {
        "fn_index": number,
        "session_hash": draw(st.sampled_from(["abc", "d"])),
        "data": draw(st.lists(values, min_size=count, max_size=count)),
        **draw(st.fixed_dictionaries({}, optional=more)),
    }
