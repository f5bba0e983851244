"""Traces of watched runs: their differences from own ones, and damaged ones."""

import copy

import pytest
from helpers.watched_runs import saved, seen
from helpers.watched_server import replayed, stand_in

from specdemo.records import trace_file
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import dump


@pytest.fixture
def trace(opened) -> dict:
    """A good trace of a watched run."""
    server = opened.enter_context(stand_in("vllm-models.json", replayed("vllm-chat-mixed-logprobs")))
    made = saved(seen(server))
    trace_file.load(dump(made))
    return made


def drafting(trace: dict) -> dict:
    """Its first round with a draft."""
    return next(one for one in trace["lanes"]["speculative"]["rounds"] if one["drafted"])


def as_own(trace: dict) -> None:
    trace["version"], trace["watched"] = 1, None


def with_probabilities(trace: dict) -> None:
    """Add the fields of this program's own runs."""
    as_own(trace)
    for one in trace["lanes"]["speculative"]["rounds"]:
        for token in one["drafted"]:
            token["q"] = token["p"] = 1.0
        if one["emission"]:
            one["emission"]["prob"] = 1.0


def long_draft(trace: dict, length: int) -> None:
    """Give the first draft this many tokens, and end the run there."""
    rounds = trace["lanes"]["speculative"]["rounds"]
    place = rounds.index(drafting(trace))
    drafted = rounds[place]["drafted"]
    drafted += [copy.deepcopy(drafted[-1]) for _ in range(length - len(drafted))]
    for token in drafted[-(length - 4) :]:
        token["compared"] = token["rejected"] = False
    del rounds[place + 1 :]


def test_an_own_trace_of_the_same_shape_loads(trace):
    with_probabilities(trace)
    long_draft(trace, MAX_K)
    assert trace_file.load(dump(trace)).watched is None


def test_a_watched_trace_may_have_longer_drafts_than_an_own_one(trace):
    watched = copy.deepcopy(trace)
    long_draft(watched, 128)
    assert len(trace_file.load(dump(watched)).lanes["speculative"].rounds[-1].drafted) == 128
    with_probabilities(trace)
    long_draft(trace, MAX_K + 1)
    with pytest.raises(UserError, match=r"drafted has more than 12 entries"):
        trace_file.load(dump(trace))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (as_own, r"drafted\[0\]\.q is missing|emission\.prob is missing"),
        (lambda trace: trace.update(watched=None), "only a watched server's trace has version 2"),
        (lambda trace: trace.pop("watched"), "only a watched server's trace has version 2"),
        (lambda trace: trace.update(version=1), "only a watched server's trace has version 2"),
        (lambda trace: trace.update(version=3), "written by a newer specdemo"),
        (lambda trace: long_draft(trace, 129), "drafted"),
        (lambda trace: trace["watched"].update(rounds="yes"), "watched.rounds"),
        (lambda trace: trace["watched"].update(silent=["x."] * 9), "watched.silent"),
        (lambda trace: trace["watched"].update(url="http://x"), "watched"),
        (lambda trace: drafting(trace)["drafted"][0].update(raw_p=1.5), "raw_p must be less than"),
        (lambda trace: trace["pieces"].pop("0"), r"has no entry for token 0"),
    ],
    ids=range(11),
)
def test_a_damaged_trace_of_a_watched_run_is_refused(trace, spoil, words):
    spoil(trace)
    with pytest.raises(UserError, match=words):
        trace_file.load(dump(trace))
