"""Traces of watched runs: their differences from own traces, and damaged traces."""

import copy

import pytest
from helpers.watched_runs import saved, seen
from helpers.watched_server import replayed, stand_in

from specdemo.records import trace_file
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import dump


@pytest.fixture(scope="module")
def good() -> dict:
    with stand_in("vllm-models.json", replayed("vllm-chat-mixed-logprobs")) as server:
        return saved(seen(server))


@pytest.fixture
def trace(good) -> dict:
    return copy.deepcopy(good)


def rounds_of(trace: dict) -> list[dict]:
    return trace["lanes"]["speculative"]["rounds"]


def draft_of(trace: dict) -> list[dict]:
    """Its first draft."""
    return next(one["drafted"] for one in rounds_of(trace) if one["drafted"])


def as_own(trace: dict) -> None:
    trace["version"], trace["watched"] = 1, None


def with_probabilities(trace: dict) -> None:
    """Add the fields of this program's own runs."""
    as_own(trace)
    for one in rounds_of(trace):
        for token in one["drafted"]:
            token["q"] = token["p"] = 1.0
        if one["emission"]:
            one["emission"]["prob"] = 1.0


def long_draft(trace: dict, length: int) -> None:
    """Give the first draft this many tokens, and end the run there."""
    drafted = draft_of(trace)
    drafted += [copy.deepcopy(drafted[-1]) for _ in range(length - len(drafted))]
    for token in drafted[-(length - 4) :]:
        token["compared"] = token["rejected"] = False
    del rounds_of(trace)[[one["drafted"] for one in rounds_of(trace)].index(drafted) + 1 :]


def test_only_a_watched_trace_may_have_drafts_longer_than_the_programs_own(trace, good):
    long_draft(trace, 128)
    assert len(trace_file.load(dump(trace)).lanes["speculative"].rounds[-1].drafted) == 128
    own, longer = copy.deepcopy(good), copy.deepcopy(good)
    for one, length in ((own, MAX_K), (longer, MAX_K + 1)):
        with_probabilities(one)
        long_draft(one, length)
    assert trace_file.load(dump(own)).watched is None
    with pytest.raises(UserError, match=r"drafted has .*\b12\b"):
        trace_file.load(dump(longer))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (as_own, r"drafted\[0\]\.q is missing|emission\.prob is missing"),
        (lambda trace: trace.update(watched=None), "version"),
        (lambda trace: trace.pop("watched"), "version"),
        (lambda trace: trace.update(version=1), "version"),
        (lambda trace: trace.update(version=3), "newer specdemo"),
        (lambda trace: long_draft(trace, 129), "drafted"),
        (lambda trace: trace["watched"].update(rounds="yes"), "watched.rounds"),
        (lambda trace: trace["watched"].update(silent=["x."] * 9), "watched.silent"),
        (lambda trace: trace["watched"].update(url="http://x"), "watched"),
        (lambda trace: draft_of(trace)[0].update(raw_p=1.5), "raw_p must be"),
        (lambda trace: trace["pieces"].pop("0"), r"has no entry for token 0"),
    ],
    ids=range(11),
)
def test_a_damaged_trace_of_a_watched_run_is_refused(trace, spoil, words):
    spoil(trace)
    with pytest.raises(UserError, match=words):
        trace_file.load(dump(trace))
