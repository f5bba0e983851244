"""The race advances the lane with the fewest seconds so far."""

import pytest

from specdemo.engine.race import race
from specdemo.records.trace import Round


def lane(*seconds: float, prefill_s: float = 0.0):
    for index, value in enumerate(seconds):
        yield Round(index, index, (), None, 0.0, value, 0.0, prefill_s=prefill_s if index == 0 else 0.0)


@pytest.mark.parametrize(
    ("lanes", "order"),
    [
        ({"a": lane(3.0, 3.0), "b": lane(1.0, 1.0, 1.0, 1.0)}, "abbbab"),
        ({"a": lane(3.0, 3.0), "b": lane(2.0, 2.0), "c": lane(1.0, 1.0, 1.0)}, "abccbca"),
        # Prefill counts, and a lane goes on after the other one has ended.
        ({"a": lane(1.0, 1.0, prefill_s=5.0), "b": lane(1.0, 1.0, 1.0)}, "abbba"),
        ({}, ""),
    ],
)
def test_lanes_advance_by_their_own_clocks(lanes, order):
    assert "".join(name for name, _ in race(lanes)) == order
