"""The README of the trace format lists every field and no other, and its example works."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from specdemo.records import recordings
from specdemo.records.figures import Totals
from specdemo.records.trace import (
    SPECULATIVE,
    Alternative,
    Calibration,
    Lane,
    Round,
    Run,
    RunConfig,
    TargetToken,
    Token,
    Watched,
)

DOCUMENT = (Path(recordings.__file__).parent / "README.md").read_text(encoding="utf-8")
CLASSES = (Run, RunConfig, Lane, Round, Token, TargetToken, Alternative, Calibration, Totals, Watched)


def documented(name):
    [section] = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
    cells = re.findall(r"^\|(.*?)\|", section, re.MULTILINE)
    return [field for cell in cells for field in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_field_is_documented_once_and_no_other(kind):
    has = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    listed = documented(kind.__name__)
    missing = [name for name in has if name not in listed]
    unknown = [name for name in listed if name not in has]
    assert not missing, f"specdemo/records/README.md, {kind.__name__}: add a row for {', '.join(missing)}"
    assert not unknown, f"specdemo/records/README.md, {kind.__name__}: no such field: {', '.join(unknown)}"
    assert len(listed) == len(set(listed))


def test_the_example_computes_the_acceptance_rate_that_the_trace_has(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    run = recordings.load("story-sampled")
    Path("run.json").write_text(run.to_json(), encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    names: dict = {}
    exec(code, names)
    rounds = [one for one in run.lanes[SPECULATIVE].rounds if one.compared]
    assert dict(names["by_round"]) == {one.index: one.accepted / one.compared for one in rounds}
    assert f"acceptance rate of the run: {run.totals['alpha_compared']:.0%}" in capsys.readouterr().out
