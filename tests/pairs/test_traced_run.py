"""A run as events and as a trace, on a tiny pair; its clocks, and estimates on a busy machine."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from helpers.tiny import tiny_pair

from specdemo.api import compare
from specdemo.engine.race import replay_events
from specdemo.engine.speculate import PROMPT_PART
from specdemo.pairs.traced_run import ROUGHLY, TracedRun, calibration_events
from specdemo.records.figures import fold
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Rule, dump, with_repeats
from specdemo.records.trace_file import load

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = {"prompt": "naïve 🎉", "mode": "raw", "max_new_tokens": 12, "k": 3}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def live(pair, **changes):
    run = TracedRun(pair, parse_config({**REQUEST, **changes}))
    events = list(run.events())
    return run.run, events


def stopped_after(pair, count, kind, **changes):
    """Stop a run after ``count`` events of a kind; return the types of its events, and the last event."""
    types = []
    run = TracedRun(pair, parse_config({**REQUEST, **changes}), lambda: types.count(kind) >= count)
    for event in run.events():
        types.append(event["type"])
    return types, event


@pytest.mark.parametrize("rule", list(Rule))
def test_events_run_saved_trace_and_replay_agree(pair, rule):
    # Both control tokens occur, since a trace keeps only those that do.
    temperature = 0 if rule is Rule.GREEDY else 0.8
    record, events = live(
        pair, prompt="<s>naïve 🎉</s>", rule=rule, temperature=temperature, draft_alone=True
    )
    assert [e["type"] for e in events] == ["start"] + ["round"] * (len(events) - 2) + ["end"]
    assert list(replay_events(record)) == events
    saved = json.loads(record.to_json())
    assert saved["lanes"].keys() == {SPECULATIVE, BASELINE, DRAFT}
    for name, lane in saved["lanes"].items():
        rounds = [e["round"] for e in events[1:-1] if e["lane"] == name]
        assert json.loads(dump(rounds)) == lane["rounds"]
    assert json.loads(dump(events[-1]["totals"])) == saved["totals"]
    refolded = fold({n: lane.rounds for n, lane in record.lanes.items()}, rule, record.calibration)
    assert vars(refolded) == record.totals
    seen = {int(i) for e in events for i in e.get("pieces", {})}
    assert seen == set(record.pieces)
    for round_ in record.lanes[SPECULATIVE].rounds:
        for token in round_.drafted:
            assert {token.id, *(a.id for a in token.draft_top + token.target_top)} <= seen
    for round_ in record.lanes[DRAFT].rounds:
        assert {round_.emission.id, *(other.id for other in round_.emission.top)} <= seen
    if rule.same_text:
        assert record.lanes[SPECULATIVE].ids == record.lanes[BASELINE].ids
        assert events[-1]["badge"]["kind"] == "same"
    totals = events[-1]["totals"]
    assert totals["draft_alone_tokens"] == 12
    if rule is Rule.GREEDY:
        assert events[-1]["draft_divergence"].endswith(f" from token {totals['draft_divergence'] + 1} on.")


def test_a_replay_needs_neither_torch_nor_models():
    code = "import sys, specdemo.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_stop_ends_both_lanes_within_their_round(pair):
    types, last = stopped_after(pair, 4, "round", max_new_tokens=200)
    assert types.count("round") <= 4 + 2
    assert last["type"] == "end" and last["sentence"].startswith("Stopped early.")


def test_a_long_prompt_shows_its_progress_before_the_start(pair):
    record, events = live(pair, prompt="a" * (2 * PROMPT_PART + 1), draft_alone=True)
    shares = [event["fraction"] for event in events if event["type"] == "progress"]
    assert shares == pytest.approx([part / 6 for part in range(1, 7)]), "two parts for each of three lanes"
    assert [event["type"] for event in events[len(shares) :]][:2] == ["start", "round"]
    for lane in record.lanes.values():
        assert lane.rounds[0].prefill_s > 0 and lane.rounds[1].prefill_s == 0


@pytest.mark.parametrize("parts", range(1, 4))
def test_a_stop_while_the_prompt_is_processed_ends_the_run_before_its_start(pair, parts):
    types, last = stopped_after(pair, parts, "progress", prompt="a" * (2 * PROMPT_PART))
    assert types == ["progress"] * (parts + 1)
    assert last["text"] == "Stopped while the prompt was read" and last["over"], "nothing more arrives"


def test_the_speedup_follows_from_the_exported_clocks(pair):
    run = compare(pair, "hello", mode="raw", max_new_tokens=24, drafter="draft-model")
    exported = json.loads(run.to_json())
    totals, pace = exported["totals"], {}
    for lane, prefix in ((SPECULATIVE, ""), (BASELINE, "baseline_")):
        rounds = exported["lanes"][lane]["rounds"]
        seconds = sum(r["draft_s"] + r["verify_s"] + r["other_s"] for r in rounds)
        kept = sum(token["status"] == "accepted" for r in rounds for token in r["drafted"])
        tokens = kept + sum(r["emission"] is not None for r in rounds)
        assert totals[f"{prefix}tokens"] == tokens == 24
        assert totals[f"{prefix}seconds"] == pytest.approx(seconds)
        pace[lane] = seconds / tokens
    assert totals["speedup"] == pytest.approx(pace[BASELINE] / pace[SPECULATIVE], rel=1e-9)


def test_a_run_too_short_for_a_speedup_has_none_also_after_loading(pair):
    run = compare(pair, "hello", mode="raw", max_new_tokens=4)
    assert run.totals["speedup"] is None and load(run.to_json()).totals == run.totals


@pytest.mark.parametrize("scatter", [0.0, 0.5])
def test_rough_estimates_are_reported_by_runs_and_recalibrations(scatter, monkeypatch):
    pair = tiny_pair()
    for kind, costs in pair.costs.known.items():
        pair.costs.known[kind] = replace(costs, scatter=scatter)
    run = compare(pair, "hello", mode="raw", max_new_tokens=4)
    monkeypatch.setattr("specdemo.pairs.lanes.Lanes.calibrate_all", lambda _: run.calibration)
    *_, last = calibration_events(pair)
    assert (ROUGHLY in run.arithmetic) == (ROUGHLY in last["sentence"]) == (scatter > 0)


def test_a_repeated_run_shows_the_median_and_keeps_all_rounds(pair):
    record, events = live(pair, repeats=3)
    kinds = [event["type"] for event in events if event["type"] != "progress"]
    assert kinds == ["start"] + ["round"] * (len(kinds) - 2) + ["end"]
    assert {event["text"] for event in events if event["type"] == "progress"} == {
        f"Measuring: run {number} of 3" for number in (1, 2, 3)
    }
    assert len(record.repeats) == 2
    assert {tuple(lanes[BASELINE].ids) for lanes in (record.lanes, *record.repeats)} == {
        tuple(record.lanes[BASELINE].ids)
    }
    end, shown = events[-1], record.totals["speedup"]
    assert len(end["speedups"]) == 3 and end["speedups"][1] == shown
    assert "Median of 3 runs" in end["remarks"]
    loaded = load(record.to_json())
    assert loaded == record and list(replay_events(loaded))[-1] == end
    assert len(dump(events[0])) < len(record.to_json()) / 2, "the others are stored without alternatives"


def test_repeats_that_drafted_different_tokens_can_be_saved_and_opened(pair):
    one, other = (live(pair, k=k)[0] for k in (1, 4))
    record = with_repeats(one, [other, one])
    assert load(record.to_json()) == record
    sent = {int(token) for event in replay_events(record) for token in event.get("pieces", {})}
    assert sent == set(record.pieces) >= set(other.lanes[SPECULATIVE].ids)


def test_a_stopped_repetition_shows_the_runs_that_ended(pair):
    events = stopped_after(pair, 40, "progress", repeats=5)
    end = events[-1]
    assert end["finish"] == "length" and 1 <= len(end["speedups"]) < 5
    assert stopped_after(pair, 2, "progress", repeats=5)[-1]["finish"] == "stopped"


def test_a_damaged_repetition_is_refused(pair):
    raw = json.loads(live(pair, repeats=2)[0].to_json())
    raw["repeats"][0][SPECULATIVE]["rounds"][1]["position"] += 1
    with pytest.raises(UserError, match=r"repeats\[0\]\.speculative\.rounds\[1\]\.position"):
        load(json.dumps(raw))
