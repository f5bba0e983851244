"""The figures show what the rounds say, and the browser's skeletons are the same figures, empty."""

import pytest

from specdemo.metrics import fold
from specdemo.plots import MARK_LIFT, acceptance_figure, skeletons, speedup_figure
from specdemo.trace import Emission, Round, Rule, Status, Token


def token(status: Status, rejected: bool = False) -> Token:
    """A drafted token with this verdict."""
    return Token(id=1, q=0.5, p=0.5, status=status, compared=True, rejected=rejected)


def round_(index: int, verdicts: list[Status], last: Status | None) -> Round:
    """A round with these verdicts and this token of the target's own."""
    emission = Emission(id=2, status=last, prob=1.0) if last else None
    drafted = tuple(token(status) for status in verdicts)
    return Round(index, index, drafted, emission, draft_s=0.1, verify_s=0.2, other_s=0.0)


ROUNDS = [
    round_(0, [Status.ACCEPTED, Status.DISCARDED, Status.DISCARDED], Status.CORRECTED),
    round_(1, [Status.ACCEPTED, Status.ACCEPTED], Status.BONUS),
    round_(2, [Status.ACCEPTED], None),
]


def traces(figure):
    """uid -> trace."""
    return {trace.uid: trace for trace in figure.data}


def test_acceptance_bars_and_marks():
    drawn = traces(acceptance_figure(ROUNDS))
    assert drawn["accepted"].x == (1, 2, 3)
    assert drawn["accepted"].y == (1, 2, 1)
    assert drawn["discarded"].y == (2, 0, 0)
    assert (drawn["corrected"].x, drawn["corrected"].y) == ((1,), (3 + MARK_LIFT,))
    assert (drawn["bonus"].x, drawn["bonus"].y) == ((2,), (2 + MARK_LIFT,))


def test_speedup_line_with_one_and_theory():
    totals = [
        fold({"speculative": ROUNDS[:n], "baseline": [round_(0, [], Status.BONUS)]}, Rule.GREEDY, None)
        for n in (1, 2, 3)
    ]
    figure = speedup_figure(totals)
    assert traces(figure)["speedup"].y == tuple(t.speedup for t in totals)
    assert traces(figure)["theory"].y == (None, None, None)
    (one,) = figure.layout.shapes
    assert one.y0 == one.y1 == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_skeletons_are_the_same_figures_without_points(theme):
    charts = skeletons()[theme]
    assert [trace["uid"] for trace in charts["acceptance"]["data"]] == list(
        traces(acceptance_figure([], theme))
    )
    assert [trace["uid"] for trace in charts["speedup"]["data"]] == list(traces(speedup_figure([], theme)))
    assert all(trace["x"] == [] for chart in charts.values() for trace in chart["data"])
    assert charts["acceptance"]["layout"]["font"]["size"] >= 14
