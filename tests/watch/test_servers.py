"""The values of --watch."""

import pytest

from specdemo.records.limits import UserError
from specdemo.watch.servers import Server, parse_servers


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("", []),
        (" , ", []),
        (" llama=http://127.0.0.1:8080 , ", [Server("llama", "http://127.0.0.1:8080")]),
        ("My box 2.0=https://a.example/llm/", [Server("My box 2.0", "https://a.example/llm")]),
        ("x=http://a:1/v1/", [Server("x", "http://a:1")]),
        ("x=http://a:1/v1/v1", [Server("x", "http://a:1/v1")]),
        ("x=http://[::1]:8080", [Server("x", "http://[::1]:8080")]),
        ("b=http://b:1,a=http://a:1", [Server("b", "http://b:1"), Server("a", "http://a:1")]),
        (
            "b=http://b:1, http://b:2/v1 ,a=http://a:1",
            [Server("b", "http://b:1", "http://b:2"), Server("a", "http://a:1")],
        ),
    ],
)
def test_each_server_has_a_name_an_address_and_perhaps_a_baseline_server(text, servers):
    assert parse_servers(text) == (*servers,)


NO_URLS = (
    *("127.0.0.1:8080", "ftp://box", "file:///etc/passwd", "HTTP://box\x00", "http://", "http:///v1"),
    *("http://:80", "http://me:secret@box", "http://me@box", "http://box?key=secret", "http://box/?"),
    *("http://box:0", "http://box#top", "http://box:port", "http://box:99999", "http://[::1", "http://a b"),
    *("http://x;b=http://y", "b=http://box"),
)
NO_NAMES = ("", " ", "<b>", "é", "a\nb", "n" * 41)


@pytest.mark.parametrize(
    "text",
    [
        *("llama", "http://127.0.0.1:8080", "x" * 10_000),
        *(f"a={url}" for url in NO_URLS),
        *(f"{name}=http://box" for name in NO_NAMES),
        *("a=http://a,b", "a=http://a,=http://b", "a=http://a,http://b,http://c"),
    ],
)
def test_an_invalid_server_is_refused_with_the_right_form(text):
    with pytest.raises(UserError, match=r"^--watch must be NAME=URL or NAME=URL,BASELINE-URL") as raised:
        parse_servers(text)
    assert str(raised.value).endswith(".") and len(str(raised.value)) < 200


def test_two_servers_with_one_name_are_refused():
    with pytest.raises(UserError, match="two servers named a"):
        parse_servers("a=http://x,a=http://y")
