"""How far a speedup can be trusted: an interval that contains repeats, and what counts as disturbed."""

import random
import statistics
from dataclasses import replace

import pytest

from specdemo.engine.race import race, replay_events
from specdemo.records import recordings
from specdemo.records.events import RunLog
from specdemo.records.sentences import DISTURBED, DOUBTS, Doubt
from specdemo.records.spread import MIN_PASSES, spread
from specdemo.records.trace import BASELINE, SPECULATIVE, Round, Status, TargetToken, Token

PASS_S, STEP_S, K = 0.02, 0.002, 2
OWN = TargetToken(id=1, status=Status.BONUS, prob=1.0)
DRAFTED = Token(id=1, q=1.0, p=1.0, status=Status.ACCEPTED, compared=True, rejected=False)


def measured(seed, noise, tokens=64):
    """Return the lanes of a run on a machine where each time is multiplied by ``noise()``."""
    text, lanes = random.Random(seed), {SPECULATIVE: [], BASELINE: []}
    while sum(len(round_.emitted) for round_ in lanes[SPECULATIVE]) < tokens:
        drafted = tuple(
            DRAFTED if text.random() < 0.6 else replace(DRAFTED, status=Status.DISCARDED) for _ in range(K)
        )
        times = {"draft_s": K * STEP_S * noise(), "verify_s": 1.1 * PASS_S * noise(), "other_s": 0.0}
        lanes[SPECULATIVE].append(Round(0, 0, drafted, OWN, draft_steps=K, **times))
    for _ in range(tokens):
        lanes[BASELINE].append(Round(0, 0, (), OWN, 0.0, PASS_S * noise(), 0.0))
    return lanes


def speedup(lanes):
    tokens, seconds = (
        [sum(part(round_) for round_ in lanes[name]) for name in (SPECULATIVE, BASELINE)]
        for part in (lambda round_: len(round_.emitted), lambda round_: round_.seconds)
    )
    return tokens[0] / seconds[0] / (tokens[1] / seconds[1])


def bursts(seed):
    """Return the noise of a machine on which other work comes and goes."""
    dice, busy = random.Random(seed), False

    def noise():
        nonlocal busy
        busy = dice.random() < (0.8 if busy else 0.05)
        return dice.uniform(1.3, 2.5) if busy else dice.uniform(0.98, 1.05)

    return noise


def test_the_interval_contains_the_median_of_twenty_repeats_of_at_least_nine_prompts_in_ten():
    hits = 0
    for prompt in range(40):
        runs = [measured(prompt, bursts(100 * prompt + repeat)) for repeat in range(20)]
        shown = spread(runs[0])
        assert shown.low < shown.typical * 1.3 and shown.low < shown.high
        hits += shown.low <= statistics.median(map(speedup, runs)) <= shown.high
    assert hits >= 36


def test_a_steady_run_is_not_disturbed_and_has_the_same_spread_each_time():
    lanes = measured(1, lambda: 1.0)
    shown = spread(lanes)
    assert not shown.disturbed and shown == spread(lanes)
    assert shown.typical == pytest.approx(speedup(lanes))
    assert shown.low < shown.typical < shown.high < 2 * shown.low


@pytest.mark.parametrize("lane", [SPECULATIVE, BASELINE])
def test_passes_that_scatter_are_disturbed(lane):
    lanes = measured(1, lambda: 1.0)
    for index, round_ in enumerate(lanes[lane]):
        if index % 2:
            lanes[lane][index] = replace(round_, verify_s=1.4 * round_.verify_s)
    assert spread(lanes).disturbed
    few = {name: rounds[: MIN_PASSES - 1] for name, rounds in lanes.items()}
    few[lane] = [replace(round_, verify_s=PASS_S) for round_ in few[lane]]
    assert not spread(few).disturbed


def test_a_few_long_interruptions_are_seen_in_the_speedup():
    lanes = measured(1, lambda: 1.0)
    slow = replace(lanes[BASELINE][0], verify_s=8 * PASS_S)
    lanes[BASELINE][3] = slow
    assert not spread(lanes).disturbed, "12 % in all"
    lanes[BASELINE][30] = slow
    assert spread(lanes).disturbed


def test_without_two_lanes_or_without_time_there_is_no_spread():
    lanes = measured(1, lambda: 1.0)
    timeless = [replace(round_, verify_s=0.0) for round_ in lanes[BASELINE]]
    for changes in ({BASELINE: []}, {SPECULATIVE: []}, {BASELINE: timeless}):
        assert spread(lanes | changes) is None


def steady():
    return 1.0


def fluctuating(low, high):
    dice = random.Random(1)
    return lambda: dice.uniform(low, high)


def slowed(noise, lane, factor):
    """Return the lanes of a run in which every pass of ``lane`` took ``factor`` times as long."""
    lanes = measured(1, noise)
    lanes[lane] = [replace(round_, verify_s=factor * round_.verify_s) for round_ in lanes[lane]]
    return lanes


def logged(lanes):
    """Return the events of a run of these lanes, as its visitors receive them."""
    blank = replace(recordings.load("email"), lanes={}, calibration=None, pieces={}, specials=(), totals={})
    log = RunLog(blank, (), lambda ids: dict.fromkeys(ids, ""))
    return [
        *(log.round(lane, round_) for lane, round_ in race(lanes)),
        log.end(),
    ]


@pytest.mark.parametrize(
    ("lanes", "doubt", "remark"),
    [
        (measured(1, steady), None, ""),
        (measured(1, bursts(3)), Doubt.DISTURBED, DISTURBED),
        (slowed(steady, BASELINE, 3), Doubt.ABOVE_TAU, DOUBTS[Doubt.ABOVE_TAU]),
        (slowed(fluctuating(0.97, 1.03), SPECULATIVE, 1.9), Doubt.UNDECIDED, "Faster or slower is undecided"),
    ],
)
def test_a_speedup_never_stands_without_its_doubt_not_even_while_the_run_is_in_progress(lanes, doubt, remark):
    *running, end = logged(lanes)
    assert end["doubt"] == doubt and remark in end["remarks"]
    shown = [event for event in running if event["totals"]["speedup"] is not None]
    late = shown[len(shown) // 2 :]  # early intervals are wider
    assert {event.get("doubt") for event in late} == {doubt}
    trusted = {}
    for event in shown:
        trusted = event.get("spread", trusted)
        certain = (
            event["totals"]["speedup"] <= event["totals"]["tau"]
            and not trusted["low"] <= 1 <= trusted["high"]
        )
        assert event.get("doubt") == Doubt.DISTURBED or (event.get("doubt") is None) == certain


def test_recordings_have_the_same_doubt_after_their_last_round_as_at_their_end():
    for name in recordings.names():
        *running, end = replay_events(recordings.load(name))
        if end["doubt"] != Doubt.UNDECIDED:  # the interval of fewer samples may end elsewhere
            assert running[-1].get("doubt") == end["doubt"], name
