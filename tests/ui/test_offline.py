"""The bundler and the page that carries its run with it; a browser plays it elsewhere."""

import html.parser
import json
import re
import subprocess

import pytest
from helpers.node import node

from specdemo.ui.http.offline import ENTRY, bundle, player_page
from specdemo.ui.stage import STAGE_SHEETS, STATIC

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    """Three modules, of which two need the third."""
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


def test_modules_come_once_after_what_they_need_without_imports_and_exports(folder):
    bundled = bundle(folder, "stage.js")
    assert not re.search(r"\b(import|export)\b", bundled)
    places = [
        bundled.index(text) for text in ("const ONE", "function two", "class View", "async function mount")
    ]
    assert places == sorted(places)
    assert bundled.count("const ONE") == 1 and "// Entry." in bundled


def test_each_module_has_names_of_its_own(folder):
    (folder / "view.js").write_text(
        'import { ONE, two } from "./base.js";\n\nconst modules = ONE + two();\n'
        "export class View {\n  three = modules;\n}\n// no line ends here"
    )
    (folder / "stage.js").write_text(
        'import { View } from "./view.js";\n\nconst ONE = "mine";\n'
        "const two = () => [ONE, new View().three];\nexport function mount() {\n  return two();\n}\n"
    )
    assert in_node(bundle(folder, "stage.js"), 'modules["stage.js"].mount()') == ["mine", 3]


def in_node(script: str, expression: str) -> object:
    """What an expression of JSON is after a script."""
    source = f"{script}\nconsole.log(JSON.stringify({expression}));"
    module = [node(), "--input-type=module", "-"]
    found = subprocess.run(module, input=source, capture_output=True, check=True, text=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        (
            "view.js",
            'import { three } from "./base.js";\n',
            "view.js imports three, which base.js does not export",
        ),
        ("view.js", 'import { hidden } from "./base.js";\nexport class View {}\n', "imports hidden"),
        (
            "view.js",
            'import { ONE } from "./base.js";\nexport class View {}\nconst ONE = 2;\n',
            "view.js imports or declares ONE twice",
        ),
        (
            "view.js",
            'import { two } from "./base.js";\nimport { two } from "./base.js";\nexport class View {}\n',
            "imports or declares two twice",
        ),
        ("base.js", 'import { View } from "./view.js";\n', "imports itself by way of"),
        (
            "view.js",
            'import * as base from "./base.js";\nexport class View {}\n',
            "view.js has a form that cannot be bundled",
        ),
        ("view.js", 'import { ONE as one } from "./base.js";\n', "imports ONE as one"),
        (
            "view.js",
            'export { ONE } from "./base.js";\nexport class View {}\n',
            "a form that cannot be bundled",
        ),
        ("view.js", "export class View {}\nexport default View;\n", "a form that cannot be bundled"),
        ("view.js", "export class View {}\nconst { a } = View;\n", "a form that cannot be bundled"),
        ("view.js", "export class View {}\nexport let open = 1;\n", "a form that cannot be bundled"),
        ("view.js", "export class View {}\nconst a = await View;\n", "a form that cannot be bundled"),
        ("view.js", "export class View {}\nawait View;\n", "a form that cannot be bundled"),
    ],
)
def test_what_cannot_be_bundled_is_said(folder, module, text, words):
    (folder / module).write_text(text)
    if module == "base.js":
        (folder / "view.js").write_text('import { ONE } from "./base.js";\n')
    with pytest.raises(ValueError, match=words):
        bundle(folder, "stage.js")


def test_the_stage_can_be_bundled():
    bundled = bundle(STATIC, ENTRY)
    assert "function mountOffline({ root, text, settings })" in bundled
    assert in_node(bundled, f"typeof modules['{ENTRY}'].mountOffline") == "function"
    assert not re.search(r"^(import|export)\b", bundled, re.MULTILINE)


class Outline(html.parser.HTMLParser):
    """Elements with attributes, and what stands inside each script."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note the element."""
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag):
        """The end of a script."""
        if tag == "script":
            self._inside = False

    def handle_data(self, data):
        """Collect a script's text."""
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
        "module",
    ]


def test_no_text_of_a_run_can_leave_its_script():
    hostile = "</script><script>alert(1)</script><!--<script>"
    line = json.dumps({"type": "start", "text": hostile})
    outline = Outline(player_page(line + "\n"))
    assert len(outline.scripts) == 4 and len(Outline(player_page()).scripts) == 4
    assert json.loads(outline.scripts[0])["text"] == hostile
    assert "<" not in outline.scripts[0]


def test_scripts_of_ours_cannot_end_early(folder, monkeypatch):
    (folder / "stage.js").write_text('export const mountOffline = () => "</script><!-- </SCRIPT >";\n')
    for sheet in STAGE_SHEETS:
        (folder / f"{sheet}.css").write_text("")
    (folder / "stage.html").write_text('<section class="sd"></section>')
    monkeypatch.setattr("specdemo.ui.http.offline.STATIC", folder)
    outline = Outline(player_page())
    assert len(outline.scripts) == 4
    assert r'"<\/script><\x21-- <\/SCRIPT >"' in outline.scripts[3]


def test_the_stage_gets_the_settings_of_the_live_page():
    from specdemo.ui.stage import settings

    page = player_page()
    passed = re.search(r"^  settings: (.*),$", page, re.MULTILINE)[1]
    assert json.loads(passed) == settings()
