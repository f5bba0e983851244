"""An experiment as a stream of events, for the page and the API. Each event is a dictionary with a ``type``:

``experiment``  the first event: ``name``, ``title`` and ``axis``, the total number of points (``expected``),
                and ``about``, the machine, models and runs
``point``       a measured ``point`` (a row of the table), the number of points measured so far (``done``),
                ``expected``, ``outcome`` (kind and text of a contrast after its second side, otherwise None),
                and ``chart``, all points so far by theme (None for a single contrast)
``end``         ``finish`` ("complete", "stopped" or "failed"), a ``sentence``, and a table of all measured
                points as ``csv`` and ``json``, even if the experiment was stopped or failed
"""

from collections.abc import Iterator, Sequence
from typing import Any

from specdemo.bench.prompts import Prompt, builtin_prompts
from specdemo.charts.style import Themed
from specdemo.lab.charts import contrast_chart, sweep_chart, throughput_chart
from specdemo.lab.experiments import Experiment, by_category, measure_experiment, plan_experiment
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
    """Measure an experiment and yield its events; if it fails, ``end`` comes before the error."""
    experiment = plan_experiment(request.experiment, pair, request.settings, _prompts(request))
    yield {
        "type": "experiment",
        "name": experiment.name,
        "title": experiment.title,
        "axis": experiment.axis,
        "expected": experiment.expected,
        "about": experiment.about,
    }
    points: list[Point] = []
    try:
        for point in measure_experiment(pair, experiment, stop):
            points.append(point)
            yield {
                "type": "point",
                "point": point.row(),
                "done": len(points),
                "expected": experiment.expected,
                "outcome": _outcome(points),
                "chart": _chart(experiment, points),
            }
    except UserError:
        yield _end("failed", experiment, points)
        raise
    yield _end("stopped" if len(points) < experiment.expected else "complete", experiment, points)


def _prompts(request: LabRequest) -> list[Prompt]:
    if request.prompt:
        return [Prompt("own", "own", str(request.mode), request.prompt)]
    if request.experiment == CATEGORY:
        groups = by_category(builtin_prompts()).values()
        return [prompt for group in groups for prompt in group[: request.prompts]]
    return builtin_prompts(request.prompts)


def _outcome(points: Sequence[Point]) -> dict[str, Any] | None:
    latest = points[-1]
    if not isinstance(latest, ContrastPoint) or latest.side != HURTS:
        return None
    helping = points[-2]
    assert isinstance(helping, ContrastPoint)
    return outcome(helping.point, latest.point)._asdict()


def _chart(experiment: Experiment, points: Sequence[Any]) -> Themed | None:
    if experiment.name in SWEEPS:
        spots = [(setting.x, setting.label) for setting in experiment.settings]
        return sweep_chart(points, experiment.title, experiment.axis, spots)
    if experiment.name == THROUGHPUT:
        return throughput_chart(points)
    return contrast_chart(points) if experiment.name == CONTRASTS else None


def _end(finish: str, experiment: Experiment, points: Sequence[Point]) -> Event:
    whole = f"{len(points)} of {experiment.expected}"
    sentences = {
        "complete": f"All {experiment.expected} points are measured.",
        "stopped": f"Stopped; {whole} points are measured.",
        "failed": f"Ended early; {whole} points are measured.",
    }
    return {
        "type": "end",
        "finish": finish,
        "sentence": sentences[finish],
        "csv": points_csv(points),
        "json": points_json(points, experiment.about),
    }
