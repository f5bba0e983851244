"""The guard in front of the server: headers, closed addresses, limited bodies, hidden failures."""

import json
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from http.client import HTTPResponse
from typing import Any

import gradio as gr
import httpx
import pytest
from helpers.http_visitor import PLAIN, served
from helpers.stand_in import StandIn
from helpers.waiting import PATIENCE_S
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from specdemo.records.limits import MAX_PROMPT_CHARS
from specdemo.ui.http import guard
from specdemo.ui.http.gradio_requests import API
from specdemo.ui.page import build_page, launch_options

HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin"}


async def _broken(_request: Request) -> None:
    raise KeyError("/secret/path.py")


async def _parts(last: Exception | None) -> AsyncIterator[bytes]:
    yield b"data: 1\n\n"
    if last:
        raise last


def _stream(kind: str, last: Exception | None) -> Any:
    return lambda _request: StreamingResponse(_parts(last), media_type=kind)


@cache
def small_page() -> gr.Blocks:
    with gr.Blocks() as page:
        gr.Textbox()
    return page


def guarded(lifespan: Any, routes: Sequence[Route] = ()) -> TestClient:
    """Return a client of the guard around a small app."""
    app: Any = Starlette(routes=routes, lifespan=lifespan)
    app.root_path, app.get_blocks = "", small_page
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    routes = [
        Route("/assets/broken", _broken),
        Route("/assets/fine", lambda _: PlainTextResponse("fine")),
        Route("/assets/teapot", lambda _: PlainTextResponse("Traceback: /etc/x.py", 418)),
        Route("/assets/stream", _stream("text/event-stream", HTTPException(404))),
        Route("/assets/failing", _stream("text/event-stream", RuntimeError("/secret"))),
    ]
    with guarded(guard.lifespan(), routes) as client:
        yield client


def test_every_reply_has_the_headers_and_an_error_is_a_sentence_without_its_cause(client):
    expected = {"default-src 'self'", "connect-src 'self'", "object-src 'none'", "base-uri 'self'"}
    failed = "The request failed inside the program; please try again."
    errors = {"none": (404, guard.SENTENCES[404]), "teapot": (418, guard.OTHERWISE), "broken": (500, failed)}
    for path, (status, error) in {"fine": (200, None), **errors}.items():
        reply = client.get(f"/assets/{path}")
        assert reply.status_code == status and (not error or reply.json() == {"error": error})
        assert reply.headers.items() >= HEADERS.items() and "camera=()" in reply.headers["permissions-policy"]
        policy = reply.headers["content-security-policy"].split("; ")
        assert {*expected, "frame-ancestors 'self'"} <= set(policy)
    for path in ("/assets/stream", "/assets/failing"):
        reply = client.get(path)
        assert (reply.status_code, reply.content) == (200, b"data: 1\n\n"), "a stream that fails just ends"
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect(f"{API}/x"):
        pass
    assert closed.value.code == 1008


@pytest.mark.parametrize(
    ("space", "names", "sources"),
    [
        ("", [], []),
        ("", ["blog.example"], ["blog.example:*"]),
        ("me/demo", ["blog.example"], ["https://huggingface.co", "https://*.hf.space", "blog.example:*"]),
    ],
)
def test_a_space_s_hub_and_the_allowed_sites_may_frame_the_page(monkeypatch, space, names, sources):
    monkeypatch.setenv("SPACE_ID", space)
    with guarded(guard.lifespan(framed_by=names)) as client:
        policy = client.get("/").headers["content-security-policy"]
    assert policy.endswith("; " + " ".join(["frame-ancestors 'self'", *sources]))


def test_a_body_is_bounded_without_a_content_length(url):
    parts = iter([b'{"event_id": "', b"x" * guard.MAX_BODY, b'"}'])
    reply = PLAIN.post(f"{url}gradio_api/reset", content=parts)
    assert (reply.status_code, reply.json()) == (413, {"error": guard.SENTENCES[413]})


def test_the_longest_prompt_fits_however_it_is_written(url, service):
    for prompt in ("\N{GRINNING FACE}" * MAX_PROMPT_CHARS, "[" * MAX_PROMPT_CHARS, "," * MAX_PROMPT_CHARS):
        body = json.dumps({"prompt": prompt, "max_new_tokens": 1})
        headers = {"content-type": "application/json"}
        reply = PLAIN.post(f"{url}gradio_api/call/v2/run", content=body, headers=headers)
        assert reply.status_code == 200
        answer = PLAIN.get(f"{url}gradio_api/call/run/{reply.json()['event_id']}").text
        assert "event: complete" in answer and service.requests[-1]["prompt"] == prompt


def test_a_body_that_stalls_is_given_up(url, monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.1)
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_S) as line:
        head = f"POST {API}/reset HTTP/1.1\r\nHost: {address.netloc.decode()}\r\nContent-Length: 9\r\n\r\n"
        line.sendall(head.encode() + b"{")
        reply = HTTPResponse(line)
        reply.begin()
        assert (reply.status, json.loads(reply.read())) == (408, {"error": guard.SENTENCES[408]})


def test_events_are_streamed(url, service):
    service.hold_at = 3
    body = {"data": ["abc", "raw", "draft-model", 4, False, 0, "greedy", 32, 0, 0, 1, True, False, 1, ""]}
    event = PLAIN.post(f"{url}gradio_api/call/run", json=body).json()["event_id"]
    came = []
    with PLAIN.stream("GET", f"{url}gradio_api/call/run/{event}") as stream:
        assert stream.headers["x-content-type-options"] == "nosniff"
        for line in stream.iter_lines():
            came += [service.served] if line == "event: generating" else []
            if came:  # before the rest is there
                service.go_on()
    assert came[0] <= 3 and len(came) > 2


def test_the_offline_page_has_a_stricter_policy_and_other_routes_of_gradio_are_closed(url):
    policy = PLAIN.get(f"{url}specdemo-static/player.html").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src" not in policy
    assert PLAIN.get(f"{url}gradio_api/mcp/schema").status_code == 404, "without an MCP server"
    # Gradio's page requests this after a lost connection until it gets a reply, then reloads itself.
    assert PLAIN.get(f"{url}gradio_api/app_id").json()["app_id"]
    for path in ("", "config", "config/"):  # these replies contain the host name of the request
        assert PLAIN.get(f"{url}{path}").headers["cache-control"] == "no-store"


@pytest.fixture(scope="module")
def proxied_url(replay: StandIn) -> Iterator[str]:
    """Yield the address of a page that a proxy shows under a folder."""
    for address in served(build_page(replay), root_path="/specdemo", **launch_options()):
        yield address.removesuffix("specdemo/").rstrip("/")


@pytest.mark.parametrize("folder", ["", "/specdemo"], ids=["taken off", "left in the path"])
def test_everything_works_behind_a_proxy_with_a_folder_and_a_preview_names_it(proxied_url, folder):
    opened = f"/ /config /specdemo-static/stage/stage.js /specdemo-traces/index.json {API}/info /theme.css"
    for path in opened.split():
        assert PLAIN.get(f"{proxied_url}{folder}{path}").status_code == 200, path
    for path in (f"{API}/file=/etc/passwd", "/specdemo-static/../page.py", "/specdemo-static/%2e%2e/page.py"):
        assert PLAIN.get(f"{proxied_url}{folder}{path}").status_code == 404, path
    assert f'content="{proxied_url}/specdemo/"' in PLAIN.get(f"{proxied_url}{folder}/").text
    replay = PLAIN.get(f"{proxied_url}{folder}/?embed=1")
    assert (
        "frame-ancestors" not in replay.headers["content-security-policy"] and "mountEmbedded" in replay.text
    )
