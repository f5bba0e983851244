"""Requests to the lab, and the events of an experiment however it ends."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers.tiny import service_of, tiny_pair

import specdemo.lab.lab_events
from specdemo.lab.conditions import CONDITIONS, K
from specdemo.lab.experiments import NOISES
from specdemo.lab.lab_events import lab_events
from specdemo.lab.lab_request import NEW_TOKENS, PROMPTS, parse_lab
from specdemo.lab.points import (
    CATEGORY,
    CONTRASTS,
    DRAFT_COST,
    DRAFT_LENGTH,
    DRAFT_QUALITY,
    DRAFTER,
    THROUGHPUT,
    SweepPoint,
    outcome,
)
from specdemo.records.limits import MAX_LAB_PROMPTS, MAX_LAB_TOKENS, UserError
from specdemo.records.trace import Mode
from specdemo.service.jobs import JobKind
from specdemo.service.service import local_service

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
SHORT = {"max_new_tokens": 4, "prompts": 1}
POINT = SweepPoint(None, "", 2, 1.5, 1.4, 1.6, 60.0, 40.0, 0.6, 2.0, 0.1, 1.1, 1.6, 1.5, True)


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def events(pair: Any, stop: Any = lambda: False, **raw: Any) -> Iterator[dict[str, Any]]:
    return lab_events(pair, parse_lab({**SHORT, **raw}), stop)


def test_sweep_yields_its_plan_its_points_and_its_table(pair):
    start, *points, end = events(pair, experiment=DRAFT_QUALITY, k=2)
    assert (start["type"], start["name"], start["expected"]) == ("experiment", DRAFT_QUALITY, 8)
    assert start["about"]["max_new_tokens"] == 4 and len(start["about"]["prompts"]) == 1
    assert [event["point"]["x"] for event in points] == list(NOISES)
    for done, event in enumerate(points, 1):
        assert (event["done"], event["expected"], event["outcome"]) == (done, 8, None)
        traces = {trace["uid"]: trace for trace in event["chart"]["dark"]["data"]}
        assert len(traces["speedup"]["x"]) == done
        assert event["chart"]["light"]["layout"]["xaxis"]["tickvals"] == list(NOISES)
    assert (end["type"], end["finish"], end["csv"].count("\n")) == ("end", "complete", 9)
    table = {"about": start["about"], "points": [event["point"] for event in points]}
    assert json.loads(end["json"]) == table and "All 8 points" in end["sentence"]


def test_stopped_or_failed_experiment_keeps_its_points(pair, monkeypatch):
    stopped = False
    running = events(pair, lambda: stopped, experiment=DRAFT_COST)
    kept = [next(running), next(running), next(running)][1:]
    stopped = True
    (end,) = running
    assert end["finish"] == "stopped" and "2 of 8" in end["sentence"]
    assert json.loads(end["json"])["points"] == [event["point"] for event in kept]

    def faulty(*_arguments: Any) -> Iterator[SweepPoint]:
        yield POINT
        raise UserError("Broken; mend it.")

    monkeypatch.setattr(specdemo.lab.lab_events, "measure_experiment", faulty)
    failing = events(pair, experiment=DRAFT_COST)
    *before, end = itertools.islice(failing, 3)
    with pytest.raises(UserError, match="Broken"):
        next(failing)
    assert [event["type"] for event in before] == ["experiment", "point"]
    assert end["finish"] == "failed" and len(json.loads(end["json"])["points"]) == 1


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_service_yields_both_sides_of_a_condition_and_their_outcome(pair, name):
    measured = service_of(pair).events(JobKind.MEASURE, {**SHORT, "experiment": name}, lambda: False)
    start, helps, hurts, end = (event for event in measured if event["type"] != "progress")
    assert start["expected"] == 2 and helps["outcome"] is None and helps["chart"] is hurts["chart"] is None
    points = [dict(event["point"]) for event in (helps, hurts)]
    assert [(p.pop("contrast"), p.pop("side")) for p in points] == [(name, "helps"), (name, "hurts")]
    better, worse = (SweepPoint(**point) for point in points)
    assert hurts["outcome"] == outcome(better, worse)._asdict()
    assert end["finish"] == "complete" and json.loads(end["json"])["about"]["experiment"] == name
    if name == "parallel-verification":
        assert worse.v == K + 1 > better.v and worse.s_theory < better.s_theory
        assert (worse.alpha, worse.tau, worse.identical) == (better.alpha, better.tau, True)
    if name == "wrong-guesses":
        assert (worse.alpha, worse.tau, worse.c, worse.identical) == (0.0, 1.0, 0.0, True)


def test_all_conditions_have_one_chart_and_batches_have_one(pair):
    running = events(pair, experiment=CONTRASTS)
    assert next(running)["expected"] == 2 * len(CONDITIONS)
    _, second, third = (next(running) for _ in range(3))
    assert second["outcome"] and third["outcome"] is None
    assert [len(trace["x"]) for trace in third["chart"]["light"]["data"]][:2] == [2, 1]
    _, point = itertools.islice(events(pair, experiment=THROUGHPUT, k=3), 2)
    assert point["chart"]["light"]["data"][0]["x"] == [1]


def test_sweep_uses_the_builtin_prompts_or_the_visitors_own(pair):
    def begun(**settings: Any) -> tuple[int, list[str]]:
        start = next(events(pair, **settings))
        return start["expected"], start["about"]["prompts"]

    assert begun(experiment=DRAFT_LENGTH, prompt="Once upon", mode="raw")[1] == ["Once upon"]
    assert len(begun(experiment=DRAFT_LENGTH, prompts=2)[1]) == 2
    expected, prompts = begun(experiment=CATEGORY, prompts=2)
    assert expected == 6 and len(prompts) == 12


@pytest.mark.parametrize(
    ("helps", "hurts", "kind", "words"),
    [
        (1.5, 0.75, "expected", "2.0 times"),
        (0.75, 1.5, "unexpected", "2.0 times"),
        (1.0, 1.09, "close", "less than 10%"),
        (1.09, 1.0, "close", "less than 10%"),
        (None, 1.0, "close", "missing"),
    ],
)
def test_outcome_compares_speedups_beyond_a_margin(helps, hurts, kind, words):
    found = outcome(replace(POINT, speedup=helps), replace(POINT, speedup=hurts))
    assert found.kind == kind and words in found.text


@pytest.mark.parametrize("disturbed", [(True, False), (False, True)])
def test_a_contrast_that_other_work_disturbed_has_no_outcome(disturbed):
    sides = zip((0.75, 1.5), disturbed, strict=True)
    found = outcome(*(replace(POINT, speedup=speedup, disturbed=bad) for speedup, bad in sides))
    assert found == ("close", "No result: other work disturbed the runs. Measure again.")


def test_missing_settings_take_their_defaults():
    missing = dict.fromkeys(("k", "prompt", "mode", "seed"))
    request = parse_lab({"experiment": DRAFT_LENGTH, **missing})
    assert request.settings == {"max_new_tokens": NEW_TOKENS}
    assert (request.prompts, request.prompt, request.mode) == (PROMPTS, "", Mode.CHAT)
    assert "k" not in parse_lab({"experiment": DRAFTER, "k": 4}).settings
    assert parse_lab({"experiment": DRAFT_COST, "k": 4}).settings["k"] == 4


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"experiment": "nonsense"}, "Unknown experiment 'nonsense'; choose: draft-length"),
        ({"experiment": ["draft-length"]}, "Unknown experiment a list"),
        ({"max_new_tokens": MAX_LAB_TOKENS + 1}, f"from 1 to {MAX_LAB_TOKENS}"),
        ({"prompts": MAX_LAB_PROMPTS + 1}, f"from 1 to {MAX_LAB_PROMPTS}"),
        ({"prompts": 0}, "from 1"),
        ({"k": 99}, "from 1 to 12"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"prompt": "   "}, "empty"),
        ({"mode": "shout"}, "mode must be one of"),
        ({"drafter": "draft-model"}, "Unknown setting 'drafter'"),
        ({"experiment": CONTRASTS, "prompt": "mine"}, "leave the prompt empty"),
        ({"experiment": CATEGORY, "prompt": "mine"}, "compares categories of built-in prompts"),
    ],
    ids=str,
)
def test_bad_request_is_refused_before_any_model_is_loaded(wrong, words):
    service = local_service(lambda _name, _progress: pytest.fail("loaded"))
    with pytest.raises(UserError, match=words):
        next(service.events(JobKind.MEASURE, {"experiment": DRAFT_LENGTH, **wrong}, lambda: False))
