"""The theory for a finished run, which needs no model. Symbols are as in ``records.theory``."""

from typing import Any

from specdemo.lab.charts import bounds_chart
from specdemo.records.figures import tallied
from specdemo.records.limits import UserError
from specdemo.records.sentences import count
from specdemo.records.theory import oracle_length, perfect_speedups, ratio
from specdemo.records.trace import SPECULATIVE, Run
from specdemo.records.what_if import accepted_by_token, hindsight


def run_answer(run: Run) -> dict[str, Any]:
    """Compare a run with the theory, and with the best draft length in each of its rounds.

    Returns:
        ``point``: the run's values of the theory's parameters (``growth`` is the verification cost of each
        token after the first), and its measured and theoretical speedups;
        ``oracle``: its speedup with the best draft length in each round, and with perfect drafts of the best
        ``k``, with a sentence and a chart;
        ``what_if``: its rounds with other draft ``lengths``, the number of tokens for which these are
        ``unknown``, and the seconds of the target alone for the same text.
    """
    tally = tallied({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, run.calibration)
    shape, totals = tally.shape(), tally.totals()
    if shape is None or totals.alpha_compared is None or run.calibration is None:
        raise UserError(
            "The theory needs a run with draft tokens and measured pass costs; show a different run."
        )
    oracle = oracle_length(run.lanes[SPECULATIVE].rounds, run.calibration)
    sentence = f"In {oracle.lengths.count(0)} of {len(oracle.lengths)} rounds, the best draft length was 0."
    if oracle.open_ended:
        drafts = count(oracle.open_ended, "draft was", "drafts were")
        sentence += f" {drafts} accepted in full; a longer draft might have been better."
    c = shape.draft_cost / shape.k
    perfect, free = (perfect_speedups(cost, run.calibration.v)[1:] for cost in (c, 0.0))
    assert oracle.s_cost is not None and oracle.s_oracle is not None
    # Without a baseline, or in a run too short for a speedup, the measured cost of a pass stands for it.
    measured_s = None if totals.speedup is None else ratio(totals.baseline_seconds, totals.baseline_tokens)
    alone_s = measured_s or run.calibration.step_s
    return {
        "point": {
            "alpha": totals.alpha_compared,
            "k": shape.k,
            "c": c,
            "growth": (shape.verify_cost - 1) / shape.k,
            "speedup": totals.speedup,
            "s_theory": totals.s_theory,
        },
        "oracle": {
            "s_cost": oracle.s_cost,
            "s_oracle": oracle.s_oracle,
            "s_perfect": max(perfect),
            "k": perfect.index(max(perfect)) + 1,
            "sentence": sentence,
            "chart": bounds_chart(oracle.s_cost, oracle.s_oracle, perfect, free),
        },
        "what_if": {
            "lengths": [length._asdict() for length in hindsight(run, totals, run.calibration)],
            "unknown": accepted_by_token(run.lanes[SPECULATIVE].rounds).count(None),
            "alone_s": totals.tokens * alone_s,
        },
    }
