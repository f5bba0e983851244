"""The program's health over HTTP, for supervisors and proxies: 200 where a run could begin now, else 503."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from specdemo.records.limits import UserError
from specdemo.service.service import Service, State
from specdemo.ui.http.own_routes import with_route
from specdemo.ui.http.traces import json_reply, refusal

PREFIX = "health"
SENTENCES = {
    State.LOADING: "The models are being loaded.",
    State.FAILED: "The models could not be loaded; the next request tries again.",
    State.LOST: "The device was lost; the server is about to start again.",
    State.CLOSING: "The server is about to end.",
}


def with_health(options: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """``options`` of ``launch()`` with the route."""

    def health(_request: Request) -> Response:
        state = service.state
        if state is State.READY:
            return json_reply({"status": str(state)})
        return refusal(503, UserError(SENTENCES[state]))

    return with_route(options, f"/{PREFIX}", health)
