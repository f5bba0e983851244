"""The values of --watch and --watch-alone."""

import pytest

from specdemo.records.limits import UserError
from specdemo.watch.servers import Server, parse_servers


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("llama=http://127.0.0.1:8080", "llama", "http://127.0.0.1:8080"),
        ("My box 2.0=https://a.example/llm/", "My box 2.0", "https://a.example/llm"),
        ("x=http://a:1/v1", "x", "http://a:1"),
        ("x=http://a:1/v1/", "x", "http://a:1"),
        ("x=http://a:1/v1/v1", "x", "http://a:1/v1"),
        ("x=http://[::1]:8080", "x", "http://[::1]:8080"),
        (" x=http://a:1 , ", "x", "http://a:1"),
    ],
)
def test_a_server_has_a_name_and_an_address(text, name, url):
    assert parse_servers(text) == (Server(name, url),)


def test_servers_are_separated_by_commas_and_keep_their_order():
    found = parse_servers("b=http://b:1,a=http://a:1,c=http://c:1")
    assert [server.name for server in found] == ["b", "a", "c"]
    assert [server.pair for server in found] == ["watch:b", "watch:a", "watch:c"]
    assert parse_servers("") == parse_servers(" , ") == ()


def test_servers_without_drafts_have_the_same_names():
    found = parse_servers("a=http://a:1,b=http://b:1", "b=http://b:2/v1")
    assert found == (Server("a", "http://a:1"), Server("b", "http://b:1", "http://b:2"))


@pytest.mark.parametrize(
    "text",
    [
        "llama",
        "http://127.0.0.1:8080",
        "a=127.0.0.1:8080",
        "a=ftp://box",
        "a=file:///etc/passwd",
        "a=http://",
        "a=http:///v1",
        "a=http://:80",
        "a=http://me:secret@box",
        "a=http://me@box",
        "a=http://box?key=secret",
        "a=http://box/?",
        "a=http://box:0",
        "a=http://box#top",
        "a=http://box:port",
        "a=http://box:99999",
        "a=http://[::1",
        "a=http://a b",
        "=http://box",
        " =http://box",
        "<b>=http://box",
        "é=http://box",
        "a\nb=http://box",
        f"{'n' * 41}=http://box",
        "a=b=http://box",
        "a=http://x;b=http://y",
        "a=HTTP://box\x00",
    ],
)
def test_a_value_that_is_no_server_is_refused_with_the_right_form(text):
    with pytest.raises(UserError, match=r"^--watch takes NAME=URL, separated by commas, such as") as raised:
        parse_servers(text)
    assert str(raised.value).endswith(".") and len(str(raised.value)) < 200


def test_a_name_stands_for_one_server():
    with pytest.raises(UserError, match="a occurs twice"):
        parse_servers("a=http://x,a=http://y")
    with pytest.raises(UserError, match=r"^--watch-alone names b, which --watch does not; use the same"):
        parse_servers("a=http://x", "b=http://y")


def test_a_long_mistake_is_cut_short():
    with pytest.raises(UserError) as raised:
        parse_servers("x" * 10_000)
    assert len(str(raised.value)) < 200
