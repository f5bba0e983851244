"""A class without HTTP, for the tests: an event loop, time by hand, and what a teacher's page posts."""

import asyncio

BEGIN = {"type": "begin", "run": 1}
ROUND = {"type": "round"}
ASK = {"type": "ask", "text": "Faster?", "options": ["yes", "no"]}


class Clock:
    """Seconds that pass by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def in_loop(work):
    """A test within an event loop, as a server has one."""
    return asyncio.run(asyncio.wait_for(work(), 20))


def post(*sent, window="one", first=True):
    """What a teacher's page posts."""
    return {"window": window, "first": first, "messages": list(sent)}


def part(first, *events, run=1):
    """Events of a run, the first of which has that number."""
    return {"type": "events", "run": run, "from": first, "events": list(events)}
