"""Stand-in servers that end with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from helpers.watched_server import CLOSED, Answer, StandIn, stand_in

Serve = Callable[..., StandIn]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server with this stream; ``models`` is its list of models, llama.cpp's by default."""
    with ExitStack() as stack:

        def start(stream: Answer = CLOSED, models: Answer | str = "llama-models.json") -> StandIn:
            return stack.enter_context(stand_in(models, stream))

        yield start
