"""Measurements of the page's work per frame, which takes processor time from the models."""

from collections.abc import Callable
from typing import Any

CLOCK_READINGS = """() => new Promise(done => {
    const clock = performance.now;
    let count = 0;
    performance.now = () => { count += 1; return clock.call(performance); };
    setTimeout(() => { performance.now = clock; done(count); }, 1000); })"""
"""A JavaScript function that counts how often the page reads the clock within a second."""


def restyled(browser: Any, page: Any, wait: Callable[[], None]) -> list[int]:
    """Return the number of elements of each style update in the browser while ``wait`` runs."""
    session = browser.new_browser_cdp_session()
    events: list[Any] = []
    ended: list[bool] = []
    session.on("Tracing.dataCollected", lambda more: events.extend(more["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    categories = {"includedCategories": ["devtools.timeline"], "excludedCategories": ["*"]}
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
    wait()
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()
    updates = [event["args"] for event in events if event["name"] == "UpdateLayoutTree"]
    return [update["elementCount"] for update in updates if update.get("elementCount")]
