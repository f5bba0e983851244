"""Trace files: a saved run loads again, any other file is refused in one sentence."""

import copy
import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from helpers.tiny_runs import PROMPT, decode_pieces, decoded, finished
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.cli.terminal import TerminalView
from specdemo.engine.race import replay_events
from specdemo.records.limits import MAX_K, MAX_PROMPT_CHARS, UserError
from specdemo.records.trace import Rule, dump
from specdemo.records.trace_file import MAX_BYTES, MAX_PIECE_BYTES, load

pytestmark = pytest.mark.usefixtures("one_thread")

Trace = dict[str, Any]


@pytest.fixture
def trace() -> Trace:
    return json.loads(finished().to_json())


@pytest.mark.parametrize("kind", [str, str.encode])
def test_a_byte_order_mark_before_a_trace_is_skipped(trace, kind):
    assert load(kind("\ufeff" + dump(trace))) == load(dump(trace))


@pytest.mark.parametrize("rule", list(Rule))
def test_a_saved_run_loads_again_and_needs_no_tokenizer(rule):
    again = load(finished(rule).to_json())
    assert again == finished(rule)
    assert decode_pieces(again.pieces, again.prompt_ids) == PROMPT
    assert list(replay_events(again)) == list(replay_events(finished(rule)))


def test_a_browser_may_write_whole_numbers_without_a_point():
    def as_javascript(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: as_javascript(part) for key, part in value.items()}
        if isinstance(value, list):
            return [as_javascript(part) for part in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    written = json.dumps(as_javascript(json.loads(finished().to_json())))
    assert '"q": 1,' in written
    assert load(written.encode()) == finished()


def test_an_older_trace_takes_the_defaults_of_newer_fields(trace):
    del trace["config"]["draft_alone"], trace["lanes"]["draft"], trace["totals"]
    for lane in trace["lanes"].values():
        for round_ in lane["rounds"]:
            del round_["drafted_by"], round_["draft_steps"], round_["prefill_s"]
    again = load(dump(trace))
    assert [len(r.drafted) for r in again.lanes["speculative"].rounds] == [
        len(r.drafted) for r in finished().lanes["speculative"].rounds
    ]
    assert not again.config.draft_alone


def test_a_lane_that_was_cut_off_loads(trace):
    del trace["lanes"]["speculative"]["rounds"][2:]
    trace["lanes"]["baseline"]["rounds"].clear()
    del trace["lanes"]["draft"]
    *_, end = replay_events(load(dump(trace)))
    assert end["finish"] is None and end["badge"] is None


def test_a_run_that_an_accepted_token_ended_loads():
    lane = finished().lanes["speculative"]
    ending = next(
        token.id
        for round_ in lane.rounds
        for place, token in enumerate(round_.drafted[: round_.accepted])
        if lane.ids.index(token.id) == round_.position + place - len(finished().prompt_ids)
    )
    run = decoded(Rule.GREEDY, eos_id=ending)
    last = run.lanes["speculative"].rounds[-1]
    assert (last.emission, last.finish) == (None, "eos") and not last.drafted[-1].compared
    assert load(run.to_json()) == run


def test_stored_figures_are_computed_again(trace):
    trace["totals"] = {"speedup": 99.0, "anything": [["x"]]}
    assert load(dump(trace)).totals == finished().totals


GONE = object()
FIRST = "lanes speculative rounds 0"
ALONE = "lanes baseline rounds 0"
DAMAGED = [
    ("extra", 1, "extra is a field that this program does not know"),
    ("__proto__", {"x": 1}, "__proto__ is a field that this program does not know"),
    ("a\nb", 1, r"\['a\\nb'\] is a field that"),
    ("device", GONE, "device is missing"),
    (f"{FIRST} index", "0", r"lanes.speculative.rounds\[0\].index must be a whole number"),
    (f"{FIRST} draft_s", True, "draft_s must be a number"),
    (f"{FIRST} draft_s", 1e300, "draft_s must be less than"),
    (f"{FIRST} draft_s", -1e-9, "draft_s must be greater than or equal to 0"),
    (f"{FIRST} other_s", 1e-300, "other_s must be 0 or a positive number of seconds"),
    (f"{FIRST} drafted 0 compared", 1, r"drafted\[0\].compared must be true or false"),
    ("device", 7, "device must be text"),
    ("device", "\ud800", "device contains a broken character"),
    ("device", "x" * (MAX_PROMPT_CHARS + 1), "device has more than 8,000 characters"),
    ("versions \udfff", "1", "lone surrogate"),
    ("versions", {str(number): "1" for number in range(33)}, "versions has more than 32 entries"),
    ("totals", {str(number): 1 for number in range(257)}, "an object contains more than 256 names"),
    ("lanes", [], "lanes must be an object"),
    ("pair target", GONE, "pair.target is missing"),
    ("prompt_ids", None, "prompt_ids must be a list"),
    ("prompt_ids", [], "prompt_ids is empty"),
    ("prompt_ids", [-1], r"prompt_ids\[0\] must be greater than or equal to 0"),
    ("prompt_ids", [2**64], r"prompt_ids\[0\] must be less than or equal to 4294967295"),
    ("config", [], "config must be an object"),
    ("config k", 99, "config is refused: k must be from 1 to 12"),
    ("config speed", 2, "config is refused: Unknown setting 'speed'"),
    ("config draft_alone", False, "lanes.draft is a lane that the run's settings do not ask for"),
    ("config max_new_tokens", 23, "more than the 23 tokens"),
    ("lanes third", {}, "lanes.third is a lane that the run's settings do not ask for"),
    ("lanes speculative", GONE, "lanes.speculative has no rounds"),
    ("lanes speculative rounds", lambda rounds: rounds[:1] * 1025, "has more than 1,024 entries"),
    ("lanes speculative rounds 1", GONE, r"rounds\[1\].index must be 1"),
    (f"{FIRST} index", 1, r"rounds\[0\].index must be 0"),
    (f"{FIRST} position", 3, r"rounds\[0\].position must be 1\d"),
    (f"{FIRST} finish", "eos", r"rounds\[0\] ends the lane"),
    (f"{FIRST} finish", "tired", "finish must be 'length', 'eos', 'context' or 'stopped'"),
    (f"{FIRST} drafted", lambda drafted: drafted * 5, "has more than 12 entries"),
    (f"{ALONE} drafted", lambda _: [DRAFTED], "baseline.rounds.0..drafted must be empty in this lane"),
    (f"{FIRST} drafted 0 status", "pending", "a verdict that contradicts"),
    ("CORRECTED drafted", lambda drafted: [*drafted, DRAFTED], "a verdict that contradicts"),
    ("ACCEPTED compared", False, r"drafted\[0\] has a verdict that contradicts"),
    ("CORRECTED drafted", lambda drafted: [*drafted, REJECTED, REJECTED], "a verdict that contradicts"),
    ("CORRECTED emission status", "bonus", "must be corrected"),
    ("CORRECTED emission", None, "emission is missing"),
    ("REJECTED", lambda token: {**token, "rejected": False, "compared": False}, "but none of them was rej"),
    (f"{ALONE} emission status", "corrected", "emission.status must be bonus here"),
    ("lanes speculative rounds -1 emission", None, "emission is missing"),
    (f"{FIRST} drafted 0 raw_p", 1.5, r"drafted\[0\].raw_p must be less than or equal to 1.001"),
    (f"{FIRST} drafted 0 q", -0.1, r"drafted\[0\].q must be greater than or equal to 0"),
    (f"{FIRST} emission prob", 2, "emission.prob must be less than"),
    (f"{FIRST} emission top 1 1", 7.0, r"emission.top\[1\]\[1\] must be less than"),
    (f"{FIRST} emission top 1", [1, 0.5, 7.0], r"emission.top\[1\]\[2\] is one value too many"),
    (f"{FIRST} emission top", lambda top: [*top, [1, 0.0]], "emission.top has more than 5 entries"),
    ("calibration v", lambda costs: costs[:3], "calibration.v must have at least 4 entries"),
    ("calibration v 0", 0.0, "calibration.v must be positive"),
    ("calibration step_s", 0.0, "calibration.step_s must be positive"),
    ("calibration c", -1.0, "calibration.c must not be negative"),
    ("pieces SHOWN", GONE, r"pieces has no entry for token \d+, which the run shows"),
    ("pieces PROMPT", GONE, "which the run shows"),
    ("specials", [4_000_000], "4000000, which specials lists"),
    ("pieces 5", "!!!", r"pieces\[5\] must be base64 of at most 1,024 bytes"),
    ("pieces 5", "é===", r"pieces\[5\] must be base64"),
    ("pieces 5", "AAAA" * (MAX_PIECE_BYTES // 3 + 1), r"pieces\[5\] must be base64"),
    ("pieces 5", 7, r"pieces\[5\] must be base64"),
    ("pieces 05", "", r"pieces\['05'\] is not a token id"),
    ("pieces", [], "pieces must be an object"),
]
DRAFTED = json.loads(dump(asdict(finished().lanes["speculative"].rounds[0].drafted[0])))
REJECTED = {**DRAFTED, "status": "discarded", "compared": True, "rejected": True}


def damage(trace: Trace, path: str, value: Any) -> None:
    rounds = trace["lanes"]["speculative"]["rounds"]
    corrected = next(i for i, one in enumerate(rounds) if one["emission"]["status"] == "corrected")
    kept = [token["status"] == "accepted" for token in rounds[corrected]["drafted"]]
    accepting = next(i for i, one in enumerate(rounds) if one["drafted"][0]["status"] == "accepted")
    for word, place in {
        "REJECTED": f"CORRECTED drafted {kept.index(False)}",
        "CORRECTED": f"lanes speculative rounds {corrected}",
        "ACCEPTED": f"lanes speculative rounds {accepting} drafted 0",
        "SHOWN": str(rounds[0]["emission"]["id"]),
        "PROMPT": str(trace["prompt_ids"][0]),
    }.items():
        path = path.replace(word, place)
    *way, last = path.split(" ")
    inner: Any = trace
    for part in way:
        inner = inner[int(part) if isinstance(inner, list) else part]
    key = int(last) if isinstance(inner, list) else last
    if value is GONE:
        del inner[key]
    else:
        inner[key] = value(inner[key]) if callable(value) else value


@pytest.mark.parametrize(
    ("path", "value", "words"), DAMAGED, ids=[f"{number} {case[0]!a}" for number, case in enumerate(DAMAGED)]
)
def test_a_damaged_trace_is_refused_with_the_place(trace, path, value, words):
    damage(trace, path, value)
    with pytest.raises(UserError, match=f"^This trace is damaged: .*{words}") as caught:
        load(json.dumps(trace))
    assert is_one_sentence(str(caught.value))


HOSTILE: dict[str, dict[str, Any]] = {
    "bad ids": {"prompt_ids": [-1] * 500_000},
    "unknown fields": {str(number): 1 for number in range(300_000)},
    "bad pieces": {"pieces": {str(number): 1 for number in range(262_000)}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_many_bad_items_are_refused_at_the_first(trace, name):
    text = json.dumps({**trace, **HOSTILE[name]})
    begin = time.process_time()
    json.loads(text)
    parsed = time.process_time() - begin
    with pytest.raises(UserError, match="This trace is damaged: "):
        load(text)
    assert time.process_time() - begin < 4 * parsed + 0.5


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", r"not valid JSON \(character 1\)"),
        ("[]", "not a trace; choose a file"),
        ("null", "not a trace; choose a file"),
        ('{"version": true}', "not a trace; choose a file"),
        ('{"version": 99}', "version 99, which a newer specdemo wrote; update"),
        ('{"version": 0}', "version 0, but specdemo reads only the versions 1 and 2"),
        ('{"version": 1}', "damaged: config is missing"),
        ('{"version": NaN}', "not valid JSON"),
        ('{"version": ' + "9" * 5000 + "}", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"\x1f\x8b\x08" + b"\0" * 900, "not valid JSON"),
        ('{"version": 1, "version": 1}', "damaged: an object contains the same name twice"),
        ('{"version": 1, "totals": {"__proto__": {}, "__proto__": 1}}', "the same name twice"),
        ('{"version": 1e400}', "not a trace; choose a file"),
        ('{"version": "1"}', "not a trace; choose a file"),
        ("[" * 1_000_000, "not valid JSON"),
        ('{"totals":' * 1_000_000, "not valid JSON"),
        (b" " * (MAX_BYTES + 1), "too large; choose a trace of at most 16,000,000 bytes"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_a_file_that_is_no_trace_is_refused_in_words(data, words):
    with pytest.raises(UserError, match=words) as caught:
        load(data)
    assert is_one_sentence(str(caught.value))


def test_nan_and_infinity_are_refused():
    text = finished().to_json()
    for word in ("NaN", "Infinity", "-Infinity", "1e999"):
        with pytest.raises(UserError):
            load(text.replace('"other_s":', f'"other_s":{word},"x":', 1))


def test_the_longest_possible_run_loads():
    run = finished()
    base = run.lanes["baseline"].rounds[0]
    many = tuple(replace(base, index=i, position=base.position + i) for i in range(1024))
    lanes = {name: replace(lane, rounds=many) for name, lane in run.lanes.items()}
    longest = replace(run, lanes=lanes, config=replace(run.config, max_new_tokens=1024, k=MAX_K))
    assert len(load(longest.to_json()).lanes["draft"].ids) == 1024


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 30),
    st.floats(),
    st.sampled_from([1e-320, 1e308, -0.0]),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["accepted", "discarded", "pending", "corrected", "bonus", "eos", "draft", "auto"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@settings(max_examples=50)
@given(st.data())
def test_a_mutated_trace_plays_or_is_refused_in_a_sentence(data):
    trace = json.loads(finished(data.draw(st.sampled_from(list(Rule)))).to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(trace, data.draw)
    plays_or_is_refused(json.dumps(trace))


@settings(max_examples=30)
@given(st.data())
def test_a_file_with_broken_bytes_plays_or_is_refused_in_a_sentence(data):
    text = bytearray(finished().to_json().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        text[begin : begin + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    plays_or_is_refused(bytes(text))


def mutate(trace: Trace, draw: Callable[..., Any]) -> None:
    place: Any = trace
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 5)) == 0:
            break
        place = inner
    match draw(st.sampled_from(["replace", "replace", "replace", "remove", "double"])):
        case "replace":
            place[key] = draw(VALUES)
        case "remove":
            del place[key]
        case "double" if isinstance(place, list):
            place.insert(key, copy.deepcopy(inner))
        case "double":
            place[draw(st.text(max_size=6))] = copy.deepcopy(inner)


def plays_or_is_refused(data: str | bytes) -> None:
    try:
        run = load(data)
    except UserError as caught:
        assert is_one_sentence(str(caught))
        return
    view = TerminalView(io.StringIO())
    for event in replay_events(run):
        dump(event).encode()
        view.show(json.loads(dump(event)))
    assert load(run.to_json()) == run


def is_one_sentence(text: str) -> bool:
    return text.isprintable() and text.endswith(".") and len(text) < 300
