"""Rows of the bench's table from a watched server, one prompt after the other."""

from datetime import UTC, datetime
from typing import Any

from specdemo.bench.measuring import Row, Settings, medians, row_of
from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import never
from specdemo.records.figures import fold
from specdemo.records.limits import UserError
from specdemo.records.trace import Run, RunConfig
from specdemo.watch.engines import find
from specdemo.watch.live import WatchedRun, shown_name
from specdemo.watch.servers import Server

UNTOLD = "This server does not tell its rounds, so there is nothing to put in a table."


def facts_of(server: Server) -> dict[str, Any]:
    """What was watched, and when.

    Raises:
        UserError: The server cannot be reached.
    """
    found = find(server.url, server.name, never)
    assert found is not None
    return {
        "device": "a server elsewhere",
        "precision": "unknown",
        "pair": {"target": shown_name(found.model), "draft": "the server's own"},
        "versions": {"engine": found.engine.title},
        "date": datetime.now(UTC).date().isoformat(),
    }


def watched_rows(server: Server, settings: Settings, prompt: Prompt, temperature: float) -> list[Row]:
    """The row of one prompt at one temperature; medians over repeats.

    Raises:
        UserError: As for ``WatchedRun.events``, and where the server does not tell its rounds.
    """
    [config] = settings.configs(prompt, temperature)
    runs = [watched_run(server, config) for _ in range(settings.repeats)]
    totals = [
        fold({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, None) for run in runs
    ]
    engine = runs[0].versions["engine"]
    return [row_of(engine, "unknown", prompt, runs[0].config, medians(totals), None)]


def watched_run(server: Server, config: RunConfig) -> Run:
    """One run, whole.

    Raises:
        UserError: As for :func:`watched_rows`.
    """
    watched = WatchedRun(server, config, never)
    for _event in watched.events():
        pass
    if watched.run.watched is None or not watched.run.watched.rounds:
        raise UserError(UNTOLD)
    return watched.run
