"""A teacher with a projector: letters for the last row on every tab, and everything on one screen."""

from typing import Any

import pytest
from helpers.browsing import in_every_font
from helpers.layout import LANES, assert_in_the_window, faults, resize
from helpers.visitor import end_class, open_class, run_to_end
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

SMALL, LARGE = (1280, 720), (1920, 1080)
SMALLER = """([root, px]) => [...document.querySelectorAll(`${root}, ${root} *`)].filter(node =>
    [...node.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim())
    && node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && !node.closest('.sd-sr, .sr-only, option, .sd-skip, .sd-text'))
    .filter(node => {
        const size = parseFloat(getComputedStyle(node).fontSize) * node.currentCSSZoom;
        return size > 0 && size < px; })
    .map(node => `${node.tagName} ${node.textContent.trim().slice(0, 30)}`)"""
WHOLE_LINES = """() => [...document.querySelectorAll('.sd-text')].filter(box => box.clientHeight).every(box =>
    box.scrollHeight - box.scrollTop - box.clientHeight < 1 &&
    box.clientHeight % parseFloat(getComputedStyle(box).lineHeight) === 0)"""
LABELS = (".sd-claim", ".sd-lane h2", ".sd-rate", ".sd-key", ".sd-passes", ".sd-figure [data-label]")
OTHER_TABS = {
    "learn": "#lessons h2",
    "play": "#play .sd-play",
    "proof": "#proof .sd-proof",
    "lab": "#lab .js-plotly-plot",
    "class": ".sd-class",
}


def small_letters(page: Any, root: str = "main", px: int = 24) -> list[str]:
    return page.evaluate(SMALLER, [root, px])


def lines_of_tabs(page: Any) -> int:
    return len(set(page.locator("[role=tab]").evaluate_all("all => all.map(tab => tab.offsetTop)")))


@in_every_font
def test_projector(open_page):
    page = open_page(*LARGE)
    page.check("[data-role=projector]")

    # Run: large lanes, two figures, no charts unless wanted.
    run_to_end(page)
    resize(page, LARGE)
    lanes = page.evaluate(LANES)
    assert len(lanes) == 2 and all(lane["lines"] >= 4 and lane["size"] >= 40 for lane in lanes)
    assert small_letters(page) == []
    assert [small for part in LABELS for small in small_letters(page, part, 28)] == []
    assert_in_the_window(page, 1080, "[data-lane=baseline]", ".sd-legend", ".sd-transport")
    resize(page, SMALL)
    page.wait_for_function(WHOLE_LINES)
    assert_in_the_window(page, 720, "#prompt", "#run", "[data-lane=baseline]", ".sd-transport")
    assert lines_of_tabs(page) == 1
    figures = page.locator(".sd-figure:visible > b").evaluate_all("all => all.map(one => one.dataset.figure)")
    assert figures == ["speedup", "alpha_compared"]
    assert page.locator(".sd-plot:visible, .sd-rounds:visible").count() == 0
    page.check("[data-role=show-charts]")
    assert page.locator(".sd-live .sd-plot:visible").count() == 1 and page.locator(".sd-rounds").is_visible()
    page.uncheck("[data-role=show-charts]")
    assert page.locator("#more").is_hidden()

    # Every other tab is as large, and keeps its explanations.
    resize(page, LARGE)
    for name, mark in OTHER_TABS.items():
        page.click(f"#tab-{name}-button")
        page.wait_for_selector(mark)
        page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
        assert small_letters(page) == [], name
        assert faults(page) == [], name
        # A lesson needs the room of these lines for the lanes below it.
        assert page.locator(":is(.sd-claim, .sd-remarks):visible").count() == (name != "learn"), name
    page.click("#tab-proof-button")
    explained = page.locator(".sd-proof-card p")
    assert explained.count() == 3
    for explanation in explained.all():
        expect(explanation).to_be_visible()

    # A class adds its code; the tabs stay in one line.
    open_class(page)
    page.click("#tab-run-button")
    for size in (LARGE, (1440, 900), SMALL):
        resize(page, size)
        assert lines_of_tabs(page) == 1, size
        expect(page.locator(".sd-class-chip")).to_be_visible()
    page.click("#tab-class-button")
    end_class(page)

    # The switch is kept; without it the settings are back.
    page.click("#tab-run-button")
    page.reload()
    page.wait_for_selector("body.sd-projector")
    page.uncheck("[data-role=projector]")
    page.wait_for_function(WHOLE_LINES)
    assert page.locator("#more").is_visible()
