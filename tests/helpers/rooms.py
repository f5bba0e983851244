"""A class without HTTP, for the tests: an event loop, a clock set by hand, and posts of a teacher's page."""

import asyncio
from functools import wraps

from helpers.waiting import PATIENCE_S

BEGIN = {"type": "begin", "run": 1}
ROUND = {"type": "round"}
ASK = {"type": "ask", "text": "Faster?", "options": ["yes", "no"]}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def in_loop(work):
    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def on_loop(test):
    @wraps(test)
    def run(*args, **kwargs):
        in_loop(lambda: test(*args, **kwargs))

    return run


def post(*messages, window="one", first=True):
    return {"window": window, "first": first, "messages": list(messages)}


def part(first, *events, run=1):
    """Return a message with events of a run, the first of which has that number."""
    return {"type": "events", "run": run, "from": first, "events": list(events)}
