"""A visitor's actions on the page, and what the page shows them."""

import base64
from pathlib import Path
from typing import Any

import pytest
from helpers.replay import Event, rounds
from helpers.waiting import PATIENCE_S, until

from specdemo.records.trace import SPECULATIVE

VISIBLE_TOKENS = """lane => [...document.querySelectorAll(`[data-lane=${lane}] .sd-token`)]
    .filter(token => getComputedStyle(token).display !== 'none')"""
TOKENS = f"""lane => ({VISIBLE_TOKENS})(lane).map(({{ textContent, dataset }}) =>
    [textContent, dataset.status ?? null, 'rejected' in dataset, 'verifying' in dataset])"""
TEXT = f"""lane => ({VISIBLE_TOKENS})(lane).filter(token => token.dataset.status !== 'discarded')
    .map(token => token.textContent).join('')"""
FIGURES = """() => Object.fromEntries([...document.querySelectorAll('[data-figure]')]
    .map(figure => [figure.dataset.figure, JSON.parse(figure.dataset.value ?? 'null')]))"""
FRAMES = """() => new Promise(done => {
    let left = 5;
    const next = () => --left ? requestAnimationFrame(next) : done();
    next(); })"""
WATCH = """button => { window.finished = new Promise(done => {
    // A short run is over before anybody who looks now and then has seen that it went on.
    const observer = new MutationObserver(changes => {
        const wasBusy = changes.some(change => change.oldValue !== null);
        if (wasBusy && !button.disabled) { observer.disconnect(); done(); }
    });
    observer.observe(button, { attributeFilter: ['disabled'], attributeOldValue: true }); }); }"""
FINISHED = f"""() => Promise.race([window.finished,
    new Promise((_, fail) => setTimeout(() => fail('the run did not end'), {1000 * PATIENCE_S}))])"""
WIDER = """width => [...document.querySelectorAll('main *')].filter(node => {
    const box = node.getBoundingClientRect();
    return box.width && box.right > width + 1 && !node.closest('.sr-only, .sd-sr, svg, .sd-cards'); })
    .map(node => node.outerHTML.slice(0, 80))"""
COLUMN = """([strip, count, index]) =>
    (index + 0.5) * Math.min(18, strip.clientWidth / count)"""


def receive_run(page: Any) -> None:
    """Press Run and wait until the whole run has arrived, played or not."""
    press_and_wait(page, "#run")


def press_and_wait(page: Any, button: str) -> None:
    """Press a button that starts a job, and wait until it can be pressed again."""
    page.locator(button).evaluate(WATCH)
    page.click(button)
    page.evaluate(FINISHED)


def requested(service: Any, count: int = 1) -> Any:
    """Wait until a service has got ``count`` requests in all; return the last one."""
    until(lambda: len(service.requests) >= count)
    assert len(service.requests) == count
    return service.requests[-1]


def served_at_last(service: Any) -> int:
    """Wait until a service has ended its job; return the number of rounds that it served."""
    until(lambda: service.ended)
    return service.served


def run_to_end(page: Any) -> None:
    """Press Run and show the whole recording."""
    receive_run(page)
    page.click("[data-role=to-end]")
    page.wait_for_selector(".sd[data-state=ended]")


def press(page: Any, *roles: str) -> None:
    for role in roles:
        page.click(f"[data-role={role}]")


def open_class(page: Any) -> None:
    page.click("#tab-class-button")
    page.wait_for_selector(".sd-class[data-ready]")
    press(page, "open")
    page.wait_for_selector(".sd-class[data-state=open]")


def end_class(page: Any) -> None:
    press(page, "end", "end")
    page.wait_for_selector(".sd-class[data-state=none]")


def scrub(page: Any, seconds: float) -> None:
    page.fill("[data-role=scrub]", str(seconds))


def clock(page: Any) -> float:
    return float(page.input_value("[data-role=scrub]"))


def tokens(page: Any, lane: str = SPECULATIVE) -> list[list[Any]]:
    """Return ``[text, status, rejected?, verifying?]`` of each visible token of a lane."""
    return page.evaluate(TOKENS, lane)


def stage_state(page: Any) -> Any:
    lanes = page.eval_on_selector_all("[data-lane]", "all => all.map(lane => lane.dataset.lane)")
    return [{lane: tokens(page, lane) for lane in lanes}, page.evaluate(FIGURES)]


def plain_text(page: Any, lane: str) -> str:
    return page.evaluate(TEXT, lane)


def figures(page: Any) -> Event:
    return page.evaluate(FIGURES)


def assert_figures(page: Any, totals: Event) -> None:
    shown = figures(page)
    assert {"speedup", "tau", "alpha_compared", "passes", "passes_saved", "identical"} <= shown.keys()
    for name, value in shown.items():
        exact = totals[name] is None or isinstance(totals[name], bool)
        assert value == (totals[name] if exact else pytest.approx(totals[name], rel=1e-12)), name


def open_round(page: Any, index: int, count: int) -> None:
    """Click a round's column in the strip of ``count`` rounds."""
    strip = page.locator("[data-role=rounds]")
    x = page.evaluate(COLUMN, [strip.element_handle(), count, index])
    strip.click(position={"x": x, "y": 25})


def point_at(page: Any, token: Any) -> None:
    """Bring a token into view and let the pointer rest on it; scrolling would hide its tooltip."""
    token.scroll_into_view_if_needed()
    page.evaluate(FRAMES)
    token.hover()


def click_token(page: Any, round_index: int, place: int) -> None:
    """Click a token when its lane is still; if the lane scrolled during the click, no token would be hit."""
    token = token_of(page, round_index, place)
    point_at(page, token)
    token.click()


def token_of(page: Any, round_index: int, place: int) -> Any:
    """Return a token of the speculative lane by round and position; show all discarded tokens."""
    page.check("[data-role=show-discards]")
    return page.locator("[data-lane=speculative] .sd-round").nth(round_index).locator(".sd-token").nth(place)


def emitted(events: list[Event], lane: str) -> list[int]:
    ids = []
    for event in rounds(events, lane):
        ids += [token["id"] for token in event["round"]["drafted"] if token["status"] == "accepted"]
        ids += [event["round"]["emission"]["id"]] if event["round"]["emission"] else []
    return ids


def pieces(events: list[Event]) -> dict[int, bytes]:
    encoded = {key: piece for event in events for key, piece in event.get("pieces", {}).items()}
    return {int(key): base64.b64decode(piece) for key, piece in encoded.items()}


def text_of(events: list[Event], lane: str) -> str:
    known = pieces(events)
    return b"".join(known[token] for token in emitted(events, lane)).decode(errors="replace")


def saved(page: Any, role: str, folder: Path) -> Path:
    page.click("[data-role=save-menu] summary")
    with page.expect_download() as download:
        press(page, role)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path
