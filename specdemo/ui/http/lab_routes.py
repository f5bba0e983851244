"""The lab's quick answers over HTTP: theory for chosen numbers, what it says about a finished run, and what
a page that learns has learned.

They wait for no model and in no queue. Keeps nothing of any visitor.
"""

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from specdemo.lab.answers import learned_answer, parse_theory, run_answer, theory_answer
from specdemo.records.limits import UserError
from specdemo.service.learning import Learner
from specdemo.ui.http.own_routes import with_route
from specdemo.ui.http.traces import json_reply, of_posted_run, refusal

PREFIX = "specdemo-lab"


def routes() -> list[BaseRoute]:
    """Where the browser asks."""
    return [Route(f"/{PREFIX}/theory", _theory), Route(f"/{PREFIX}/run", _run, methods=["POST"])]


def with_learned(options: Mapping[str, Any], learner: Learner) -> dict[str, Any]:
    """``options`` of ``launch()`` with the route to what ``learner`` has learned."""

    def learned(_request: Request) -> Response:
        return json_reply(learned_answer(learner.visits, learner.contexts))

    return with_route(options, f"/{PREFIX}/learned", learned)


def _theory(request: Request) -> Response:
    try:
        return json_reply(theory_answer(parse_theory(_values(request.query_params))))
    except UserError as error:
        return refusal(400, error)


async def _run(request: Request) -> Response:
    return await of_posted_run(request, lambda run: json_reply(run_answer(run)))


def _values(query: QueryParams) -> dict[str, Any]:
    """Numbers as numbers, anything else as the text it is."""
    values: dict[str, Any] = {}
    for key, text in query.items():
        try:
            values[key] = float(text)
        except ValueError:
            values[key] = text
    return values
