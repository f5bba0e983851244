"""Trace files: a saved run loads again, any other file is refused in one sentence."""

import copy
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from helpers.tiny_runs import PROMPT, decode_pieces, decoded, finished
from hypothesis import given
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
    """Return a good trace as parsed JSON, to be damaged."""
    return json.loads(finished().to_json())


@pytest.mark.parametrize("kind", [str, str.encode])
def test_a_byte_order_mark_before_a_trace_is_skipped(trace, kind):
    assert load(kind("\ufeff" + dump(trace))) == load(dump(trace))


def rounds(trace: Trace, lane: str = "speculative") -> list[Trace]:
    """Return the rounds of one lane."""
    return trace["lanes"][lane]["rounds"]


def corrected(trace: Trace) -> Trace:
    """Return a round with a rejected token."""
    return next(round_ for round_ in rounds(trace) if round_["emission"]["status"] == "corrected")


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
    del rounds(trace)[2:]
    rounds(trace, "baseline").clear()
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


def damaged(*path: str | int, to: Any) -> Callable[[Trace], None]:
    """Return a change of the value at ``path`` of the first speculative round."""

    def change(trace: Trace) -> None:
        place = rounds(trace)[0]
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to

    return change


def at_top(**changes: Any) -> Callable[[Trace], None]:
    """Return a change of fields of the run itself."""
    return lambda trace: trace.update(changes)


def in_config(**changes: Any) -> Callable[[Trace], None]:
    """Return a change of settings."""
    return lambda trace: trace["config"].update(changes)


DAMAGED: dict[str, tuple[Callable[[Trace], Any], str]] = {
    "unknown field": (at_top(extra=1), "the file has a field this program does not know, 'extra'"),
    "missing field": (lambda t: t.pop("device"), "device is missing"),
    "text for a number": (damaged("index", to="0"), r"rounds\[0\].index must be a whole number"),
    "truth for a number": (damaged("draft_s", to=True), "draft_s must be a number"),
    "number for text": (at_top(device=7), "device must be text"),
    "null for a list": (at_top(prompt_ids=None), "prompt_ids must be a list"),
    "list for an object": (at_top(lanes=[]), "lanes must be an object"),
    "number for truth": (damaged("drafted", 0, "compared", to=1), "must be true or false"),
    "endless number": (damaged("draft_s", to=1e300), "draft_s must be a number"),
    "half a character": (at_top(device="\ud800"), "lone surrogate"),
    "half a character as a name": (lambda t: t["versions"].update({"\udfff": "1"}), "lone surrogate"),
    "long text": (at_top(device="x" * (MAX_PROMPT_CHARS + 1)), "device has 8,001 characters"),
    "no target name": (lambda t: t["pair"].pop("target"), r"pair\['target'\] is missing"),
    "no prompt": (at_top(prompt_ids=[]), "prompt_ids is empty"),
    "bad setting": (in_config(k=99), "config is refused: k must be from 1 to 12"),
    "unknown setting": (in_config(speed=2), "config is refused: Unknown setting 'speed'"),
    "settings of no kind": (at_top(config=[]), "config must be an object"),
    "unknown lane": (
        lambda t: t["lanes"].update(third=t["lanes"].pop("draft")),
        r"lanes\['third'\] names a lane that the run's settings do not ask for",
    ),
    "lane not asked for": (in_config(draft_alone=False), r"lanes\['draft'\] names a lane"),
    "no speculative lane": (lambda t: t["lanes"].pop("speculative"), r"lanes\['speculative'\] has no rounds"),
    "too many rounds": (lambda t: rounds(t).extend(rounds(t)[:1] * 1024), "at most 1,024 are allowed"),
    "more tokens than asked for": (in_config(max_new_tokens=23), "more than the 23 tokens"),
    "number of a round": (damaged("index", to=1), r"rounds\[0\].index must be 0"),
    "position": (damaged("position", to=3), r"rounds\[0\].position must be 1\d"),
    "round gone": (lambda t: rounds(t).pop(1), r"rounds\[1\].index must be 1"),
    "rounds after the end": (damaged("finish", to="eos"), r"rounds\[0\] ends the lane"),
    "unknown end": (damaged("finish", to="tired"), "finish must be one of: length"),
    "draft too long": (lambda t: rounds(t)[0].update(drafted=rounds(t)[0]["drafted"] * 5), "at most 12"),
    "draft in the baseline": (
        lambda t: rounds(t, "baseline")[0].update(drafted=rounds(t)[0]["drafted"]),
        r"lanes\['baseline'\].rounds\[0\].drafted must be empty in this lane",
    ),
    "pending on disk": (damaged("drafted", 0, "status", to="pending"), "a verdict that contradicts"),
    "accepted after discarded": (
        lambda t: corrected(t)["drafted"].append({**corrected(t)["drafted"][0], "status": "accepted"}),
        "a verdict that contradicts",
    ),
    "accepted but not compared": (
        lambda t: next(k for r in rounds(t) for k in r["drafted"] if k["status"] == "accepted").update(
            compared=False
        ),
        r"drafted\[0\] has a verdict that contradicts",
    ),
    "two rejected": (
        lambda t: corrected(t)["drafted"].extend(
            [next(k for k in corrected(t)["drafted"] if k["rejected"])] * 2
        ),
        "a verdict that contradicts",
    ),
    "bonus after a rejection": (
        lambda t: corrected(t)["emission"].update(status="bonus"),
        "must be corrected",
    ),
    "correction of nothing": (
        lambda t: rounds(t, "baseline")[0]["emission"].update(status="corrected"),
        "emission.status must be bonus here",
    ),
    "nothing emitted": (lambda t: corrected(t).update(emission=None), "emission is missing"),
    "nothing emitted at the end": (lambda t: rounds(t)[-1].update(emission=None), "emission is missing"),
    "none rejected": (
        lambda t: next(k for k in corrected(t)["drafted"] if k["rejected"]).update(
            rejected=False, compared=False
        ),
        "follows discarded tokens of which none was rejected",
    ),
    "chance above 1": (damaged("drafted", 0, "raw_p", to=1.5), r"drafted\[0\].raw_p must be a probability"),
    "chance below 0": (damaged("drafted", 0, "q", to=-0.1), r"drafted\[0\].q must be a probability"),
    "chance of the target's token": (
        damaged("emission", "prob", to=2),
        "emission.prob must be a probability",
    ),
    "chance of an alternative": (
        lambda t: rounds(t)[0]["emission"]["top"][1].__setitem__(1, 7.0),
        r"emission.top\[1\]\[1\] must be a probability",
    ),
    "alternative of three": (
        lambda t: rounds(t)[0]["emission"]["top"][1].append(7.0),
        r"emission.top\[1\] must be a list of 2",
    ),
    "six alternatives": (
        lambda t: rounds(t)[0]["emission"]["top"].append([1, 0.0]),
        "emission.top has 6 entries; at most 5",
    ),
    "negative seconds": (damaged("verify_s", to=-1e-9), "verify_s must be 0 or a positive number of seconds"),
    "seconds too few to divide by": (damaged("other_s", to=1e-300), "other_s must be 0 or a positive"),
    "short calibration": (
        lambda t: t["calibration"].update(v=t["calibration"]["v"][:3]),
        r"calibration.v must have 4 entries at least",
    ),
    "free passes": (lambda t: t["calibration"]["v"].__setitem__(0, 0.0), "calibration.v must be positive"),
    "timeless step": (lambda t: t["calibration"].update(step_s=0.0), "calibration.step_s must be positive"),
    "draft that pays": (lambda t: t["calibration"].update(c=-1.0), "calibration.c must not be negative"),
    "piece gone": (
        lambda t: t["pieces"].pop(str(rounds(t)[0]["emission"]["id"])),
        r"pieces has no entry for token \d+, which the run shows",
    ),
    "piece of the prompt gone": (lambda t: t["pieces"].pop(str(t["prompt_ids"][0])), "which the run shows"),
    "special without a piece": (at_top(specials=[4_000_000]), "4000000, which specials names"),
    "piece in no base64": (
        lambda t: t["pieces"].update({"5": "!!!"}),
        r"pieces\['5'\] must be base64 of at most 1,024 bytes",
    ),
    "piece in odd letters": (lambda t: t["pieces"].update({"5": "é==="}), r"pieces\['5'\] must be base64"),
    "piece too long": (
        lambda t: t["pieces"].update({"5": "AAAA" * (MAX_PIECE_BYTES // 3 + 1)}),
        "must be base64",
    ),
    "piece of no number": (lambda t: t["pieces"].update({" 5": ""}), r"pieces\[' 5'\] is no whole number"),
    "number below 0": (at_top(prompt_ids=[-1]), r"prompt_ids\[0\] must be a whole number from 0"),
    "number beyond all": (at_top(prompt_ids=[2**64]), r"prompt_ids\[0\] must be a whole number from 0"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_trace_is_refused_with_the_place(trace, name):
    change, words = DAMAGED[name]
    change(trace)
    with pytest.raises(UserError, match=f"^This trace is damaged: .*{words}") as caught:
        load(json.dumps(trace))
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("", "no JSON from character 1 on"),
        ("[]", "not a specdemo trace"),
        ("null", "not a specdemo trace"),
        ('{"version": true}', "not a specdemo trace"),
        ('{"version": 99}', "version 99, made by a newer specdemo; update"),
        ('{"version": 0}', "version 0; this program reads version 1"),
        ('{"version": 1}', "damaged: config is missing"),
        ('{"version": NaN}', "no JSON"),
        ('{"version": ' + "9" * 5000 + "}", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"\x1f\x8b\x08" + b"\0" * 900, "no JSON"),
        ('{"version": 1, "version": 1}', "damaged: one of its objects has the same name twice"),
        ('{"version": 1, "totals": {"__proto__": {}, "__proto__": 1}}', "the same name twice"),
        ('{"version": 1e400}', "not a specdemo trace"),
        ('{"version": "1"}', "not a specdemo trace"),
        ('{"version": 1, "__proto__": {"x": 1}}', "a field this program does not know, '__proto__'"),
        ('{"version": 1, "constructor": "alert(1)"}', "does not know, 'constructor'"),
        ("[" * 1_000_000, "no JSON"),
        ('{"totals":' * 1_000_000, "no JSON"),
        (b" " * (MAX_BYTES + 1), "too large; a trace has at most 16,000,000 bytes"),
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


@given(st.data())
def test_a_mutated_trace_plays_or_is_refused_in_a_sentence(data):
    trace = json.loads(finished(data.draw(st.sampled_from(list(Rule)))).to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        mutate(trace, data.draw)
    plays_or_is_refused(json.dumps(trace))


@given(st.data())
def test_a_file_with_broken_bytes_plays_or_is_refused_in_a_sentence(data):
    text = bytearray(finished().to_json().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(text)))
        text[begin : begin + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    plays_or_is_refused(bytes(text))


def mutate(trace: Trace, draw: Callable[..., Any]) -> None:
    """Replace, remove or double a value at a random place."""
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
    """Check that a file that loads plays to its end, as JSON for the browser and in a terminal."""
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
    """Return whether a text is one printable line that ends with a period."""
    return text.isprintable() and text.endswith(".") and len(text) < 300
