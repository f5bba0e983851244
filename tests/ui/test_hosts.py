"""The names that the page answers to, and the sites whose pages may call it."""

import pytest

from specdemo.records.limits import UserError
from specdemo.ui.http.guard import admitted_headers
from specdemo.ui.http.hosts import HUB, hosts_for, name_in, parse_framers, parse_names, parse_root_path
from specdemo.ui.http.posts import RefusedError

SPACE = "me-demo.hf.space"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Box")
    for name in ("SPACE_ID", "SPACE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def space(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "me/demo")
    monkeypatch.setenv("SPACE_HOST", f"{SPACE},demo.example.org")


def test_a_machine_answers_to_its_names_and_addresses():
    hosts = hosts_for()
    for name in ("localhost", "a.localhost", "127.0.0.1", "::1", "10.0.0.5", "box", "box.local"):
        assert hosts.answers_to(name), name
    for name in ("evil.example", "localhost.evil.example", "xlocalhost", "1.2.3.4.evil.example", "hf.space"):
        assert not hosts.answers_to(name), name
    assert hosts_for(listening="Demo.lan").answers_to("demo.lan")


def test_only_own_pages_may_call():
    hosts = hosts_for()
    assert hosts.admits("http://127.0.0.1:7860", ["127.0.0.1"])
    assert hosts.admits("http://localhost:5000", ["127.0.0.1"]), "the same machine"
    assert hosts.admits("https://10.0.0.5", ["10.0.0.5"])
    for origin in (
        "http://10.0.0.6",
        "https://evil.example",
        "null",
        "file://",
        "http://localhost",
        "10.0.0.5",
    ):
        assert not hosts.admits(origin, ["10.0.0.5"]), origin


def test_a_host_can_allow_names():
    hosts = hosts_for(parse_names("Demo.example.org, *.school.example"))
    for name in ("demo.example.org", "a.school.example"):
        assert hosts.answers_to(name) and hosts.admits(f"https://{name}", ["localhost"])
    assert not hosts.answers_to("school.example") and not hosts.answers_to("xschool.example")
    assert hosts_for(["*"]).answers_to("any.example")


@pytest.mark.parametrize("text", ["https://demo.example.org", "a b", "demo.example.org:80", "*x", "a,-", "é"])
def test_a_wrong_host_name_is_refused(text):
    with pytest.raises(UserError, match=r"^--allow-host takes names such as .*\.$"):
        parse_names(text)


@pytest.mark.parametrize(
    "text", ["https://blog.example.org", "blog.example.org:80", "a; script-src *", "::1"]
)
def test_a_wrong_name_of_a_framing_site_is_refused(text):
    with pytest.raises(UserError, match=r"^--allow-frame takes .*\.$"):
        parse_framers(text)


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("", ""),
        ("/", ""),
        ("/specdemo", "/specdemo"),
        ("/a/b.c/", "/a/b.c"),
        ("https://demo.example.org:8443/x/", "https://demo.example.org:8443/x"),
        ("https://demo.example.org", "https://demo.example.org"),
    ],
)
def test_a_root_path_has_no_slash_at_its_end(text, root):
    assert parse_root_path(text) == root


@pytest.mark.parametrize(
    "text", ["specdemo", "../x", "/a/../b", "/a//b", "//x", "/a?b", "/a#b", "/%61", "ftp://x", "https://a b/"]
)
def test_a_wrong_root_path_is_refused(text):
    with pytest.raises(UserError, match=r"^--root-path takes .*\.$"):
        parse_root_path(text)


def test_a_space_answers_to_its_names_and_the_hub_may_call_it(space):
    hosts = hosts_for()
    for name in (SPACE, "demo.example.org", "10.1.2.3", "me-demo--dev.hf.space"):
        assert hosts.answers_to(name)
    assert not hosts.answers_to("evil.example")
    for origin in (f"https://{SPACE}", "https://demo.example.org", f"https://{HUB}"):
        assert hosts.admits(origin, [SPACE])
    assert not hosts.admits("https://evil.hf.space", [SPACE])


def test_behind_a_proxy_with_a_path_any_name_is_valid_unless_the_host_lists_some():
    assert hosts_for(root_path="/demo").answers_to("demo.example.org")
    assert hosts_for(root_path="/demo").admits("https://demo.example.org", ["demo.example.org"])
    assert not hosts_for(root_path="/demo").admits("https://evil.example", ["demo.example.org"])
    assert not hosts_for(["demo.example.org"], "/demo").answers_to("evil.example")
    whole = hosts_for(root_path="https://demo.example.org/x")
    assert whole.answers_to("demo.example.org") and not whole.answers_to("evil.example")
    assert whole.admits("https://demo.example.org", ["127.0.0.1"])


def test_host_headers_are_parsed():
    for host, name in (
        ("LocalHost:7860", "localhost"),
        ("[::1]:80", "::1"),
        ("a.b.", "a.b"),
        ("1.2.3.4", "1.2.3.4"),
    ):
        assert name_in(host) == name
    for host in (
        "",
        "[::1",
        "::::",
        "a b",
        "a:99999",
        "999.1.1.1",
        "a@b",
        "a/b",
        "é",
        "[1.2.3.4]",
        "a,b",
        ".",
        "x" * 254,
    ):
        assert name_in(host) is None, host


def test_an_origin_needs_a_host_header():
    """Gradio compares the two."""
    hosts, origin = hosts_for(["a.example"]), (b"origin", b"https://a.example")
    with_host = [origin, (b"host", b"localhost")]
    assert admitted_headers(with_host, hosts) == with_host
    with pytest.raises(RefusedError) as refused:
        admitted_headers([origin], hosts)
    assert refused.value.status == 403
