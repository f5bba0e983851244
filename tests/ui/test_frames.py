"""What the page costs between and within frames: the models need the same processor."""

from statistics import median
from typing import Any

from helpers.visitor import press, receive_run, wait_until

READINGS = """() => new Promise(done => {
    const clock = performance.now;
    let count = 0;
    performance.now = () => { count += 1; return clock.call(performance); };
    setTimeout(() => { delete performance.now; done(count); }, 1000); })"""


def restyled(browser: Any, page: Any, wait: Any) -> list[int]:
    """Return the number of elements of each style update of ``page`` while ``wait`` runs."""
    session, events, ended = browser.new_browser_cdp_session(), [], []
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


def test_a_page_at_rest_reads_no_clock(played):
    """Gradio's loading screen would go on counting in every frame."""
    page = played("greedy")
    wait_until(lambda: page.evaluate(READINGS) == 0, seconds=10)


def test_new_tokens_restyle_what_is_around_them_and_not_the_page(open_page, browser):
    page = open_page(pace=1)
    receive_run(page)
    press(page, "to-start", "play")
    counts = restyled(browser, page, lambda: page.wait_for_timeout(1500))
    everything = page.evaluate("document.querySelectorAll('main *').length")
    assert len(counts) > 5 and median(counts) < everything / 10, (sorted(counts), everything)
