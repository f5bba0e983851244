"""Requests for a proof, and its events, also when it is stopped."""

import itertools
import json
from typing import Any

import pytest
from helpers.tiny import service_of, tiny_pair

from specdemo.pairs.lanes import Lanes
from specdemo.proof import distribution
from specdemo.proof.other_libraries import GrowingRuntime
from specdemo.proof.proof_events import READINGS, SHOWN, STOPPED, WHY, proof_events
from specdemo.proof.proof_request import DRAWS, EXAMPLE, PROMPTS, Control, Proof, SampledBy, parse_proof
from specdemo.records.limits import UserError
from specdemo.records.trace import Rule, dump
from specdemo.service.jobs import JobKind
from specdemo.service.service import local_service
from specdemo.ui.component import STATIC

pytestmark = pytest.mark.usefixtures("one_thread")

Event = dict[str, Any]


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(noise=0.3)


def events_of(pair: Any, stop: Any = lambda: False, **raw: Any) -> list[Event]:
    return [json.loads(dump(event)) for event in proof_events(pair, parse_proof(raw), stop)]


def test_audit_yields_each_text_and_a_summary(pair, monkeypatch):
    start, first, second, end = events_of(pair, proof="greedy", prompts=2)
    assert start["proof"] == "greedy" and start["prompts"] == 2 and start["temperature"] == 0
    assert first["row"]["identical"] is True and first["row"]["tokens"] == start["max_new_tokens"]
    assert first["sentence"].startswith("1 of 1 texts identical")
    assert second["sentence"] == end["sentence"] == "2 of 2 texts identical, 96 tokens compared."
    assert (end["verdict"], end["words"]) == ("same", "Identical, token for token.")
    start, *_, end = events_of(pair, proof="shared-noise", prompts=1, temperature=1.3)
    assert start["temperature"] == 1.3 and end["verdict"] == "same"
    lane = Lanes.baseline
    monkeypatch.setattr(Lanes, "baseline", lambda self, c, ids, stop: lane(self, c, [*ids, 1], stop))
    *_, end = events_of(pair, proof="greedy", prompts=1)
    assert (end["verdict"], end["words"]) == ("different", "Not identical.")


@pytest.mark.parametrize(
    "recording", sorted((STATIC / "proof" / "recorded").iterdir()), ids=lambda path: path.stem
)
def test_recorded_proof_explains_its_result_as_a_new_one(recording):
    start, *_, end = map(json.loads, recording.read_text(encoding="utf-8").splitlines())
    assert end["reading"] == (READINGS[start["rule"]] if "rule" in start else WHY)
    settings = "The test compared 2,000 draws of 5 tokens per sample at temperature 1, top-k 2."
    assert (end["sentence"] == settings) == ("rule" in start)


def test_other_libraries_proof_yields_rows_a_reason_and_both_tokens_of_a_divergence(pair, monkeypatch):
    start, row, end = events_of(pair, proof="other-libraries", prompts=1)
    assert start["precision"] == pair.precision and start["device"] and start["temperature"] == 0
    assert row["row"].keys() >= {"gap", "shift"} and row["row"]["candidates"] == [] and end["reading"] == WHY
    assert (end["verdict"], end["words"]) == ("same", "No text differs.")
    real = GrowingRuntime._run

    def rounded(self, ids, rows):
        return real(self, ids, rows).neg() if len(ids) > 1 and rows else real(self, ids, rows)

    monkeypatch.setattr(GrowingRuntime, "_run", rounded)
    _, row, end = events_of(pair, proof="other-libraries", prompts=1)
    assert (end["verdict"], end["words"]) == ("different", "Texts differ by rounding.")
    assert [one.keys() for one in row["row"]["candidates"]] == [{"text", "alone", "verified"}] * 2


def test_stopped_proofs_keep_what_they_have(pair):
    asked = itertools.count()
    events = events_of(pair, lambda: next(asked) > 100, proof="greedy", prompts=5)
    rows = [event for event in events if event["type"] == "row"]
    assert 1 <= len(rows) < 5 and events[-1]["sentence"].startswith(f"{len(rows)} of {len(rows)} texts")
    assert [event["type"] for event in events_of(pair, lambda: True, proof="greedy")] == ["start", "end"]
    asked = itertools.count()
    *_, end = events_of(pair, lambda: next(asked) >= 50, draws=500)
    assert (end["drawn"], end["draws"], end["verdict"]) == (50, 500, "same")
    assert events_of(pair, lambda: True, draws=500)[-1]["sentence"] == STOPPED


@pytest.mark.parametrize("rule", [SampledBy.TRUE_RULE, SampledBy.BLOCK_COINS])
def test_samples_grow_and_end_in_a_verdict(pair, rule, monkeypatch):
    monkeypatch.setattr(distribution, "PROGRESS_S", 0.0)
    events = events_of(pair, draws=15, rule=str(rule), prompt="ab")
    start, *samples, last, end = events
    assert start["proof"] == "distribution" and start["rule"] == str(rule) and start["prompt"] == "ab"
    assert {event["type"] for event in [*samples, last]} == {"sample"} and len(samples) == 15
    assert end["reading"] == READINGS[rule] and end["control"] == (rule.control and str(rule.control))
    for event in [*samples, end]:
        texts, (kinds, *others) = event["texts"], event["others"]
        assert len(texts) <= SHOWN and all(isinstance(text, str) for text, *_ in texts)
        drawn = [sum(column) for column in list(zip(*texts, strict=True))[1:]]
        assert [a + b for a, b in zip(drawn, others, strict=True)] == [event["drawn"]] * 2
        assert (kinds > 0) == (sum(others) > 0) and "continuations" not in event


@pytest.mark.parametrize(
    ("rule", "rejected", "verdict"),
    [
        ("true-rule", False, "same"),
        ("true-rule", True, "different"),
        ("no-residual", False, "missed"),
        ("accept-everything", True, "caught"),
    ],
)
def test_verdict_depends_on_the_sampling_rule(pair, monkeypatch, rule, rejected, verdict):
    monkeypatch.setattr(distribution, "SIGNIFICANCE", 2.0 if rejected else -1.0)
    assert events_of(pair, draws=30, rule=rule)[-1]["verdict"] == verdict


def test_missing_settings_take_their_defaults():
    request = parse_proof({})
    assert request.proof is Proof.DISTRIBUTION and request.draws == DRAWS and request.rule.control is None
    assert request.config.prompt == EXAMPLE["prompt"] and request.config.rule is Rule.REJECTION
    assert parse_proof({"proof": "greedy"}).prompts == PROMPTS
    assert parse_proof({"proof": "shared-noise"}).config.rule is Rule.SHARED_NOISE
    assert [rule.control for rule in SampledBy] == [None, *Control]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"proof": "belief"}, "proof must be one of: greedy, other-libraries, shared-noise, distribution"),
        ({"proof": "greedy", "prompts": 0}, "prompts must be from 1 to 48"),
        ({"proof": "greedy", "prompts": "all"}, "prompts must be a whole number"),
        ({"proof": "shared-noise", "temperature": 0}, "temperature must be from 0.001 to 2"),
        ({"proof": "shared-noise", "temperature": None}, "temperature must be a number"),
        ({"draws": 10_001}, "draws must be from 1 to 10000"),
        ({"draws": 2.5}, "draws must be a whole number"),
        ({"rule": "greedy"}, "rule must be one of: true-rule, accept-everything, no-residual"),
        ({"prompt": " "}, "The prompt is empty"),
    ],
    ids=str,
)
def test_the_service_refuses_bad_settings_before_it_loads_a_pair(raw, words):
    service = local_service(lambda _name, _progress: pytest.fail("loaded"))
    with pytest.raises(UserError, match=words):
        next(service.events(JobKind.PROVE, raw, lambda: False))


def test_the_service_proves_on_its_pair(pair):
    events = service_of(pair).events(JobKind.PROVE, {"proof": "greedy", "prompts": 1}, lambda: False)
    kinds = [event["type"] for event in events if event["type"] != "progress"]
    assert kinds == ["start", "row", "end"]
