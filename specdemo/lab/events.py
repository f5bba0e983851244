"""An experiment as a stream of events, for the page and the API alike.

Each event is a plain dictionary with a ``type``:

``experiment``  before the first point: its ``name``, ``title`` and ``axis``, how many points there will be
                (``expected``), and ``about``, as in the saved table
``point``       a measured ``point`` (a row of the table), how many there are by now (``done``) and will be
                (``expected``), the ``outcome`` of a contrast whose second side this is (kind and text, else
                None), and the ``chart`` of all points so far by theme (None for a single contrast)
``end``         ``finish`` ("complete", "stopped" or "failed"), a ``sentence``, and the table as ``csv`` and
                ``json``; whatever ends an experiment, what was measured is here
"""

from collections.abc import Iterator, Sequence
from typing import Any

from specdemo.bench.prompts import Prompt, shipped_prompts
from specdemo.charts.style import Themed
from specdemo.lab.charts import contrast_chart, sweep_chart, throughput_chart
from specdemo.lab.experiments import Experiment, experiment
from specdemo.lab.plans import prompts_by_category
from specdemo.lab.points import (
    CATEGORY,
    CONTRASTS,
    HELPS,
    SWEEPS,
    THROUGHPUT,
    ContrastPoint,
    Point,
    outcome,
    points_csv,
    points_json,
)
from specdemo.lab.request import LabRequest
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.events import Event
from specdemo.records.limits import UserError


def lab_events(pair: Pair, request: LabRequest, stop: Stop) -> Iterator[Event]:
    """Measure what was asked for.

    Raises:
        UserError: The pair lacks what the experiment needs, or a run was refused; points measured before
            are in an ``end`` event first.
    """
    name = request.experiment
    planned = experiment(name, pair, request.settings, _prompts(request), stop)
    yield {
        "type": "experiment",
        "name": name,
        "title": planned.title,
        "axis": planned.axis,
        "expected": planned.expected,
        "about": planned.about,
    }
    points: list[Point] = []
    try:
        for point in planned.points:
            points.append(point)
            yield _point_event(name, planned, points)
    except UserError:
        yield _end("failed", planned, points)
        raise
    yield _end("stopped" if len(points) < planned.expected else "complete", planned, points)


def _prompts(request: LabRequest) -> list[Prompt]:
    """What a sweep writes; nothing else asks."""
    if request.prompt:
        return [Prompt("own", "own", str(request.mode), request.prompt)]
    if request.experiment == CATEGORY:
        return prompts_by_category(request.prompts)
    return shipped_prompts(request.prompts)


def _point_event(name: str, planned: Experiment, points: Sequence[Point]) -> Event:
    return {
        "type": "point",
        "point": points[-1].row(),
        "done": len(points),
        "expected": planned.expected,
        "outcome": _outcome(points),
        "chart": _chart(name, planned, points),
    }


def _outcome(points: Sequence[Point]) -> dict[str, Any] | None:
    latest = points[-1]
    if not isinstance(latest, ContrastPoint) or latest.side == HELPS:
        return None
    helping = points[-2]
    assert isinstance(helping, ContrastPoint)
    return outcome(helping.point, latest.point)._asdict()


def _chart(name: str, planned: Experiment, points: Sequence[Any]) -> Themed | None:
    if name in SWEEPS:
        return sweep_chart(points, planned.title, planned.axis, planned.spots)
    if name == THROUGHPUT:
        return throughput_chart(points)
    return contrast_chart(points) if name == CONTRASTS else None


def _end(finish: str, planned: Experiment, points: Sequence[Point]) -> Event:
    whole = f"{len(points)} of {planned.expected}"
    sentence = {
        "complete": f"All {planned.expected} points are measured.",
        "stopped": f"Stopped; {whole} points are measured.",
        "failed": f"Ended early; {whole} points are measured.",
    }
    return {
        "type": "end",
        "finish": finish,
        "sentence": sentence[finish],
        "csv": points_csv(points),
        "json": points_json(points, planned.about),
    }
