"""A route of our own beside Gradio's."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def with_route(
    options: Mapping[str, Any], path: str, answer: Callable[[Request], Response]
) -> dict[str, Any]:
    """``options`` of ``launch()`` with a route of that ``path`` more."""
    app_kwargs = options["app_kwargs"]
    routes = [*app_kwargs["routes"], Route(path, answer)]
    return {**options, "app_kwargs": {**app_kwargs, "routes": routes}}
