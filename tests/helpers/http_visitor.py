"""A visitor who speaks Gradio's protocol over plain HTTP, as the page and scripts do."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr
import httpx
from helpers.waiting import PATIENCE_S
from starlette.requests import Request

API = "/gradio_api"
# The server closes an idle connection after five seconds; a request on its way at that moment would be lost.
LIMITS = httpx.Limits(keepalive_expiry=1.0)
PLAIN = httpx.Client(timeout=PATIENCE_S, limits=LIMITS)  # for single requests


class HttpVisitor:
    def __init__(self, url: str):
        self.http = httpx.Client(base_url=url, timeout=600, limits=LIMITS)
        config = self.http.get("/config").json()
        self.numbers = {entry["api_name"]: entry["id"] for entry in config["dependencies"]}
        self.events = [
            (entry["id"], len(entry["inputs"])) for entry in config["dependencies"] if not entry["queue"]
        ]
        described = self.http.get(f"{API}/info").json()["named_endpoints"]
        self.defaults = {
            name.removeprefix("/"): {
                one["parameter_name"]: one.get("parameter_default") for one in endpoint["parameters"]
            }
            for name, endpoint in described.items()
        }

    def post(self, path: str, body: Any) -> httpx.Response:
        """Post to Gradio, in ASCII, which can encode half of a surrogate pair."""
        headers = {"content-type": "application/json"}
        return self.http.post(f"{API}/{path}", content=json.dumps(body).encode(), headers=headers)

    def values(self, name: str, values: dict[str, Any]) -> list[Any]:
        """Return the values in the order of the endpoint's parameters, with defaults for the others."""
        return [values.get(parameter, default) for parameter, default in self.defaults[name].items()]

    def join(self, name: str, values: dict[str, Any], session: str) -> str:
        """Queue a job as the page does; return its id."""
        body = {"data": self.values(name, values), "fn_index": self.numbers[name], "session_hash": session}
        reply = self.post("queue/join", body)
        assert reply.status_code == 200, reply.text
        return reply.json()["event_id"]

    def messages(self, session: str) -> Iterator[dict[str, Any]]:
        with self.http.stream("GET", f"{API}/queue/data", params={"session_hash": session}) as stream:
            for line in stream.iter_lines():
                if line:
                    yield json.loads(line.removeprefix("data: "))

    def outcomes(self, session: str, count: int) -> dict[str, dict[str, Any]]:
        """Return the last message of each of the session's jobs by id."""
        ended: dict[str, dict[str, Any]] = {}
        with closing(self.messages(session)) as messages:
            for message in messages:
                assert message["msg"] != "unexpected_error", message
                if message["msg"] == "process_completed":
                    ended[message["event_id"]] = message
                if len(ended) == count:
                    break
        return ended

    def call(self, name: str, values: dict[str, Any], session: str | None = None) -> tuple[str, Any]:
        """Call an endpoint by name, as a script does; return the last event and its data."""
        reply = self.post(f"call/{name}", {"data": self.values(name, values), "session_hash": session})
        assert reply.status_code == 200, reply.text
        return self.answer(f"{API}/call/{name}/{reply.json()['event_id']}")

    def answer(self, path: str) -> tuple[str, Any]:
        event, data = "", None
        with self.http.stream("GET", path) as stream:
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = json.loads(line.removeprefix("data: "))
        return event, data


def request_from(address: str | None, session: str | None, **more: Any) -> gr.Request:
    """Return a request as Gradio passes it to a function; None is an unknown address or no session."""
    scope = {"type": "http", "headers": [], "client": address and (address, 1), **more}
    return gr.Request(Request(scope), session_hash=session)


def served(page: gr.Blocks, **options: Any) -> Iterator[str]:
    """Yield the address of a page while it is served."""
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **options)
    yield address
    page.close()
