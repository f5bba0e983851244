"""The cluster's settings, and which of them go together."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from specdemo.cli.main import parsed
from specdemo.cli.serve import service_for
from specdemo.cluster.plan import ReplicaRange, parse_replicas
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
        ("1..4", {"built-in": (1, 4)}),
        ("built-in=2,gpt2-xl=1", {"built-in": (2, 2), "gpt2-xl": (1, 1)}),
        (" built-in=1..3 , gpt2-xl=1..2", {"built-in": (1, 3), "gpt2-xl": (1, 2)}),
    ],
)
def test_replicas_are_counted_by_pair(text, expected):
    assert parse_replicas(text, "built-in") == expected


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "takes a number"),
        ("two", "takes a number"),
        ("1...4", "takes a number"),
        ("-1", "takes a number"),
        ("0", "at least one replica of it"),
        ("4..1", "at least one replica of it"),
        ("1,2", "each pair once"),
        ("gpt2-xl=1", "leaves out built-in"),
        ("257", "more than 256 in all"),
        ("built-in=200,gpt2-xl=57", "more than 256 in all"),
    ],
)
def test_other_values_of_replicas_are_refused_in_a_sentence(text, sentence):
    with pytest.raises(UserError, match=sentence):
        parse_replicas(text, "built-in")


def test_a_plan_has_the_sources_and_bounds_of_its_host():
    hosting = Hosting(device="cpu", precision="fp32", recalibrate=True, bounds=Bounds(max_seconds=40))
    plan, offer = plan_for(hosting, "auto", "built-in=1..2,gpt2-xl=1", 2, 0.0)
    assert plan.replicas == {"built-in": ReplicaRange(1, 2), "gpt2-xl": ReplicaRange(1, 1)}
    assert plan.max_replicas == 3
    assert plan.sources["built-in"] == Sources(device="cpu", precision="fp32")
    assert plan.sources["gpt2-xl"].target == "openai-community/gpt2-xl"
    assert (plan.cpus, plan.gpus, plan.max_seconds, plan.recalibrate) == (2, 0.0, 40, True)
    assert (
        offer.default == "built-in" and list(offer.titles) == ["built-in", "gpt2-xl"] and not offer.any_model
    )


def test_models_of_the_hosts_own_are_replicated_under_one_name():
    plan, offer = plan_for(Hosting(target="/models/a", draft="/models/b"), "head:6379", "3", None, 1.0)
    assert list(plan.replicas) == [offer.default] == ["own"] and plan.sources["own"].target == "/models/a"


def test_a_cluster_does_not_load_any_model_that_a_visitor_names():
    with pytest.raises(UserError, match="--cluster goes neither with --allow-any-model"):
        plan_for(Hosting(any_model=True), "auto", "1", None, 0.0)


@pytest.mark.parametrize("cpus, gpus", [(0, 0), (-1, 0), (1, -1)])
def test_replicas_without_cores_or_with_negative_gpus_are_refused(cpus, gpus):
    with pytest.raises(UserError, match="--replica-cpus takes a number above 0"):
        plan_for(Hosting(), "auto", "1", cpus, gpus)


def test_an_unknown_pair_is_refused_by_name():
    with pytest.raises(UserError, match="nowhere"):
        plan_for(Hosting(), "auto", "built-in=1,nowhere=1", None, 0.0)


def test_without_ray_a_host_reads_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[cluster\]'"):
        service_for(parsed(["serve", "--cluster", "auto"]), Hosting())


def test_the_page_s_process_never_imports_ray():
    """With a cluster only the driver, another process, imports Ray."""
    code = (
        "import sys, app, specdemo.cluster.service, specdemo.cli.bench;"
        "from specdemo.cli.main import parsed; from specdemo.cli.serve import service_for;"
        "from specdemo.service.hosting import Hosting;"
        "service_for(parsed(['serve']), Hosting());"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
