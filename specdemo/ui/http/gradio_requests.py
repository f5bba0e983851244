"""Checks of requests to Gradio's own addresses; without them, invalid requests would make Gradio fail."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gradio as gr

from specdemo.records.limits import UserError
from specdemo.ui.http.gradio_internals import (
    BlockFunction,
    functions,
    is_pending,
    page_names,
    public_endpoints,
)
from specdemo.ui.http.posts import RefusedError, object_in

API = "/gradio_api"
_SESSION = re.compile(r"[\w-]{1,64}", re.ASCII)
_ENDPOINT = re.compile(r"call/(?P<by_name>v2/)?(?P<name>[^/]+)/?")
_DIRECT = re.compile(r"run/(?P<name>[^/]+)/?")
_EVENT = re.compile(r"call/(?:v2/)?[^/]+/(?P<event>[^/]+)")
_TYPES: dict[str, tuple[type, ...]] = {
    "session_hash": (str, type(None)),
    "event_id": (str, type(None)),
    "oauth_token": (str, type(None)),
    "fn_index": (int, type(None)),
    "trigger_id": (int, type(None)),
    "simple_format": (bool,),
    "batched": (bool, type(None)),
    "data": (list,),
}


def check_query(page: gr.Blocks, path: str, query: Mapping[str, str]) -> None:
    """Refuse a GET request for a page, session or event that does not exist; ``path`` is decoded."""
    if path == "/" and query.get("page", "") not in page_names(page):
        raise RefusedError(404, "There is no such page; remove “page” from the address.")
    asked = path.removeprefix(f"{API}/")
    if asked == "queue/data":
        _check_session(query.get("session_hash"))
    if asked.startswith("heartbeat/"):
        _check_session(asked.removeprefix("heartbeat/"))
    if (named := _EVENT.fullmatch(asked)) and not is_pending(page, named["event"]):
        raise RefusedError(
            404, "There is no such event, or the answer was fetched before; call the endpoint again."
        )


def check_body(page: gr.Blocks, path: str, body: bytes) -> None:
    """Refuse a POST request whose body Gradio could not handle; ``path`` is decoded."""
    sent, asked = object_in(body), path.removeprefix(f"{API}/")
    if named := _ENDPOINT.fullmatch(asked):
        _check_call(page, named["name"], sent, by_name=bool(named["by_name"]))
    elif named := _DIRECT.fullmatch(asked):
        _check_direct(page, named["name"], sent)
    elif asked == "queue/join":
        _check_types(sent)
        _check_session(sent.get("session_hash"))
        _check_event(_by_index(page, sent.get("fn_index")), sent)
    elif asked == "cancel":
        _check_types(sent)
        _check_session(sent.get("session_hash"))
        _by_index(page, sent.get("fn_index"))
        _check_text(sent, "event_id")
    else:
        _check_text(sent, "event_id")


def _check_call(page: gr.Blocks, name: str, sent: dict[str, Any], by_name: bool) -> None:
    public = _public_endpoints(page)
    if name not in public:
        raise RefusedError(404, f"There is no such endpoint; choose one of: {', '.join(sorted(public))}.")
    if by_name:
        return _check_parameters(name, public[name], sent)
    _check_types(sent)
    if sent.get("session_hash") is not None:
        _check_session(sent["session_hash"])
    asked = next(fn for fn in functions(page).values() if fn.api_name == name)
    return _check_count(sent, len(asked.inputs))


def _check_parameters(name: str, has_default: Mapping[str, bool], sent: dict[str, Any]) -> None:
    if any(parameter not in has_default for parameter in sent):
        raise UserError(
            f"{name} accepts only these parameters: {', '.join(has_default)}; leave out all others."
        )
    for parameter, optional in has_default.items():
        if parameter not in sent and not optional:
            raise UserError(f"{name} needs the parameter {parameter}; add {parameter} to the request.")


@lru_cache(maxsize=1)
def _public_endpoints(page: gr.Blocks) -> dict[str, dict[str, bool]]:
    """Return for each endpoint whether each of its parameters has a default value."""
    return {
        name.removeprefix("/"): {
            str(parameter["parameter_name"]): bool(parameter["parameter_has_default"])
            for parameter in endpoint["parameters"]
        }
        for name, endpoint in public_endpoints(page).items()
    }


def _check_direct(page: gr.Blocks, name: str, sent: dict[str, Any]) -> None:
    """Check a call that skips the queue and names its function by number; only the page makes such calls."""
    _check_types(sent)
    if sent.get("session_hash") is not None:
        _check_session(sent["session_hash"])
    fn = _by_index(page, sent.get("fn_index"))
    if fn.queue:
        raise RefusedError(
            404, f"This endpoint has a queue; post to {API}/call/NAME with the endpoint's name."
        )
    _check_event(fn, sent)


def _check_event(fn: BlockFunction, sent: dict[str, Any]) -> None:
    _check_count(sent, len(fn.inputs))
    if fn.collects_event_data and not isinstance(sent.get("event_data"), dict):
        raise UserError("event_data must be an object that describes the event on the page.")


def _by_index(page: gr.Blocks, index: object) -> BlockFunction:
    there = functions(page)
    if not isinstance(index, int) or isinstance(index, bool) or index not in there or there[index].fn is None:
        raise UserError("fn_index must be a number from this page's configuration; reload the page.")
    return there[index]


def _check_types(sent: dict[str, Any]) -> None:
    for name, kinds in _TYPES.items():
        if name in sent and type(sent[name]) not in kinds:
            wanted = {list: "a list", str: "text", int: "a whole number", bool: "true or false"}[kinds[0]]
            raise UserError(f"{name} must be {wanted}.")
    if sent.get("batched"):
        raise UserError("Batches are not allowed; leave out “batched”.")


def _check_session(session: object) -> None:
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        raise UserError("session_hash must be 1 to 64 letters, digits or dashes.")


def _check_text(sent: dict[str, Any], name: str) -> None:
    if not isinstance(sent.get(name), str) or len(sent[name]) > 64:
        raise UserError(f"{name} must be text of at most 64 characters.")


def _check_count(sent: dict[str, Any], expected: int) -> None:
    count = len(sent["data"]) if "data" in sent else None
    if count != expected:
        found = "none" if count is None else f"{count:,}"
        raise UserError(f"data must be a list of {expected} values, got {found}.")
