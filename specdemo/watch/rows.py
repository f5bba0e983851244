"""Rows of the table of ``bench``, measured on a watched server. Apart from ``run``, which needs no bench."""

from datetime import UTC, datetime
from typing import Any

from specdemo.bench.measuring import Row, Settings, medians, row_of
from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import never
from specdemo.records.figures import fold
from specdemo.records.limits import UserError
from specdemo.watch.run import WatchedRun, find_server, shown_name
from specdemo.watch.servers import Server

NO_ROUNDS = "This server does not report its rounds, so there is nothing to put in a table."


def facts_of(server: Server) -> dict[str, Any]:
    """Return what is measured, on what and when, as ``measuring.environment`` does for a pair.

    Raises:
        UserError: The server cannot be reached.
    """
    found = find_server(server.url, server.name, never)
    assert found is not None  # nobody stops it
    return {
        "device": "a server elsewhere",
        "precision": "unknown",
        "pair": {"target": shown_name(found.model), "draft": "the server's own"},
        "versions": {"engine": found.reader.title},
        "date": datetime.now(UTC).date().isoformat(),
    }


def watched_rows(server: Server, settings: Settings, prompt: Prompt, temperature: float) -> list[Row]:
    """Return the row of one prompt at one temperature, with medians over repeats.

    Raises:
        UserError: As for ``WatchedRun.events``, or the server does not report its rounds.
    """
    [config] = settings.configs(prompt, temperature)
    totals, engine = [], ""
    for _ in range(settings.repeats):
        watched = WatchedRun(server, config, never)
        for _event in watched.events():
            pass
        run = watched.run
        if run.watched is None or not run.watched.rounds:
            raise UserError(NO_ROUNDS)
        engine = run.watched.engine
        totals.append(fold({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, None))
    return [row_of(engine, "unknown", prompt, run.config, medians(totals), None)]
