"""What the headers of a request may say of where it comes from, and which of them go no further.

Gradio builds addresses from them and fails on those that are none. Knows names and headers, nothing else.
"""

from starlette.datastructures import Headers

from specdemo.ui.http.hosts import Hosts, name_in
from specdemo.ui.http.refusal_sentences import RefusedError

RawHeaders = list[tuple[bytes, bytes]]

_GRADIOS = b"x-gradio-"
"""What Gradio's other servers and services tell each other; the page has none of them."""
_FIRST_ONLY = {b"x-forwarded-host", b"x-forwarded-proto"}
"""Of which proxies in a row make a list; the first is what the visitor asked for."""
STRANGE = "This page has no such name; open it by its own, or let its host add the name with --allow-host."
FOREIGN = "Pages of other sites may not call this one; its host can let them with --allow-host."


def admitted_headers(raw: RawHeaders, hosts: Hosts) -> RawHeaders:
    """The headers that go on to the app.

    Raises:
        RefusedError: The request names somebody else's host, or comes from a page of one.
    """
    kept = [_first(name, value) for name, value in raw if not name.startswith(_GRADIOS)]
    kept = [one for one in kept if one[0] != b"x-forwarded-proto" or one[1] in (b"http", b"https")]
    headers = Headers(raw=kept)
    asked = [name_in(value) for key in ("host", "x-forwarded-host") for value in headers.getlist(key)]
    if not all(name and hosts.answer_to(name) for name in asked):
        raise RefusedError(421, STRANGE)
    for origin in headers.getlist("origin"):
        if "host" not in headers or not hosts.admit(origin, [name for name in asked if name]):
            raise RefusedError(403, FOREIGN)
    return kept


def _first(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return name, value.split(b",")[0].strip() if name in _FIRST_ONLY else value
