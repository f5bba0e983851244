"""What people who join the project use: the page without models, the checks before a merge, the versions."""

import re
import shlex
import socket
import subprocess
import sys
import tomllib
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from specdemo import __version__

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_without_models_starts_by_the_command_of_the_guide():
    [command] = re.findall(r"^(python tests/page\.py)\b", GUIDE, re.MULTILINE)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [sys.executable, *shlex.split(command)[1:], str(port)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as page:
        try:
            assert page.stdout is not None
            [address] = re.findall(r"Open (http\S+) in a browser", page.stdout.readline())
            with urllib.request.urlopen(address) as answer:
                assert "Speculative decoding" in answer.read().decode()
        finally:
            page.kill()


def test_the_guide_names_tests_that_exist():
    named = re.findall(r"\btests/[\w/.]+", GUIDE)
    assert len(named) > 3 and all((ROOT / name).exists() for name in named)


def test_a_commit_is_linted_as_a_merge_is():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    before = {command.strip() for command in re.findall(r"entry: ([^,]+),", hooks)}
    stages = re.findall(
        r'^stage "[^"]+" \.venv/bin/(\S+(?: \S+)*)$', (ROOT / ".ci/run").read_text(), re.MULTILINE
    )
    merged = {
        re.sub(r" --pythonpath \S+", "", stage) for stage in stages if not stage.startswith(("pip", "python"))
    }
    assert before == merged and len(merged) == 4


def test_the_public_ci_runs_every_supported_python():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    [versions] = re.findall(r"python: \[(.*)\]", workflow)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert versions.split(", ")[0] == '"{}"'.format(project["requires-python"].removeprefix(">="))
    assert ".ci/run" in workflow


def test_the_changelog_begins_with_the_version_of_the_program():
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == __version__ and len(headings) > 1
