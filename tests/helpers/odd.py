"""Generated parts of requests that no page sends: values, files, headers, bodies, addresses."""

import json
from typing import Any

import gradio_client.utils as client_utils
from hypothesis import strategies as st

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


def names_a_file(value: Any) -> bool:
    """Return whether Gradio would treat part of this as a file, as in ``files``."""
    if isinstance(value, dict):
        return client_utils.is_file_obj(value) or any(map(names_a_file, value.values()))
    return isinstance(value, list) and any(map(names_a_file, value))


ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
).filter(lambda value: not names_a_file(value))


def files(bait: str) -> st.SearchStrategy[Any]:
    """Draw values that Gradio treats as files, at some depth; some are at the address ``bait``."""
    meta = st.sampled_from(
        [{"_type": "gradio.FileData"}, {"_type": "gradio.FileData", "x": 1}, {}, None, "x"]
    )
    paths = st.sampled_from([bait, f"{bait}?again", "/etc/passwd", "/etc/hostname", "", "../x"])
    extra = {"url": paths, "orig_name": SCALARS, "is_stream": st.booleans(), "size": SCALARS}
    one = st.fixed_dictionaries({"path": paths}, optional={"meta": meta, **extra})
    return st.recursive(
        one,
        lambda inner: (
            st.tuples(ANYTHING, inner).map(list)
            | st.dictionaries(st.sampled_from(["value", "path", "meta", "a"]), inner, min_size=1, max_size=2)
        ),
        max_leaves=3,
    )


HOSTS = b"localhost 127.0.0.1:7860 [::1]:80 evil.example evil.example:80 10.0.0.1 [::1 :::: a:99999".split()
HOSTS += b"999.1.1.1 [1.2.3.4] [::g] xn-- xn--a.b . \xe9 a@b a/b a?b a#b localhost,evil _ - a..b *".split()
HOSTS += [b"", b"a b", b"x" * 300]
ORIGINS = b"null http:// https://evil.example http://localhost file:// http://127.0.0.1:1 http://[::1".split()
ORIGINS += b"javascript:alert(1) http://a/b :// http://localhost@evil.example".split()
KINDS = b"text/plain multipart/form-data multipart/x;boundary= application/x-www-form-urlencoded ;;;".split()
KINDS += [b"", b"application/json; charset=utf-16", b"application/json;" + b"a=" * 500, b"\xff/\xff"]
ODD_HEADERS: dict[bytes, list[bytes]] = {
    b"host": HOSTS,
    b"x-forwarded-host": HOSTS,
    b"x-gradio-server": HOSTS + ORIGINS,
    b"x-gradio-user": HOSTS,
    b"origin": ORIGINS,
    b"referer": ORIGINS,
    b"x-forwarded-proto": [b"https", b"https,http", b"javascript", b"</script>", b""],
    b"x-forwarded-for": [b"1.2.3.4", b"unknown", b"::1, x"],
    b"forwarded": [b"host=evil;proto=x", b"for=[::1"],
    b"x-forwarded-prefix": [b"/x", b"//evil"],
    b"content-type": KINDS,
    b"accept": [b"", b"*/*;q=nan", b"text/event-stream", b"application/json, text/event-stream"],
    b"accept-encoding": [b"br;q=x", b"gzip", b"deflate,,", b"identity;q=0"],
    b"range": [b"bytes=0-1", b"bytes=9-1", b"bytes=-", b"bytes=a-b", b"bytes=0-0,2-2,4-", b"x=1"],
    b"if-none-match": [b'"x"', b"*", b"\xff"],
    b"if-modified-since": [b"yesterday", b"0"],
    b"cookie": [b"a", b"=;=;", b"access-token=x", b"\xff=\xff"],
    b"authorization": [b"Basic x", b"Bearer", b"\xff"],
    b"access-control-request-method": [b"POST", b"X", b""],
    b"access-control-request-headers": [b"*", b"x-" + b"y" * 300],
    b"mcp-session-id": [b"x", b"\xff"],
    b"mcp-protocol-version": [b"1", b"2025-06-18"],
    b"last-event-id": [b"x"],
    b"x-ip-token": [b"x", b"\xff"],
    b"upgrade": [b"websocket", b"h2c"],
    b"connection": [b"upgrade", b"keep-alive, upgrade", b"x"],
}
_VISIBLE = st.lists(st.sampled_from([*range(0x21, 0x7F), *range(0x80, 0x100)]), max_size=12).map(bytes)
HEADER_LISTS = st.lists(
    st.sampled_from(list(ODD_HEADERS)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(ODD_HEADERS[name]) | _VISIBLE)
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


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # text that UTF-8 can encode


@st.composite
def odd_addresses(draw: Any) -> tuple[str, dict[str, str]]:
    prefixes = ["", "specdemo-traces", "specdemo-lab", "specdemo-lab/run", "specdemo-static", "static"]
    prefixes += ["assets", "gradio_api", "gradio_api/file=", "gradio_api/call/run", "config", "svelte"]
    parts = st.text(max_size=8) | st.sampled_from(
        ["..", "%2e%2e", "..%2f..", "etc/passwd", "page.py", "*", "~"]
    )
    path = "/".join([draw(st.sampled_from(prefixes)), *draw(st.lists(parts, max_size=3))])
    words = ["alpha", "k", "c", "growth", "theme", "run_k", "page", "deep_link", "session_hash"]
    values = st.sampled_from(["nan", "-1", "3.7", "1e9", "", "%00", "../x", "9" * 400]) | WORDS
    return path, draw(st.dictionaries(st.sampled_from(words) | WORDS, values, max_size=3))
