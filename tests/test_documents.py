"""The documents: their code, commands, options, files and terms are the program's, and their links work."""

import itertools
import os
import re
import shlex
import subprocess
import sysconfig
import tomllib
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from helpers.tiny import config_for, nearby, speculative_rounds, tiny_llama

from specdemo.cli.main import COMMANDS, command_parser, main
from specdemo.records.trace import Rule
from specdemo.ui.component import STATIC
from specdemo.ui.http.sharing import PICTURE

ROOT = Path(__file__).parent.parent
SPECDEMO = ROOT / "specdemo"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *SPECDEMO.rglob("README.md"),
    *(ROOT / "assets").rglob("README.md"),
]
RETIRED = "guess is right|guesses|place in the queue|tells|told|good rows|as far as both|at hand|leftover"
RETIRED += "|parting|Put it away|Sum the lesson up"
"""Terms that readers did not understand; the glossary in ``specdemo/README.md`` has those in use."""
OTHER_PROGRAMS = {"--flavor", "--index-url", "--per-request-spec-decode-metrics"}
"""Options in the documents that are not ours."""
OURS = {"specdemo", "python", "python3", "pip", "."}
OTHERS = {"cd", "docker", "git", "hf", "node", "pipx", "uvx"}
VOCAB = 7

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def help_pages():
    """Return what ``--help`` prints for each command, in lines so long that none is broken."""
    pages = {}
    with patch.dict(os.environ, {"COLUMNS": "10000", "NO_COLOR": "1"}):
        for command in COMMANDS:
            name = command.__name__.rpartition(".")[2]
            with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
                main([name, "--help"])
            pages[f"specdemo {name}"] = printed.getvalue()
    return pages


@pytest.fixture(scope="module")
def plain_lines():
    """Return the function in the engine's README."""
    [code] = re.findall(
        r"```python\n(.*?)```", (SPECDEMO / "engine" / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names: dict = {}
    exec(code, names)
    assert len([line for line in code.splitlines() if line.strip()]) <= 42
    return names["speculative_decoding"]


def scores(model):
    def logits(ids):
        with torch.inference_mode():
            return model(torch.tensor([ids]), use_cache=False).logits[0]

    return logits


@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.REJECTION])
@pytest.mark.parametrize(("seed", "k", "noise"), [(0, 3, 0.1), (1, 1, 0.0), (2, 5, 0.3), (3, 4, 2.0)])
def test_the_algorithm_in_the_readme_gives_the_engines_tokens(plain_lines, rule, seed, k, noise):
    target = tiny_llama(VOCAB, seed)
    draft, prompt = nearby(target, seed + 1, noise), [1, 2, 3]
    config = replace(config_for(rule), k=k, seed=seed, max_new_tokens=20)
    rounds = speculative_rounds(target, draft, prompt, config)
    expected = [(round_.accepted, round_.emission.id) for round_ in rounds]
    end = len(prompt) + config.max_new_tokens
    plain = plain_lines(scores(target), scores(draft), prompt, k, end, config.temperature, seed)
    assert list(plain) == expected and len(expected) > 2


def test_the_map_lists_every_package_and_no_other():
    [tree] = re.findall(r"```text\n(.*?)```", (SPECDEMO / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    named = set(re.findall(r"(\w+)/", tree.split("specdemo/\n")[1].split("\ntests/")[0]))
    packages = {path.parent.relative_to(SPECDEMO).name for path in SPECDEMO.glob("*/__init__.py")}
    assert packages <= named and named <= packages | {"tabs", "http", "static", "common"}


def test_the_document_on_the_command_line_lists_every_command():
    text = (SPECDEMO / "cli" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\* `(\w+)` ", text, re.MULTILINE)
    assert sorted(f"specdemo {name}" for name in listed) == sorted(set(help_pages()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_links_and_terms_of_a_document_are_right(document):
    text = document.read_text(encoding="utf-8")
    spans = re.findall(r"`([^`\n]+)`", text)
    named = {option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}
    assert named - set(re.findall(r"--[a-z][a-z-]*", "".join(help_pages().values()))) <= OTHER_PROGRAMS
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
    parts = re.findall(r"\]\(((?:[^):#]*\.md)?)#([^)]+)\)", text)
    files = [(document.parent / path if path else document, part) for path, part in parts]
    assert [(path.name, part) for path, part in files if part not in parts_of(path)] == []
    assert retired_terms(text) == []


def parts_of(document):
    """Return the addresses of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_readmes_and_the_page_cite_the_same():
    readmes = [folder / "README.md" for folder in (ROOT, SPECDEMO / "engine")]
    entries = [
        re.findall(r"```bibtex\n(.*?)\n```", path.read_text(encoding="utf-8"), re.DOTALL) for path in readmes
    ]
    cited = "\n\n".join(itertools.chain(*entries))
    [shown] = re.findall(
        r"<pre[^>]*>(.*?)</pre>", (STATIC / "common" / "footer.html").read_text(encoding="utf-8"), re.DOTALL
    )
    assert cited == shown and cited.count("\n@") == 1


def test_the_thumbnail_of_a_space_is_the_picture_of_link_previews():
    [path] = re.findall(
        r"^thumbnail: https://huggingface\.co/spaces/OWNER/NAME/resolve/main/(.*)$",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert ROOT / path == STATIC / PICTURE


def test_the_guide_to_extensions_names_what_the_files_have():
    guide = (SPECDEMO / "README.md").read_text(encoding="utf-8").split("## Extend")[1]
    steps = re.findall(r"^\* `([\w/.-]+\.(?:py|html|md))`: (.*)$", guide, re.MULTILINE)
    assert len(steps) > 10
    for path, step in steps:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert [name for name in re.findall(r"`([\w-]+)`", step) if name not in text] == [], path


def retired_terms(text):
    """Return the retired terms in a text; names with a hyphen, such as ``wrong-guesses``, are other words."""
    words = " ".join(text.split())
    return re.findall(rf"(?<![\w-])(?:{RETIRED})(?![\w-])", words, re.IGNORECASE)


def visible_text(path):
    """Return a page's words and the attributes that are shown or spoken, or a module's string literals."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        text = re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        shown = re.findall(r'\s(?:title|aria-label|placeholder)="([^"]*)"', text)
        return " ".join([re.sub(r"<[^>]*>", " ", text), *shown])
    code = re.sub(r"(^|\s)//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return " ".join(re.findall(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`', code))


def test_no_text_of_the_page_or_a_help_uses_a_retired_term():
    paths = [path for path in (SPECDEMO / "ui" / "static").rglob("*.*") if path.suffix in (".html", ".js")]
    texts = help_pages() | {path.name: visible_text(path) for path in paths}
    assert {name: terms for name, text in texts.items() if (terms := retired_terms(text))} == {}


def shell_commands(document):
    """Return the commands in the shell blocks of a document, each as a list of words."""
    blocks = re.findall(r"```bash\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(part, comments=True) for line in lines for part in line.split(" && ")]
    return [command for command in words if command]


def test_every_documented_command_can_be_pasted():
    """Each command is installed by the setup or is another program, and its arguments exist."""
    commands = [command for document in DOCUMENTS for command in shell_commands(document)]
    called = {command[0] for command in commands}
    assert called <= OURS | OTHERS, "no path into the environment"
    for command in commands:
        if command[0] == "specdemo":
            command_parser().parse_args(command[1:])
        elif command[:2] == ["python", "app.py"]:
            command_parser().parse_args(["serve", *command[2:]])
    assert sum(command[0] == "specdemo" for command in commands) > 20


def test_the_systemd_unit_starts_the_page():
    text = (SPECDEMO / "service" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=/opt/specdemo/bin/specdemo (.*)$", text, re.MULTILINE)
    assert command_parser().parse_args(shlex.split(command)).allow_host == "demo.example.org"


def test_the_proxy_of_the_example_passes_on_the_port():
    """In nginx, $host has no port."""
    [example] = re.findall(r"```nginx\n(.*?)```", (SPECDEMO / "service" / "README.md").read_text(), re.DOTALL)
    hosts = re.findall(r"proxy_set_header (?:X-Forwarded-)?Host (.*);", example)
    assert hosts == ["$http_host", "$http_host"]


def test_a_clone_fetches_no_history():
    clones = re.findall(r"git clone [^`]*", (ROOT / "README.md").read_text().replace("\n", " "))
    assert len(clones) == 2
    assert all(clone.startswith(("git clone --depth 1 ADDRESS", "git clone . ")) for clone in clones)


@pytest.mark.parametrize(
    "command", [one for one in shell_commands(ROOT / "README.md") if one[0] == "hf"], ids=lambda one: one[1]
)
def test_the_commands_that_create_a_space_exist(command):
    subcommands = {"auth": 2, "repos": 2, "upload": 1}[command[1]]
    program = Path(sysconfig.get_path("scripts")) / "hf"
    environment = {**os.environ, "COLUMNS": "1000", "NO_COLOR": "1"}
    shown = subprocess.run(
        [program, *command[1 : 1 + subcommands], "--help"], env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    for option, value in itertools.pairwise([*command, ""]):
        if option.startswith("--"):
            (line,) = re.findall(rf"^ +(?:-\w, )?(?:--[\w-]+, )*{option}\b.*$", shown.stdout, re.MULTILINE)
            choices = re.search(r"\[([\w-]+(?:\|[\w-]+)+)\]", line)
            assert not choices or value in choices[1].split("|")


def test_the_setup_installs_the_command_and_starts_the_page():
    setup = shell_commands(ROOT / "README.md")[:4]
    assert setup[1:] == [[".", ".venv/bin/activate"], ["pip", "install", "-e", "."], ["specdemo", "serve"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    scripts = project["project"]["scripts"]
    assert EntryPoint("specdemo", scripts["specdemo"], "console_scripts").load() is main
    assert project["tool"]["setuptools"]["dynamic"]["dependencies"] == {"file": ["requirements.txt"]}
