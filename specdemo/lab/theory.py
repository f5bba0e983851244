"""What theory says about numbers a visitor chose, and about a run: answered at once, no model asked.

Symbols as in ``records.theory``. The verification cost has one number here: the growth of
``theory.linear_costs``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from specdemo.charts.palette import THEMES
from specdemo.lab.charts import oracle_chart, theory_figure
from specdemo.records.figures import tallied
from specdemo.records.limits import MAX_K, UserError, integer, number, require_known
from specdemo.records.theory import (
    OracleLength,
    RoundShape,
    best_length,
    break_even_alpha,
    expected_tokens,
    linear_costs,
    oracle_length,
    theoretical_speedup,
    theory_surface,
)
from specdemo.records.trace import SPECULATIVE, Run

MAX_COST = 1.0
"""Highest c and growth that can be chosen: a draft step, or one more token in a pass, as dear as a pass."""
SETTINGS = ("alpha", "k", "c", "growth", "run_alpha", "run_k", "theme")


class TheoryRequest(NamedTuple):
    """A point to look at.

    Attributes:
        alpha, k, c, growth: The chosen point.
        run: α and mean draft length of a run, to be marked beside it.
        theme: Of the figure.
    """

    alpha: float
    k: int
    c: float
    growth: float
    run: tuple[float, float] | None
    theme: str


def parse_theory(raw: Mapping[str, Any]) -> TheoryRequest:
    """Check a request.

    Raises:
        UserError: A key is unknown, or a value has the wrong type or is out of bounds.
    """
    require_known(raw, SETTINGS)
    theme = raw.get("theme", "light")
    if not isinstance(theme, str) or theme not in THEMES:
        raise UserError(f"There is no such theme; choose one of: {', '.join(THEMES)}.")
    run = None
    if "run_k" in raw:
        run = (number(raw, "run_alpha", 0.0, 0.0, 1.0), number(raw, "run_k", 1.0, 0.0, MAX_K))
    return TheoryRequest(
        alpha=number(raw, "alpha", 0.7, 0.0, 1.0),
        k=integer(raw, "k", 4, 1, MAX_K),
        c=number(raw, "c", 0.1, 0.0, MAX_COST),
        growth=number(raw, "growth", 0.05, 0.0, MAX_COST),
        run=run,
        theme=theme,
    )


def theory_answer(request: TheoryRequest) -> dict[str, Any]:
    """Headline numbers of the chosen point and the ``figure`` around it."""
    v = linear_costs(request.growth, MAX_K)
    alpha, shape = request.alpha, RoundShape(request.k, request.k * request.c, v[request.k])
    best = best_length(alpha, request.c, v)
    surface = theory_surface(request.c, v)
    return {
        "speedup": theoretical_speedup(alpha, shape),
        "expected_tokens": expected_tokens(alpha, request.k),
        "round_cost": shape.draft_cost + shape.verify_cost,
        "break_even_alpha": break_even_alpha(shape),
        "best_k": best,
        "best_speedup": theoretical_speedup(alpha, RoundShape(best, best * request.c, v[best])),
        "figure": theory_figure(request.theme, surface, (alpha, request.k), request.run),
    }


def run_answer(run: Run) -> dict[str, Any]:
    """Where a run stands in theory (``point``), and what an all-knowing drafter would have made of it.

    Raises:
        UserError: Nothing was drafted, or the costs were not measured.
    """
    tally = tallied({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, run.calibration)
    shape, totals = tally.shape(), tally.totals()
    if shape is None or totals.alpha_compared is None or run.calibration is None:
        raise UserError("Theory needs a run with drafts and measured costs; make or play another one.")
    oracle = oracle_length(run.lanes[SPECULATIVE].rounds, run.calibration)
    return {
        "point": {
            "alpha": totals.alpha_compared,
            "k": shape.k,
            "c": shape.draft_cost / shape.k,
            "growth": (shape.verify_cost - 1) / shape.k,
            "speedup": totals.speedup,
            "s_theory": totals.s_theory,
        },
        "oracle": {
            "s_cost": oracle.s_cost,
            "s_oracle": oracle.s_oracle,
            "sentence": _oracle_sentence(oracle),
            "chart": oracle_chart(oracle),
        },
    }


def _oracle_sentence(oracle: OracleLength) -> str:
    empty = oracle.lengths.count(0)
    told = f"In {empty} of {len(oracle.lengths)} rounds the best draft was none at all."
    if not oracle.open_ended:
        return told
    drafts = "draft was" if oracle.open_ended == 1 else "drafts were"
    return f"{told} {oracle.open_ended} {drafts} kept whole: longer ones might have given more."
