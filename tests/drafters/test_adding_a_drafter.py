"""The example in the drafters' README works as printed."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import specdemo
from specdemo.records.drafter_kinds import KINDS, DrafterKind

README = Path(specdemo.__file__).parent / "drafters" / "README.md"


@pytest.mark.usefixtures("one_thread")
def test_a_drafter_is_added_by_a_module_a_table_line_and_a_test(monkeypatch):
    code, line, test = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    module = ModuleType("specdemo.drafters.repeat")
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert importlib.import_module(module.__name__) is module
    kind = eval(line, {"DrafterKind": DrafterKind})
    monkeypatch.setitem(KINDS, kind.name, kind)
    names: dict[str, Any] = {}
    exec(test, names)
    ruff = [sys.executable, "-m", "ruff", "check", "--stdin-filename", "tests/drafters/test_repeat.py", "-"]
    subprocess.run(ruff, input=test.encode(), cwd=README.parents[2], check=True)
    names["test_repeat_leaves_the_text_to_the_target"]()
