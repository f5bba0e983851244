"""The layout of the Run tab: room for the text, sizes of letters, and what stays in its place."""

from typing import Any

import pytest
from helpers.layout import fonts
from helpers.replay import recorded
from helpers.visitor import FRAMES, press, run_to_end
from playwright.sync_api import expect

LANES = """() => [...document.querySelectorAll('.sd-text')].filter(box => box.clientHeight).map(box => {
    const { fontSize, lineHeight } = getComputedStyle(box);
    return { lines: Math.floor(box.clientHeight / parseFloat(lineHeight)), size: parseFloat(fontSize) }; })"""
SMALLER = """([root, px]) => [...document.querySelectorAll(`${root}, ${root} *`)].filter(node =>
    [...node.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim())
    && node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && !node.closest('.sd-sr, .sr-only, option, .sd-skip, .sd-text'))
    .filter(node => ((size) => size > 0 && size < px)(parseFloat(getComputedStyle(node).fontSize)))
    .map(node => `${node.tagName}.${node.className} ${node.textContent.trim().slice(0, 30)}`)"""
PLACES = """() => [...document.querySelectorAll('.sd-lane, .sd-tools > *:not(.sd-told), .sd-bar')]
    .map(node => JSON.stringify(node.getBoundingClientRect()))"""
WHOLE_LINES = """() => [...document.querySelectorAll('.sd-text')].filter(box => box.clientHeight).every(box =>
    box.scrollHeight - box.scrollTop - box.clientHeight < 1 &&
    box.clientHeight % parseFloat(getComputedStyle(box).lineHeight) === 0)"""
LABELS = (".sd-claim", ".sd-lane h2", ".sd-rate", ".sd-key", ".sd-passes", ".sd-figure [data-label]")
SMALL, LARGE = (1280, 720), (1920, 1080)


def assert_in_the_window(page: Any, height: int, *parts: str) -> None:
    for part in parts:
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, part


def resize(page: Any, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(250)  # resize observers run
    page.evaluate(FRAMES)


@pytest.mark.slow
def test_lanes_charts_and_the_cards_of_a_round_have_room_in_every_font(open_page, service):
    service.replayed = [*service.replayed[:-1], service.replayed[-1] | {"remarks": ""}]
    page = open_page(*SMALL)
    run_to_end(page)
    for font in fonts(page):
        resize(page, SMALL)
        before = page.evaluate(LANES)
        for size, lines, px in ((SMALL, 6, 20), (LARGE, 8, 26), (SMALL, 6, 20)):
            resize(page, size)
            lanes = page.evaluate(LANES)
            assert len(lanes) == 2, font
            assert all(lane["lines"] >= lines and lane["size"] >= px for lane in lanes), (font, lanes)
            assert_in_the_window(page, size[1], "[data-lane=baseline]", "[data-plot=race]", ".sd-pace")
            if size == LARGE:
                parts = (".sd-lane >> nth=0", ".sd-main")
                lane, whole = (page.locator(part).bounding_box()["width"] for part in parts)
                assert whole > 1860 and 0.62 < lane / whole < 0.7
        assert page.evaluate(LANES) == before, "lanes shrink back after the window was large"
        page.focus("[data-role=rounds]")
        page.keyboard.press("Home")
        cards = page.locator(".sd-cards")
        assert cards.locator(".sd-card").count() == 5, "four draft tokens and the target's own"
        beyond = "node => [node.scrollWidth - node.clientWidth, node.scrollHeight - node.clientHeight]"
        assert cards.evaluate(beyond) == [0, 0], font
        lists = cards.locator("ol").evaluate_all("all => all.map(list => list.children.length)")
        assert set(lists) == {5}
        microscope, main = (page.locator(part).bounding_box() for part in (".sd-microscope", ".sd-main"))
        assert microscope["width"] == main["width"]
        assert_in_the_window(page, 720, ".sd-microscope", "[data-role=rounds]", ".sd-transport")
        page.keyboard.press("Escape")


@pytest.mark.slow
def test_a_projector_shows_letters_for_the_last_row_in_every_font(open_page):
    page = open_page(*LARGE)
    page.check("[data-role=projector]")
    run_to_end(page)
    for font in fonts(page):
        resize(page, LARGE)
        lanes = page.evaluate(LANES)
        assert len(lanes) == 2 and all(lane["lines"] >= 4 and lane["size"] >= 40 for lane in lanes), font
        assert page.evaluate(SMALLER, ["main", 24]) == []
        assert [small for part in LABELS for small in page.evaluate(SMALLER, [part, 28])] == []
        assert_in_the_window(page, 1080, "[data-lane=baseline]", ".sd-legend", ".sd-transport")
        resize(page, SMALL)
        page.wait_for_function(WHOLE_LINES)
        assert_in_the_window(page, 720, "#prompt", "#run", "[data-lane=baseline]", ".sd-transport")
    figures = page.locator(".sd-figure:visible > b").evaluate_all("all => all.map(one => one.dataset.figure)")
    assert figures == ["speedup", "alpha_compared"]
    assert page.locator(".sd-plot:visible, .sd-rounds:visible").count() == 0
    page.check("[data-role=show-charts]")
    assert page.locator(".sd-live .sd-plot:visible").count() == 1 and page.locator(".sd-rounds").is_visible()
    page.uncheck("[data-role=show-charts]")
    assert page.locator("#more").is_hidden()
    page.reload()
    page.wait_for_selector("body.sd-projector")
    page.uncheck("[data-role=projector]")
    page.wait_for_function(WHOLE_LINES)
    assert page.locator("#more").is_visible()


def test_the_stage_names_its_run_and_keeps_it_until_the_next_one_has_a_token(open_page, service, url):
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    stops = page.locator("[role=tab], .sd-tools input, .sd-text").evaluate_all(
        "all => all.map(node => node.closest('.sd-tools, [role=tablist], .sd-lane').className)"
    )
    kinds = list(dict.fromkeys(stops))
    assert "tab-container" in kinds[0] and kinds[1:] == ["sd-tools", "sd-lane"], "the order of Tab"
    run_to_end(page)

    # The menu closes on Escape and outside, and moves nothing.
    menu, places = page.locator("[data-role=save-menu] > div"), page.evaluate(PLACES)
    for close in (lambda: page.keyboard.press("Escape"), lambda: page.mouse.click(300, 400)):
        page.click("[data-role=save-menu] summary")
        expect(menu).to_be_visible()
        close()
        expect(menu).to_be_hidden()
    page.keyboard.press("Escape")
    page.click("[data-role=save-menu] summary")
    press(page, "copy-link")
    expect(page.locator("[data-role=told]")).to_have_text("Link copied.")
    assert page.evaluate(PLACES) == places

    # A recording replaces the run, and the run comes back.
    prompt = page.input_value("#prompt textarea")
    shown, settings = page.locator("[data-role=source-prompt]"), page.locator("[data-role=source-words]")
    expect(shown).to_have_text(f"“{prompt}”")
    page.select_option("[data-role=recordings]", "paris")
    page.wait_for_selector(".sd[data-recording=paris]")
    paris = recorded("shared_noise")[0]["run"]["config"]
    expect(shown).to_have_text(f"“{paris['prompt']}”")
    expect(settings).to_contain_text(f"k {paris['k']} · shared-noise")
    page.get_by_role("button", name="Clear").click()
    page.wait_for_selector(".sd[data-state=idle]")
    page.get_by_role("button", name="Back to my run").click()
    page.wait_for_selector(".sd[data-kept][data-state=ended]")
    expect(shown).to_have_text(f"“{prompt}”")
    expect(page.get_by_role("link", name="Load these settings")).to_be_visible()

    # The next run replaces it with its first token.
    text = page.inner_text("[data-lane=speculative] .sd-text")
    speedup = page.inner_text("[data-figure=speedup]")
    service.hold_at = 0
    page.click("#run")
    page.wait_for_selector(".sd[data-state=waiting]")
    expect(page.locator("[data-role=progress-text]")).to_have_text("Preparing the run")
    assert page.inner_text("[data-lane=speculative] .sd-text") == text
    assert page.inner_text("[data-figure=speedup]") == speedup != "–"
    service.gap_s, service.hold_at = 0.2, 3  # faster rounds would wait for the page's next update
    page.wait_for_selector(".sd[data-state=playing]")
    press(page, "to-end")
    assert page.inner_text("[data-lane=speculative] .sd-text") != text
    page.click("#stop")
