"""The settings of a cluster."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from specdemo.cli.main import parsed
from specdemo.cli.serve import check_settings
from specdemo.cluster.plan import parse_replicas
from specdemo.cluster.service import plan_for
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.service.hosting import Hosting
from specdemo.service.queue import Bounds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("2", {"built-in": (2, 2)}),
        (" built-in=1..3 , gpt2-xl=1", {"built-in": (1, 3), "gpt2-xl": (1, 1)}),
        *((text, "must be a number") for text in ("", "two", "1...4", "-1")),
        *((text, "must be 1 or more") for text in ("0", "4..1")),
        ("1,2", "built-in more than once"),
        ("gpt2-xl=1", "must include the default pair, built-in"),
    ],
)
def test_replicas_are_a_number_or_a_range_per_pair(text, expected):
    if isinstance(expected, dict):
        assert parse_replicas(text, "built-in") == expected
    else:
        with pytest.raises(UserError, match=expected):
            parse_replicas(text, "built-in")


def test_a_plan_has_the_sources_and_bounds_of_its_host():
    hosting = Hosting(device="cpu", precision="fp32", recalibrate=True, bounds=Bounds(max_seconds=40))
    plan, offer = plan_for(hosting, "auto", "built-in=1..2,gpt2-xl=1")
    assert (plan.max_replicas, plan.max_seconds, plan.recalibrate) == (3, 40, True)
    assert plan.sources["built-in"] == Sources(device="cpu", precision="fp32")
    assert plan.sources["gpt2-xl"].target == "openai-community/gpt2-xl"
    assert offer.default == "built-in" and list(offer.titles) == ["built-in", "gpt2-xl"]
    plan, offer = plan_for(Hosting(target="/models/a", draft="/models/b"), "head:6379", "3")
    assert list(plan.replicas) == [offer.default] == ["own"] and plan.sources["own"].target == "/models/a"
    with pytest.raises(UserError, match="nowhere"):
        plan_for(Hosting(), "auto", "built-in=1,nowhere=1")


def test_settings_that_a_cluster_does_not_allow_are_refused(monkeypatch):
    with pytest.raises(UserError, match="--cluster does not work with --allow-any-model"):
        check_settings(parsed(["serve", "--cluster", "auto", "--allow-any-model"]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[cluster\]'"):
        check_settings(parsed(["serve", "--cluster", "auto"]))


@pytest.mark.slow
def test_the_page_s_process_never_imports_ray():
    code = "import sys, app, specdemo.cluster.service, specdemo.cli.bench; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
