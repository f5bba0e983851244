"""The offline page, which contains its run; a journey plays it in a browser."""

import base64
import html.parser
import json
import re

from specdemo.ui.http.offline import ENTRY, module_urls, player_page
from specdemo.ui.stage import STATIC


def test_no_module_of_the_stage_imports_in_another_form():
    for url in module_urls(STATIC, ENTRY).values():
        source = base64.b64decode(url.partition(",")[2]).decode()
        assert not re.search(r"\bimport\(|^import [\"']|from \"\./|import\.meta", source, re.MULTILINE)


class Outline(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def test_the_page_asks_the_network_for_nothing_and_no_text_of_a_run_can_leave_its_script():
    hostile = "</script><script>alert(1)</script><!--<script>"
    outline = Outline(player_page(json.dumps({"type": "start", "text": hostile}) + "\n"))
    assert json.loads(outline.scripts[0])["text"] == hostile and "<" not in outline.scripts[0]
    types = [attributes.get("type") for tag, attributes in outline.elements if tag == "script"]
    assert types == ["application/x-ndjson", None, None, "importmap", "module"]
    assert not {tag for tag, _ in outline.elements} & {"link", "iframe", "img", "base"}
    assert not any("src" in attributes for _, attributes in outline.elements)
    [policy] = [a["content"] for _, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "http" not in policy
