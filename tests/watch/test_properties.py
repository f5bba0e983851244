"""Random passes of a server, told as it would tell them, are found again."""

import random

import pytest
from helpers.recorded_streams import read
from hypothesis import given
from hypothesis import strategies as st

from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.vllm import aligned

passes = st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans())
"""Tokens drafted and kept (as far as they were drafted), and whether the next event comes with this one."""
runs = st.lists(passes, max_size=20).map(
    lambda run: [(drafted, min(drafted, kept), merged) for drafted, kept, merged in run]
)


def events_of(run, unwanted: int) -> tuple[list[int], list[int]]:
    """Sizes of events and what was kept of drafts; of the last pass so many tokens were not wanted."""
    sizes, merging = [], False
    for place, (_, kept, merged) in enumerate(run):
        size = kept + 1
        if place == len(run) - 1:
            size = max(1, size - unwanted)
        if merging:
            sizes[-1] += size
        else:
            sizes.append(size)
        merging = merged
    return sizes, [kept for drafted, kept, _ in run if drafted]


@given(runs, st.integers(0, 3))
def test_passes_are_found_that_can_have_written_the_events(run, unwanted):
    if run and not run[-1][0]:
        unwanted = 0
    sizes, accepted = events_of(run, unwanted)
    found = aligned(sizes, accepted)
    assert found is not None and len(found) == len(sizes)
    places = [place for way in found for place in way if place is not None]
    assert places == list(range(len(accepted))), "every pass with a draft once, in order"
    for event, (size, way) in enumerate(zip(sizes, found, strict=True)):
        written = sum(1 if place is None else accepted[place] + 1 for place in way)
        cut = event == len(sizes) - 1 and bool(way) and way[-1] == len(accepted) - 1 >= 0
        assert written >= size if cut else written == size


@given(runs)
def test_passes_that_came_one_by_one_and_all_had_drafts_are_the_truth(run):
    sizes = [min(drafted, kept) + 1 for drafted, kept, _ in run]
    assert aligned(sizes, [size - 1 for size in sizes]) == [(place,) for place in range(len(sizes))]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=24))
def test_passes_that_kept_something_are_told_from_those_without_a_draft(run):
    """Events of one token had no draft, and others had one: nothing is ambiguous."""
    sizes = [kept + 1 if with_draft else 1 for with_draft, kept in run]
    accepted = [kept for with_draft, kept in run if with_draft]
    places = iter(range(len(accepted)))
    assert aligned(sizes, accepted) == [(next(places),) if one else (None,) for one, _ in run]


@pytest.mark.parametrize(
    ("sizes", "accepted", "passes"),
    [
        ([1, 1], [0], [(0,), (None,)]),
        ([1, 2], [0, 0], [(0,), (1, None)]),
        ([3, 1], [0, 1], [(0, 1), (None,)]),
    ],
)
def test_drafts_stand_as_early_as_can_be_where_several_ways_need_the_same_passes(sizes, accepted, passes):
    assert aligned(sizes, accepted) == passes


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.lists(st.integers(1, 5), max_size=8))
def test_lists_that_fit_no_events_are_refused(accepted, sizes):
    if sum(kept + 1 for kept in accepted[:-1]) + 1 > sum(sizes):
        assert aligned(sizes, accepted) is None


def test_the_longest_run_is_aligned_at_once():
    chance = random.Random(7)
    for accepted in ([0] * 512, [chance.choice((0, 0, 1, 3)) for _ in range(400)]):
        sizes = [kept + 1 for kept in accepted]
        for _ in range(1024 - sum(sizes)):
            sizes.insert(chance.randrange(len(sizes)), 1)
        found = aligned(sizes, accepted)
        assert found is not None and sum(map(len, found)) == len(sizes)


def told(run, hidden: set[int]) -> list[dict]:
    """Rounds as llama.cpp's server tells them: an event for each token, but for those that are ``hidden``.

    What is hidden is counted by the event after it. The last token is never hidden: the server's last event
    counts it.
    """
    events, written, drafted_n, accepted_n = [], 0, 0, 0
    total = sum(kept + 1 for _, kept, _ in run)
    for index, (drafted, kept, _) in enumerate(run):
        drafted_n, accepted_n = drafted_n + drafted, accepted_n + kept
        for _ in range(kept + 1):
            written += 1
            if written in hidden and written < total:
                continue
            counts = {"predicted_n": written, "draft_n": drafted_n, "draft_n_accepted": accepted_n}
            timings = {**counts, "prompt_ms": 50.0, "predicted_ms": 0.001 + 10.0 * index}
            events.append({"choices": [{"delta": {"content": f"{written},"}}], "timings": timings})
    return events


@given(runs)
def test_rounds_told_token_by_token_are_exact(run):
    if not run:
        return
    made = read(LlamaServerReader("it"), told(run, set()))
    assert made.rounds == [(drafted, kept, kept + 1) for drafted, kept, _ in run]
    assert made.text == "".join(f"{number}," for number in range(1, made.totals[2] + 1))


@given(runs, st.sets(st.integers(1, 160), max_size=40))
def test_tokens_that_come_with_later_ones_leave_the_totals_right(run, hidden):
    if not run:
        return
    made = read(LlamaServerReader("it"), told(run, hidden))
    assert made.totals == tuple(map(sum, zip(*[(d, kept, kept + 1) for d, kept, _ in run], strict=True)))
    assert sum(step.seconds for step in made.steps) <= 0.01 * len(run)
    assert sum(step.prompt_s for step in made.steps) == 0.05


@given(runs, st.sets(st.integers(1, 160), max_size=40), st.integers(0, 60))
def test_a_run_that_is_stopped_anywhere_leaves_rounds_that_can_be(run, hidden, kept):
    made = read(LlamaServerReader("it"), told(run, hidden)[:kept])
    seen = told(run, hidden)[:kept]
    last = seen[-1]["timings"] if seen else {"draft_n": 0, "predicted_n": 0}
    assert (made.totals[0], made.totals[2]) == (last["draft_n"], last["predicted_n"])
    for drafted, accepted, written in made.rounds[:-1]:
        assert written == accepted + 1 <= drafted + 1
