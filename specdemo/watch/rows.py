"""Rows of the bench's table from a watched server, one prompt after the other."""

from datetime import UTC, datetime
from typing import Any

from specdemo.bench.bench import Prompt, Row, Settings, medians, row_of
from specdemo.engine.speculate import never
from specdemo.records.figures import Totals, fold
from specdemo.records.limits import UserError
from specdemo.watch.engines import find
from specdemo.watch.live import WatchedRun
from specdemo.watch.servers import Server

UNTOLD = "This server does not tell its rounds, so there is nothing to put in a table."


def facts_of(server: Server) -> dict[str, Any]:
    """What was watched, and when.

    Raises:
        UserError: The server cannot be reached.
    """
    found = find(server.url, server.name)
    return {
        "device": "a server elsewhere",
        "precision": "unknown",
        "pair": {"target": found.model, "draft": "the server's own"},
        "versions": {"engine": found.engine.title},
        "date": datetime.now(UTC).date().isoformat(),
    }


def watched_rows(server: Server, settings: Settings, prompt: Prompt, temperature: float) -> list[Row]:
    """The row of one prompt at one temperature; medians over repeats.

    Raises:
        UserError: As for ``WatchedRun.events``, and where the server does not tell its rounds.
    """
    [config] = settings.configs(prompt, temperature)
    totals: list[Totals] = []
    engine, run = "", None
    for _ in range(settings.repeats):
        watched = WatchedRun(server, config, never)
        for _event in watched.events():
            pass
        run = watched.run
        assert run.watched is not None
        if not run.watched.rounds:
            raise UserError(UNTOLD)
        engine = run.watched.engine
        rounds = {name: lane.rounds for name, lane in run.lanes.items()}
        totals.append(fold(rounds, run.config.rule, None))
    return [row_of(engine, "unknown", prompt, run.config, medians(totals), None)]
