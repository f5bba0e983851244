"""The names that the page answers to, and the sites whose pages may call it."""

import pytest

from specdemo.records.limits import UserError
from specdemo.ui.http import hosts
from specdemo.ui.http.guard import admitted_headers
from specdemo.ui.http.hosts import hosts_for, name_in, parse_framers, parse_names, parse_root_path
from specdemo.ui.http.posts import RefusedError

SPACE = "me-demo.hf.space"
DEMO = "demo.example.org"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Box")
    for name in ("SPACE_ID", "SPACE_HOST"):
        monkeypatch.delenv(name, raising=False)


OWN = "localhost a.localhost 127.0.0.1 ::1 10.0.0.5 box box.local demo.lan"
FOREIGN = "evil.example localhost.evil.example xlocalhost 1.2.3.4.evil.example hf.space"
NAMES = {"allowed": [DEMO, "*.school.example"]}


@pytest.mark.parametrize(
    ("options", "answers", "refuses"),
    [
        ({"listening": "Demo.lan"}, OWN, FOREIGN),
        (NAMES, f"{DEMO} a.school.example", "school.example xschool.example"),
        ({"allowed": ["*"]}, "any.example", ""),
        ({"root_path": "/demo"}, DEMO, ""),
        ({"root_path": "/demo", "allowed": [DEMO]}, DEMO, "evil.example"),
        ({"root_path": f"https://{DEMO}/x"}, DEMO, "evil.example"),
    ],
)
def test_the_page_answers_to_its_names(options, answers, refuses):
    page = hosts_for(**options)
    assert [name for name in answers.split() if not page.answers_to(name)] == []
    assert [name for name in refuses.split() if page.answers_to(name)] == []


OTHERS = "http://10.0.0.6 https://evil.example null file:// http://localhost 10.0.0.5"


@pytest.mark.parametrize(
    ("options", "asked", "callers", "others"),
    [
        ({}, "127.0.0.1", "http://127.0.0.1:7860 http://localhost:5000", ""),
        ({}, "10.0.0.5", "https://10.0.0.5", OTHERS),
        (NAMES, "localhost", f"https://{DEMO} https://a.school.example", ""),
        ({"root_path": "/demo"}, DEMO, f"https://{DEMO}", "https://evil.example"),
        ({"root_path": f"https://{DEMO}/x"}, "127.0.0.1", f"https://{DEMO}", "https://evil.example"),
    ],
)
def test_only_own_and_allowed_pages_may_call(options, asked, callers, others):
    page = hosts_for(**options)
    assert [origin for origin in callers.split() if not page.admits(origin, [asked])] == []
    assert [origin for origin in others.split() if page.admits(origin, [asked])] == []


def test_a_space_answers_to_its_names_and_the_hub_may_call_it(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "me/demo")
    monkeypatch.setenv("SPACE_HOST", f"{SPACE},{DEMO}")
    page = hosts_for()
    assert all(map(page.answers_to, (SPACE, DEMO, "10.1.2.3", "me-demo--dev.hf.space")))
    assert not page.answers_to("evil.example")
    assert all(page.admits(f"https://{name}", [SPACE]) for name in (SPACE, DEMO, hosts.HUB))
    assert not page.admits("https://evil.hf.space", [SPACE])


WRONG_ROOTS = "specdemo;../x;/a/../b;/a//b;//x;/a?b;/a#b;/%61;ftp://x;https://a b/"


@pytest.mark.parametrize(
    ("parse", "option", "texts"),
    [
        (parse_names, "allow-host", "https://demo.example.org;a b;demo.example.org:80;*x;a,-;é"),
        (parse_framers, "allow-frame", "https://a.org;a.org:80;a\\ script-src *;::1"),
        (parse_root_path, "root-path", WRONG_ROOTS),
        (hosts.require_networks, "trust-proxy", "*;localhost;::1,10.0.0.1 10.0.0.2;10.0.0.1/8;10.0.0.1:80"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused(parse, option, texts):
    for text in texts.split(";"):
        with pytest.raises(UserError, match=rf"^--{option} must .*\.$"):
            parse(text)


def test_a_root_path_has_no_slash_at_its_end():
    site = "https://demo.example.org:8443/x"
    roots = {"/": "", "/specdemo": "/specdemo", "/a/b.c/": "/a/b.c", f"{site}/": site}
    assert {text: parse_root_path(text) for text in roots} == roots


def test_host_headers_are_parsed():
    good = {"LocalHost:7860": "localhost", "[::1]:80": "::1", "a.b.": "a.b", "1.2.3.4": "1.2.3.4"}
    assert {host: name_in(host) for host in good} == good
    bad = "[::1;::::;a b;a:99999;999.1.1.1;a@b;a/b;é;[1.2.3.4];a,b;.;;" + "x" * 254
    assert [host for host in bad.split(";") if name_in(host) is not None] == []


def test_an_origin_needs_a_host_header():
    # Gradio compares the two.
    page, origin = hosts_for(["a.example"]), (b"origin", b"https://a.example")
    with_host = [origin, (b"host", b"localhost")]
    assert admitted_headers(with_host, page) == with_host
    with pytest.raises(RefusedError) as refused:
        admitted_headers([origin], page)
    assert refused.value.status == 403
