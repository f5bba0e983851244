"""A run as events and as a trace, on a tiny pair."""

import json
import subprocess
import sys
import threading

import pytest
from helpers.tiny import tiny_pair

from specdemo.engine.race import replay_events
from specdemo.engine.speculate import PROMPT_PART
from specdemo.pairs.live import LiveRun
from specdemo.records.figures import fold
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Rule, dump

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = {"prompt": "naïve 🎉", "mode": "raw", "max_new_tokens": 12, "k": 3}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def live(pair, **changes):
    run = LiveRun(pair, parse_config({**REQUEST, **changes}))
    return run, list(run.events())


@pytest.mark.parametrize("rule", list(Rule))
def test_events_and_run_have_the_same_rounds_and_totals(pair, rule):
    run, events = live(pair, rule=rule, temperature=0 if rule is Rule.GREEDY else 0.8)
    assert [e["type"] for e in events] == ["start"] + ["round"] * (len(events) - 2) + ["end"]
    record = run.run
    streamed = {
        lane: [e["round"] for e in events[1:-1] if e["lane"] == lane] for lane in (SPECULATIVE, BASELINE)
    }
    saved = json.loads(record.to_json())
    for lane, rounds in streamed.items():
        assert json.loads(dump(rounds)) == saved["lanes"][lane]["rounds"]
    assert json.loads(dump(events[-1]["totals"])) == saved["totals"]
    refolded = fold({n: lane.rounds for n, lane in record.lanes.items()}, rule, record.calibration)
    assert vars(refolded) == record.totals
    seen = {int(i) for e in events for i in e.get("pieces", {})}
    assert seen == set(record.pieces)
    for round_ in record.lanes[SPECULATIVE].rounds:
        for token in round_.drafted:
            assert {token.id, *(a.id for a in token.draft_top + token.target_top)} <= seen
    if rule.same_text:
        assert record.lanes[SPECULATIVE].ids == record.lanes[BASELINE].ids
        assert events[-1]["badge"]["kind"] == "same"


def test_the_draft_alone_is_a_lane_of_the_trace_on_request(pair):
    run, events = live(pair, draft_alone=True)
    totals = events[-1]["totals"]
    assert set(run.run.lanes) == {SPECULATIVE, BASELINE, DRAFT}
    assert totals["draft_alone_tokens"] == len(run.run.lanes[DRAFT].ids) == 12
    assert events[-1]["draft_divergence"].endswith(f" at token {totals['draft_divergence'] + 1}.")
    for round_ in run.run.lanes[DRAFT].rounds:
        assert {round_.emission.id, *(other.id for other in round_.emission.top)} <= run.run.pieces.keys()
    without, events = live(pair)
    assert set(without.run.lanes) == {SPECULATIVE, BASELINE} and events[-1]["draft_divergence"] is None


@pytest.mark.parametrize("rule", list(Rule))
def test_a_saved_run_replays_the_same_events(pair, rule):
    # Both control tokens occur, since a trace keeps only those that do.
    temperature = 0 if rule is Rule.GREEDY else 0.8
    run, events = live(pair, prompt="<s>naïve 🎉</s>", rule=rule, temperature=temperature, draft_alone=True)
    assert list(replay_events(run.run)) == events
    assert {event["lane"] for event in events[1:-1]} == {SPECULATIVE, BASELINE, DRAFT}


def test_a_replay_needs_neither_torch_nor_models():
    code = "import sys, specdemo.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_stop_ends_both_lanes_within_their_round(pair):
    stopped = threading.Event()
    run = LiveRun(pair, parse_config({**REQUEST, "max_new_tokens": 200}), stopped.is_set)
    rounds = []
    for event in run.events():
        if event["type"] == "round":
            rounds.append(event)
            if len(rounds) == 4:
                stopped.set()
    assert len(rounds) <= 4 + 2
    assert event["type"] == "end" and event["sentence"].startswith("Stopped early.")


def test_a_long_prompt_shows_its_progress_before_the_start(pair):
    prompt, lanes = "a" * (2 * PROMPT_PART + 1), 3
    run, events = live(pair, prompt=prompt, draft_alone=True)
    shares = [event["fraction"] for event in events if event["type"] == "progress"]
    assert shares == pytest.approx([part / (2 * lanes) for part in range(1, 2 * lanes + 1)])
    assert [event["type"] for event in events[len(shares) :]][:2] == ["start", "round"]
    for lane in run.run.lanes.values():
        assert lane.rounds[0].prefill_s > 0 and lane.rounds[1].prefill_s == 0


@pytest.mark.parametrize("parts", range(1, 4))
def test_a_stop_while_the_prompt_is_processed_ends_the_run_before_its_start(pair, parts):
    stopped = threading.Event()
    run = LiveRun(pair, parse_config({**REQUEST, "prompt": "a" * (2 * PROMPT_PART)}), stopped.is_set)
    events = []
    for event in run.events():
        events.append(event)
        if len(events) == parts:
            stopped.set()
    assert [event["type"] for event in events] == ["progress"] * (parts + 1)
    assert events[-1]["text"] == "Stopped while the prompt was read"


def test_a_chat_prompt_needs_a_template(pair):
    ids = pair.prompt_ids(parse_config({"prompt": "hi", "mode": "chat"}))
    assert ids[0] == 0 and ids[-1] == 1
    template, pair.tokenizer.chat_template = pair.tokenizer.chat_template, None
    try:
        with pytest.raises(UserError, match="choose raw continuation"):
            pair.prompt_ids(parse_config({"prompt": "hi", "mode": "chat"}))
    finally:
        pair.tokenizer.chat_template = template


def test_a_prompt_of_control_tokens_only_runs(pair):
    _, events = live(pair, prompt="<s></s>")
    assert events[-1]["type"] == "end"
