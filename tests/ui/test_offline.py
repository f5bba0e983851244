"""The offline page, which contains its run; test_share plays it in a browser."""

import base64
import html.parser
import json
import re

import pytest

from specdemo.ui.http.offline import ENTRY, module_urls, player_page
from specdemo.ui.stage import STATIC

pytestmark = pytest.mark.slow


def test_no_module_of_the_stage_imports_in_another_form():
    for url in module_urls(STATIC, ENTRY).values():
        source = base64.b64decode(url.partition(",")[2]).decode()
        assert not re.search(r"\bimport\(|^import [\"']|from \"\./|import\.meta", source, re.MULTILINE)


class Outline(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data


def test_the_page_asks_the_network_for_nothing():
    outline = Outline(player_page())
    for tag, attributes in outline.elements:
        assert tag not in {"link", "iframe", "img", "base"} and "src" not in attributes
    policy = next(
        a["content"] for _, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'") and "http" not in policy
    assert [a.get("type") for t, a in outline.elements if t == "script"] == [
        "application/x-ndjson",
        None,
        None,
        "importmap",
        "module",
    ]


def test_no_text_of_a_run_can_leave_its_script():
    hostile = "</script><script>alert(1)</script><!--<script>"
    line = json.dumps({"type": "start", "text": hostile})
    outline = Outline(player_page(line + "\n"))
    assert len(outline.scripts) == 5 and len(Outline(player_page()).scripts) == 5
    assert json.loads(outline.scripts[0])["text"] == hostile
    assert "<" not in outline.scripts[0]
