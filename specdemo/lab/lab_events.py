"""An experiment as a stream of events, for the page and the API. Each event is a dictionary with a ``type``:

``experiment``  before the first point: ``name``, ``title`` and ``axis``, the number of points there will be
                (``expected``), and ``about``, as in the saved table
``point``       a measured ``point`` (a row of the table), the number measured (``done``) and ``expected``,
                the ``outcome`` of a contrast if this is its second side (kind and text, else None), and the
                ``chart`` of all points so far by theme (None for a single contrast)
``end``         ``finish`` ("complete", "stopped" or "failed"), a ``sentence``, and the table as ``csv`` and
                ``json``; it contains everything measured, whatever ended the experiment
"""

from collections.abc import Iterator, Sequence
from typing import Any

from specdemo.bench.prompts import Prompt, shipped_prompts
from specdemo.charts.style import Themed
from specdemo.lab.charts import contrast_chart, sweep_chart, throughput_chart
from specdemo.lab.experiments import Plan, by_category, measure_plan, plan_experiment
from specdemo.lab.lab_request import LabRequest
from specdemo.lab.points import (
    CATEGORY,
    CONTRASTS,
    HURTS,
    SWEEPS,
    THROUGHPUT,
    ContrastPoint,
    Point,
    outcome,
    points_csv,
    points_json,
)
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.events import Event
from specdemo.records.limits import UserError


def lab_events(pair: Pair, request: LabRequest, stop: Stop) -> Iterator[Event]:
    """Measure an experiment.

    Raises:
        UserError: The pair lacks what the experiment needs, or a run was refused; an ``end`` event with the
            points measured before comes first.
    """
    plan = plan_experiment(request.experiment, pair, request.settings, _prompts(request))
    yield {
        "type": "experiment",
        "name": plan.name,
        "title": plan.title,
        "axis": plan.axis,
        "expected": plan.expected,
        "about": plan.about,
    }
    points: list[Point] = []
    try:
        for point in measure_plan(pair, plan, stop):
            points.append(point)
            yield {
                "type": "point",
                "point": point.row(),
                "done": len(points),
                "expected": plan.expected,
                "outcome": _outcome(points),
                "chart": _chart(plan, points),
            }
    except UserError:
        yield _end("failed", plan, points)
        raise
    yield _end("stopped" if len(points) < plan.expected else "complete", plan, points)


def _prompts(request: LabRequest) -> list[Prompt]:
    if request.prompt:
        return [Prompt("own", "own", str(request.mode), request.prompt)]
    if request.experiment == CATEGORY:
        groups = by_category(shipped_prompts()).values()
        return [prompt for group in groups for prompt in group[: request.prompts]]
    return shipped_prompts(request.prompts)


def _outcome(points: Sequence[Point]) -> dict[str, Any] | None:
    latest = points[-1]
    if not isinstance(latest, ContrastPoint) or latest.side != HURTS:
        return None
    helping = points[-2]
    assert isinstance(helping, ContrastPoint)
    return outcome(helping.point, latest.point)._asdict()


def _chart(plan: Plan, points: Sequence[Any]) -> Themed | None:
    if plan.name in SWEEPS:
        spots = [(setting.x, setting.label) for setting in plan.settings]
        return sweep_chart(points, plan.title, plan.axis, spots)
    if plan.name == THROUGHPUT:
        return throughput_chart(points)
    return contrast_chart(points) if plan.name == CONTRASTS else None


def _end(finish: str, plan: Plan, points: Sequence[Point]) -> Event:
    whole = f"{len(points)} of {plan.expected}"
    sentences = {
        "complete": f"All {plan.expected} points are measured.",
        "stopped": f"Stopped; {whole} points are measured.",
        "failed": f"Ended early; {whole} points are measured.",
    }
    return {
        "type": "end",
        "finish": finish,
        "sentence": sentences[finish],
        "csv": points_csv(points),
        "json": points_json(points, plan.about),
    }
