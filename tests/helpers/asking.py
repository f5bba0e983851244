"""The jobs of a page with good values, the ways to request them, and odd requests over each."""

import importlib.util
import json
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from helpers.http_visitor import API, HttpVisitor
from hypothesis import strategies as st

HAS_MCP = importlib.util.find_spec("mcp") is not None
POSTED = ["queue/join", "call/run", "call/nope", "call/v2/run", "call/v2/nope", "run/run", "run/predict"]
POSTED += ["run/nope", "api/run", "cancel", "reset"]
MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


RUN = {"prompt": "abc", "mode": "raw", "drafter": "draft-model", "k": 2, "auto": False, "temperature": 0}
RUN |= {"rule": "greedy", "max_new_tokens": 3, "seed": 0, "top_k": 0, "top_p": 1, "baseline": True}
PROVE = {"proof": "distribution", "prompts": 1, "temperature": 0.8, "draws": 1, "rule": "true-rule"}
MEASURE = {"experiment": "draft-length", "k": 2, "temperature": 0, "max_new_tokens": 2, "prompts": 1}
ENDPOINTS: dict[str, dict[str, Any]] = {
    "run": {**RUN, "draft_alone": False},
    "play": {"text": "abc", "draft": " d", "second_draft": "", "written": [], "scores": {}},
    "prove": {**PROVE, "prompt": "abc"},
    "measure": {**MEASURE, "prompt": "", "mode": "raw", "seed": 0},
    "quiz": {"question": 1},
    "generate": {name: RUN[name] for name in RUN if name not in ("auto", "baseline")},
}
"""Good values for each of the jobs."""


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


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 20),
    st.integers(-(10**40), 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["", "NaN", "auto", "greedy", "scripted", "raw", "\x00", "a\u202eb", "\ud800"]),
    st.just("x").map(lambda one: one * 20_000),  # a short name for Hypothesis to print
    st.sampled_from(["<script>alert(1)</script>", "${7*7}", "{{7*7}}", "../../etc/passwd", "/etc/passwd"]),
)


KEYS = st.text(max_size=6).filter(lambda key: key != "path")  # or Gradio would treat the value as a file
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


def files(bait: str) -> st.SearchStrategy[Any]:
    """Draw values that Gradio treats as files, at some depth; some are at the address ``bait``."""
    meta = st.sampled_from(
        [{"_type": "gradio.FileData"}, {"_type": "gradio.FileData", "x": 1}, {}, None, "x"]
    )
    paths = st.sampled_from([bait, f"{bait}?again", "/etc/passwd", "/etc/hostname", "", "../x"])
    extra = {"url": paths, "orig_name": SCALARS, "is_stream": st.booleans(), "size": SCALARS}
    one = st.fixed_dictionaries({"path": paths}, optional={"meta": meta, **extra})
    keys = st.sampled_from(["value", "path", "meta", "a"])
    return st.recursive(
        one,
        lambda inner: (
            st.tuples(ANYTHING, inner).map(list) | st.dictionaries(keys, inner, min_size=1, max_size=2)
        ),
        max_leaves=3,
    )


HOSTS = f"""localhost 127.0.0.1:7860 [::1]:80 evil.example evil.example:80 10.0.0.1 [::1 :::: a:99999
    999.1.1.1 [1.2.3.4] [::g] xn-- xn--a.b . \xe9 a@b a/b a?b a#b localhost,evil _ - a..b * {"x" * 300}"""
ORIGINS = """null http:// https://evil.example http://localhost file:// http://127.0.0.1:1 http://[::1
    javascript:alert(1) http://a/b :// http://localhost@evil.example"""
ODD_HEADERS = {
    "host": HOSTS,
    "x-forwarded-host": HOSTS,
    "x-gradio-server": f"{HOSTS} {ORIGINS}",
    "origin": ORIGINS,
    "referer": ORIGINS,
    "x-forwarded-proto": "https https,http javascript </script>",
    "x-forwarded-for": "1.2.3.4 unknown ::1,x",
    "content-type": "text/plain multipart/form-data multipart/x;boundary= application/x-www-form-urlencoded "
    f";;; application/json;charset=utf-16 application/json;{'a=' * 500} \xff/\xff",
    "accept": "*/*;q=nan text/event-stream application/json,text/event-stream",
    "accept-encoding": "br;q=x gzip deflate,, identity;q=0",
    "range": "bytes=0-1 bytes=9-1 bytes=- bytes=a-b bytes=0-0,2-2,4- x=1",
    "cookie": "a =;=; access-token=x \xff=\xff",
    "authorization": "Basic Bearer \xff",
    "access-control-request-method": "POST X",
    "access-control-request-headers": f"* x-{'y' * 300}",
    "mcp-session-id": "x \xff",
    "mcp-protocol-version": "1 2025-06-18",
    "upgrade": "websocket h2c",
    "connection": "upgrade keep-alive,upgrade x",
}
_VISIBLE = st.lists(st.sampled_from([*range(0x20, 0x7F), *range(0x80, 0x100)]), max_size=12).map(
    lambda codes: bytes(codes).strip()
)
HEADER_LISTS = st.lists(
    st.sampled_from(list(ODD_HEADERS)).flatmap(
        lambda name: st.tuples(
            st.just(name.encode()), st.sampled_from(ODD_HEADERS[name].encode("latin-1").split()) | _VISIBLE
        )
    ),
    max_size=4,
    unique_by=lambda header: header[0],
)


@st.composite
def odd_bodies(draw: Any) -> bytes:
    """Draw bodies for Gradio's addresses: nearly right, or completely wrong."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=40))
    keys = ["data", "fn_index", "session_hash", "event_id", "trigger_id", "event_data", "batched", "prompt"]
    known = {"data": st.lists(ANYTHING, max_size=4), "fn_index": st.integers(-2, 200)}
    known |= {"session_hash": st.sampled_from(["abc", "a b", ""]), "event_id": st.text(max_size=5)}
    body = {
        key: draw(known.get(key, ANYTHING) if draw(st.booleans()) else ANYTHING)
        for key in draw(st.lists(st.sampled_from(keys), unique=True, max_size=6))
    }
    return json.dumps(body).encode()


@st.composite
def odd_addresses(draw: Any) -> str:
    words = st.text(max_size=8)
    prefixes = " specdemo-traces specdemo-lab specdemo-lab/run specdemo-static static assets config svelte "
    prefixes += "gradio_api gradio_api/file= gradio_api/call/run"
    parts = words | st.sampled_from(["..", "%2e%2e", "..%2f..", "etc/passwd", "page.py", "*", "~"])
    path = "/".join([draw(st.sampled_from(prefixes.split(" "))), *draw(st.lists(parts, max_size=3))])
    names = ["alpha", "k", "c", "growth", "theme", "run_k", "page", "deep_link"]
    values = st.sampled_from(["nan", "-1", "3.7", "1e9", "", "%00", "../x", "9" * 400]) | words
    query = draw(st.dictionaries(st.sampled_from(names) | words, values, max_size=3))
    return f"/{quote(path, safe='/%').lstrip('/')}?{urlencode(query)}"


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


FETCHED = """/ /config /theme.css /manifest.json /robots.txt /favicon.ico /nothing /?prompt={long}
    /specdemo-static/stage/stage.js /specdemo-static/player.html /static/img/logo.svg
    /specdemo-traces/index.json /specdemo-lab/run/five.json {api}/info {api}/openapi.json {api}/startup-events
    {api}/app_id {api}/theme.css {api}/mcp/ {api}/mcp/schema {api}/queue/data?session_hash=nobody"""
FETCHED = FETCHED.format(long="x" * 60_001, api=API)


@st.composite
def odd_requests(draw: Any, visitor: HttpVisitor, bait: str) -> Odd:
    """Draw a request over one of the ways in, with files, odd values or odd headers."""
    headers = dict(draw(st.just([]) | HEADER_LISTS))
    posting = {name.encode(): value.encode() for name, value in MCP.items()} | headers
    match draw(st.sampled_from(["fetch", "ask", "event", "job"])):
        case "fetch":
            method = draw(st.sampled_from(["GET", "HEAD", "OPTIONS"]))
            return Odd(method, draw(st.sampled_from(FETCHED.split()) | odd_addresses()), None, headers)
        case "ask":
            paths = [
                *(f"{API}/{path}" for path in (*POSTED, "mcp/")),
                "/specdemo-traces",
                "/specdemo-lab/run",
                "/specdemo-lab/explain",
            ]
            body = draw(odd_bodies() | files(bait).map(lambda one: json.dumps([one]).encode()))
            return Odd("POST", draw(st.sampled_from(paths)), body, posting)
        case "event":
            path, body = "run/event", json.dumps(draw(events_of_the_page(visitor, bait))).encode()
        case _:
            name = draw(st.sampled_from(list(ENDPOINTS)))
            key = draw(st.sampled_from(list(ENDPOINTS[name])))
            asked = ways_in(visitor, name, {**ENDPOINTS[name], key: draw(files(bait))})
            path = draw(st.sampled_from(list(asked)))
            body = json.dumps(asked[path]).encode()
    return Odd("POST", f"{API}/{path}", body, posting)


@st.composite
def events_of_the_page(draw: Any, visitor: HttpVisitor, bait: str) -> dict[str, Any]:
    """Draw what a press on the page sends, with other values."""
    number, count = draw(st.sampled_from(visitor.events))
    values = ANYTHING | files(bait)
    more = {"event_data": values, "trigger_id": st.integers(0, 200)}
    return {
        "fn_index": number,
        "session_hash": draw(st.sampled_from(["abc", "d"])),
        "data": draw(st.lists(values, min_size=count, max_size=count)),
        **draw(st.fixed_dictionaries({}, optional=more)),
    }
