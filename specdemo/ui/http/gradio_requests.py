"""Checks of requests to Gradio's own addresses, before Gradio sees them.

Gradio answers unexpected requests with a failure inside the server; here each is refused in a sentence.
"""

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gradio as gr

from specdemo.records.limits import UserError
from specdemo.ui.http.gradio_internals import (
    BlockFunction,
    functions,
    is_file_obj,
    is_pending,
    page_names,
    public_endpoints,
)

API = "/gradio_api"
DEEPEST = 32
"""The maximum depth of lists and objects; the page needs four."""
MAX_VALUES = 15_000
"""The maximum number of JSON values in a request; the commas of a prompt, at most 8,000, count as well."""
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


class NotFoundError(UserError):
    """There is nothing of that name."""


def check_query(page: gr.Blocks, path: str, query: Mapping[str, str]) -> None:
    """Refuse a request that fetches what is not there.

    Args:
        page: What is served.
        path: Behind the host, decoded.
        query: The parameters of the address.

    Raises:
        UserError: In a sentence for whoever asked.
    """
    if path == "/" and query.get("page", "") not in page_names(page):
        raise NotFoundError("This program has one page only; leave “page” out of the address.")
    asked = path.removeprefix(f"{API}/")
    if asked == "queue/data":
        _check_session(query.get("session_hash"))
    if asked.startswith("heartbeat/"):
        _check_session(asked.removeprefix("heartbeat/"))
    if (named := _EVENT.fullmatch(asked)) and not is_pending(page, named["event"]):
        raise NotFoundError("There is no such event, or its answer was already fetched.")


def check_body(page: gr.Blocks, path: str, body: bytes) -> None:
    """Refuse what Gradio could not answer, as far as it shows before anything is run.

    Args:
        page: What is served.
        path: Behind the host, decoded.
        body: All that was posted.

    Raises:
        UserError: In a sentence for whoever asked.
    """
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


def object_in(body: bytes, max_values: int = MAX_VALUES) -> dict[str, Any]:
    """Return the object that was posted.

    Raises:
        UserError: There is none, or it holds what no request may.
    """
    require_few_values(body, max_values)
    try:
        sent = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise UserError("The request is no JSON in UTF-8; send an object with its values.") from None
    if not isinstance(sent, dict):
        raise UserError("The request must be a JSON object.")
    _check_values(sent)
    return sent


def require_few_values(body: bytes, max_values: int) -> None:
    """Raise ``UserError`` if a JSON body has more values, by the marks in front of them.

    They are counted before anything is parsed: a million empty lists take three megabytes, and a second in
    which Python does nothing else.
    """
    if sum(map(body.count, (b"[", b"{", b","))) > max_values:
        raise UserError(f"The request holds too many values; at most {max_values:,} are allowed.")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check_values(sent: dict[str, Any]) -> None:
    """Refuse files, which Gradio would fetch before it calls a function, and what JSON has no bounds for."""
    level: list[Any] = [sent]
    for _ in range(DEEPEST):
        if any(isinstance(value, float) and not math.isfinite(value) for value in level):
            raise UserError("The request has a number that is too large.")
        # Gradio's newer test is part of this older one, and fails where "meta" is no object.
        if any(map(is_file_obj, level)):
            raise UserError("The request names a file; this page takes none.")
        holders = [value for value in level if isinstance(value, list | dict)]
        level = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
    if level:
        raise UserError(f"The request is nested too deeply; {DEEPEST} levels are allowed.")


def _check_call(page: gr.Blocks, name: str, sent: dict[str, Any], by_name: bool) -> None:
    public = _public_endpoints(page)
    if name not in public:
        raise NotFoundError(f"There is no such endpoint; choose one of: {', '.join(sorted(public))}.")
    if by_name:
        return _check_parameters(name, public[name], sent)
    _check_types(sent)
    if sent.get("session_hash") is not None:
        _check_session(sent["session_hash"])
    asked = next(fn for fn in functions(page).values() if fn.api_name == name)
    return _check_count(sent, len(asked.inputs))


def _check_parameters(name: str, has_default: Mapping[str, bool], sent: dict[str, Any]) -> None:
    if any(parameter not in has_default for parameter in sent):
        raise UserError(f"{name} takes these parameters only: {', '.join(has_default)}.")
    for parameter, optional in has_default.items():
        if parameter not in sent and not optional:
            raise UserError(f"{name} needs the parameter {parameter}.")


@lru_cache(maxsize=1)
def _public_endpoints(page: gr.Blocks) -> dict[str, dict[str, bool]]:
    """Return the parameters of each endpoint, and whether each has a default."""
    return {
        name.removeprefix("/"): {
            str(parameter["parameter_name"]): bool(parameter["parameter_has_default"])
            for parameter in endpoint["parameters"]
        }
        for name, endpoint in public_endpoints(page).items()
    }


def _check_direct(page: gr.Blocks, name: str, sent: dict[str, Any]) -> None:
    """Check a call of a function without the queue, by its number, as only the page makes them."""
    _check_types(sent)
    if sent.get("session_hash") is not None:
        _check_session(sent["session_hash"])
    fn = _by_index(page, sent.get("fn_index"))
    if fn.queue:
        raise NotFoundError(f"This endpoint has a queue; post to {API}/call/ and its name.")
    _check_event(fn, sent)


def _check_event(fn: BlockFunction, sent: dict[str, Any]) -> None:
    """Refuse an event of the page that lacks what its function is called with."""
    _check_count(sent, len(fn.inputs))
    if fn.collects_event_data and not isinstance(sent.get("event_data"), dict):
        raise UserError("event_data must be an object: this function answers an event of the page.")


def _by_index(page: gr.Blocks, index: object) -> BlockFunction:
    there = functions(page)
    if not isinstance(index, int) or isinstance(index, bool) or index not in there or there[index].fn is None:
        raise UserError("fn_index must be the number of one of this page's functions; reload the page.")
    return there[index]


def _check_types(sent: dict[str, Any]) -> None:
    for name, kinds in _TYPES.items():
        if name in sent and type(sent[name]) not in kinds:
            wanted = {list: "a list", str: "text", int: "a whole number", bool: "true or false"}[kinds[0]]
            raise UserError(f"{name} must be {wanted}.")
    if sent.get("batched"):
        raise UserError("This page takes no batches; leave “batched” out.")


def _check_session(session: object) -> None:
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        raise UserError("session_hash must be 1 to 64 letters, digits or dashes.")


def _check_text(sent: dict[str, Any], name: str) -> None:
    if not isinstance(sent.get(name), str) or len(sent[name]) > 64:
        raise UserError(f"{name} must be text of at most 64 characters.")


def _check_count(sent: dict[str, Any], expected: int) -> None:
    count = len(sent["data"]) if "data" in sent else None
    if count != expected:
        told = "is missing" if count is None else f"has {count:,}"
        raise UserError(f"data must be a list of {expected} values, but {told}.")
