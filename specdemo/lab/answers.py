"""The lab's answers that need no model: the theory for chosen values or for a run, and the learned α.

Symbols are as in ``records.theory``. The verification cost has one parameter, ``growth`` of ``linear_costs``.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from specdemo.charts.palette import THEMES
from specdemo.lab.charts import learned_chart, oracle_chart, theory_figure, what_if_chart
from specdemo.models.n_gram import Visit
from specdemo.records.figures import tallied
from specdemo.records.limits import MAX_K, UserError, integer, number, require_known, show
from specdemo.records.theory import (
    RoundShape,
    best_length,
    break_even_alpha,
    expected_tokens,
    linear_costs,
    oracle_length,
    ratio,
    theoretical_speedup,
    theory_surface,
)
from specdemo.records.trace import SPECULATIVE, Run
from specdemo.records.what_if import accepted_by_token, hindsight

MAX_COST = 1.0
"""Maximum of c and of growth. At 1, a draft step or each further verified token costs a whole target pass."""
SETTINGS = ("alpha", "k", "c", "growth", "run_alpha", "run_k", "theme")
LATEST = 10
"""Number of latest visits over which a learned acceptance rate is averaged."""


class TheoryRequest(NamedTuple):
    """A request for the theory at one point.

    Attributes:
        alpha, k, c, growth: The point.
        run: α and mean draft length of a run to mark in the same figure, or None.
        theme: The figure's theme, a key of ``THEMES``.
    """

    alpha: float
    k: int
    c: float
    growth: float
    run: tuple[float, float] | None
    theme: str


def parse_theory(raw: Mapping[str, Any]) -> TheoryRequest:
    """Check an untrusted request and fill in the defaults.

    Raises:
        UserError: A key is unknown, or a value has the wrong type or is out of bounds.
    """
    require_known(raw, SETTINGS)
    theme = raw.get("theme", "light")
    if not isinstance(theme, str) or theme not in THEMES:
        raise UserError(f"Unknown theme {show(theme)}; choose one of: {', '.join(THEMES)}.")
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
    """Return the main figures at the requested point, and the ``figure`` that shows it."""
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
    """Compare a run with the theory, and with the best draft length in each of its rounds.

    Returns:
        ``point``: the run's values of the theory's parameters, and its measured and theoretical speedups;
        ``oracle``: its speedup with the best draft length in each round, with a sentence and a chart;
        ``what_if``: its rounds with other draft ``lengths``, the number of tokens for which these are
        ``unknown``, the seconds of the target alone for the same text, and a chart without points.

    Raises:
        UserError: Nothing was drafted, or the costs were not measured.
    """
    tally = tallied({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, run.calibration)
    shape, totals = tally.shape(), tally.totals()
    if shape is None or totals.alpha_compared is None or run.calibration is None:
        raise UserError("Theory needs a run with drafts and measured costs; press Run or play another run.")
    oracle = oracle_length(run.lanes[SPECULATIVE].rounds, run.calibration)
    sentence = f"In {oracle.lengths.count(0)} of {len(oracle.lengths)} rounds the best draft length was 0."
    if oracle.open_ended:
        drafts = "draft was" if oracle.open_ended == 1 else "drafts were"
        sentence += f" {oracle.open_ended} {drafts} accepted in full; a longer one might have been better."
    # Without a baseline, the measured cost of a pass stands for it.
    alone_s = ratio(totals.baseline_seconds, totals.baseline_tokens) or run.calibration.step_s
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
            "sentence": sentence,
            "chart": oracle_chart(oracle),
        },
        "what_if": {
            "lengths": [length._asdict() for length in hindsight(run, totals, run.calibration)],
            "unknown": accepted_by_token(run.lanes[SPECULATIVE].rounds).count(None),
            "alone_s": totals.tokens * alone_s,
            "chart": what_if_chart(),
        },
    }


def learned_answer(visits: Sequence[Visit], contexts: int) -> dict[str, Any]:
    """Return how learning from visits has changed the acceptance rate of an n-gram table.

    Returns:
        ``before`` and ``after``: mean α of the shipped and of the learning table over the latest visits;
        ``sentence``; ``chart``, by theme. Before the first visit all except ``sentence`` are None.
    """
    if not visits:
        sentence = "There are no runs yet; press Run, then look again."
        return {"before": None, "after": None, "sentence": sentence, "chart": None}
    smoothed = [
        (fmean(visit.before for visit in latest), fmean(visit.after for visit in latest))
        for latest in (visits[max(0, end - LATEST) : end] for end in range(1, len(visits) + 1))
    ]
    runs = "1 run" if len(visits) == 1 else f"the latest {len(visits)} runs"
    sentence = (
        f"{sum(visit.tokens for visit in visits):,} tokens of {runs}; {contexts:,} contexts, kept in memory "
        "only. α is the share of the target's tokens that the table predicted before it learned them. "
        f"Each point is a mean over up to {LATEST} runs."
    )
    before, after = smoothed[-1]
    return {"before": before, "after": after, "sentence": sentence, "chart": learned_chart(smoothed)}
