"""The measured speedup follows from the exported clocks alone, whatever the calibration found."""

import json
from dataclasses import replace

import pytest
from helpers.tiny import tiny_pair

from specdemo.api import compare
from specdemo.pairs.live import ROUGHLY, calibration_events
from specdemo.records.trace import BASELINE, SPECULATIVE
from specdemo.records.trace_file import load

pytestmark = pytest.mark.usefixtures("one_thread")


def measured(lane: dict) -> tuple[float, int]:
    """Return the seconds and the number of tokens of a lane of an exported trace."""
    rounds = lane["rounds"]
    seconds = sum(r["draft_s"] + r["verify_s"] + r["other_s"] for r in rounds)
    kept = sum(token["status"] == "accepted" for r in rounds for token in r["drafted"])
    return seconds, kept + sum(r["emission"] is not None for r in rounds)


@pytest.mark.parametrize("drafter", ["prompt-lookup", "draft-model"])
def test_the_speedup_of_a_live_run_follows_from_its_exported_clocks(drafter):
    exported = json.loads(
        compare(tiny_pair(), "hello", mode="raw", max_new_tokens=24, drafter=drafter).to_json()
    )
    seconds, tokens = measured(exported["lanes"][SPECULATIVE])
    baseline_seconds, baseline_tokens = measured(exported["lanes"][BASELINE])
    totals = exported["totals"]
    assert (totals["tokens"], totals["baseline_tokens"]) == (tokens, baseline_tokens) == (24, 24)
    assert totals["seconds"] == pytest.approx(seconds)
    assert totals["baseline_seconds"] == pytest.approx(baseline_seconds)
    speedup = (baseline_seconds / baseline_tokens) / (seconds / tokens)
    assert totals["speedup"] == pytest.approx(speedup, rel=1e-9)


def test_a_run_too_short_for_a_speedup_has_none_on_the_page_in_the_trace_and_after_loading():
    run = compare(tiny_pair(), "hello", mode="raw", max_new_tokens=4)
    assert run.totals["speedup"] is None
    assert load(run.to_json()).totals == run.totals


@pytest.mark.parametrize("scatter", [0.0, 0.5])
def test_a_run_with_rough_estimates_reports_them(scatter):
    pair = tiny_pair()
    for kind, costs in pair.costs.known.items():
        pair.costs.known[kind] = replace(costs, scatter=scatter)
    run = compare(pair, "hello", mode="raw", max_new_tokens=4)
    assert (ROUGHLY in run.arithmetic) == (scatter > 0)


@pytest.mark.parametrize("scatter", [0.0, 0.5])
def test_recalibration_reports_rough_estimates(scatter, monkeypatch):
    pair = tiny_pair()
    costs = replace(next(iter(pair.costs.known.values())), scatter=scatter)
    monkeypatch.setattr("specdemo.pairs.lanes.Lanes.calibrate_all", lambda _: costs)
    *_, last = calibration_events(pair)
    assert (ROUGHLY in last["sentence"]) == (scatter > 0)
