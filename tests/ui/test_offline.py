"""The page that carries its run with it; a browser plays it elsewhere."""

import base64
import html.parser
import json
import re

import pytest

from specdemo.ui.http.offline import ENTRY, module_urls, player_page
from specdemo.ui.stage import STATIC

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "base.js").write_text(
        "// Base.\nexport const ONE = 1;\nexport function two() {\n  return 2;\n}\n"
    )
    (tmp_path / "view.js").write_text(
        'import { ONE } from "./base.js";\n\nexport class View {\n  one = ONE;\n}\n\nfunction hidden() {}\n'
    )
    (tmp_path / "stage.js").write_text(
        '// Entry.\n\nimport {\n  ONE,\n  two,\n} from "./base.js";\nimport { View } from "./view.js";\n\n'
        "export async function mount() {\n  return [new View(), ONE, two()];\n}\n"
    )
    return tmp_path


def test_a_page_carries_each_module_once_by_the_name_that_others_import(folder):
    urls = module_urls(folder, "stage.js")
    sources = {
        name: base64.b64decode(url.removeprefix("data:text/javascript;base64,")).decode()
        for name, url in urls.items()
    }
    assert sources.keys() == {"base.js", "view.js", "stage.js"}
    assert sources["base.js"] == (folder / "base.js").read_text()
    assert sources["view.js"].startswith('import { ONE } from "base.js";\n')
    assert '} from "base.js";\nimport { View } from "view.js";\n' in sources["stage.js"]


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


def test_the_stage_gets_the_settings_of_the_live_page():
    from specdemo.ui.stage import settings

    page = player_page()
    passed = re.search(r"^  settings: (.*),$", page, re.MULTILINE)[1]
    assert json.loads(passed) == settings()
