"""The race advances the lane with the fewest seconds so far."""

from specdemo.engine.race import race
from specdemo.records.trace import Round


def lane(*seconds: float, prefill_s: float = 0.0):
    for index, value in enumerate(seconds):
        yield Round(index, index, (), None, 0.0, value, 0.0, prefill_s=prefill_s if index == 0 else 0.0)


def test_lanes_advance_by_their_own_clocks():
    order = [name for name, _ in race({"slow": lane(3.0, 3.0), "fast": lane(1.0, 1.0, 1.0, 1.0)})]
    assert order == ["slow", "fast", "fast", "fast", "slow", "fast"]


def test_a_third_lane_falls_in_between():
    lanes = {"slow": lane(3.0, 3.0), "middle": lane(2.0, 2.0), "fast": lane(1.0, 1.0, 1.0)}
    order = [name for name, _ in race(lanes)]
    assert order == ["slow", "middle", "fast", "fast", "middle", "fast", "slow"]


def test_prefill_counts_and_the_other_lane_goes_on_after_one_has_finished():
    order = [name for name, _ in race({"a": lane(1.0, 1.0, prefill_s=5.0), "b": lane(1.0)})]
    assert order == ["a", "b", "a"]
    assert list(race({})) == []
