"""A stack for stand-in servers that end with the test."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
