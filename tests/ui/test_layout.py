"""The layout of the Run tab: room for the text, sizes of letters, and what stays in its place."""

from typing import Any

import pytest
from helpers.layout import FONTS, write_in
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
LIVE = ("[data-role=rounds]", "[data-plot=race]")
LABELS = (".sd-claim", ".sd-lane h2", ".sd-rate", ".sd-key", ".sd-passes", ".sd-figure [data-label]")


@pytest.fixture
def ended(open_page: Any) -> Any:
    """Return ``ended(width, height, font)``: a page of this size and font at the end of a run."""

    def opened(width: int, height: int, font: str, projector: bool = False) -> Any:
        page = open_page(width=width, height=height)
        if not write_in(page, font):
            pytest.skip(f"{font} is not installed on this machine")
        if projector:
            page.check("[data-role=projector]")
        run_to_end(page)
        page.evaluate(FRAMES)
        return page

    return opened


def assert_in_the_window(page: Any, height: int, *parts: str) -> None:
    for part in parts:
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, part


@pytest.mark.slow
@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize(("width", "height", "lines", "px"), [(1280, 720, 6, 20), (1920, 1080, 8, 26)])
def test_each_lane_has_room_for_its_text_beside_two_live_charts(ended, width, height, lines, px, font):
    page = ended(width, height, font)
    lanes = page.evaluate(LANES)
    assert len(lanes) == 2 and all(lane["lines"] >= lines and lane["size"] >= px for lane in lanes), lanes
    assert_in_the_window(
        page, height, "[data-lane=baseline]", *LIVE, ".sd-legend", ".sd-transport", ".sd-pace"
    )


@pytest.mark.slow
def test_a_wide_window_is_used_in_full(ended):
    page = ended(1920, 1080, "Liberation")
    lane, whole = (page.locator(part).bounding_box()["width"] for part in (".sd-lane >> nth=0", ".sd-main"))
    assert whole > 1860 and 0.62 < lane / whole < 0.7
    grounds = page.locator("html, body, .gradio-container").evaluate_all(
        "all => all.map(node => getComputedStyle(node).backgroundColor)"
    )
    assert len(set(grounds)) == 1, "one background"


@pytest.mark.slow
@pytest.mark.parametrize("font", FONTS)
def test_a_projector_shows_letters_for_the_last_row(ended, font):
    page = ended(1920, 1080, font, projector=True)
    lanes = page.evaluate(LANES)
    assert len(lanes) == 2 and all(lane["lines"] >= 4 and lane["size"] >= 40 for lane in lanes), lanes
    assert page.evaluate(SMALLER, ["main", 24]) == []
    assert [small for part in LABELS for small in page.evaluate(SMALLER, [part, 28])] == []
    assert_in_the_window(page, 1080, "[data-lane=baseline]", ".sd-legend", ".sd-transport")
    figures = page.locator(".sd-figure:visible > b").evaluate_all("all => all.map(one => one.dataset.figure)")
    assert figures == ["speedup", "alpha_compared"]
    assert page.locator(".sd-plot:visible, .sd-rounds:visible").count() == 0
    page.check("[data-role=show-charts]")
    assert page.locator(".sd-live .sd-plot:visible").count() == 1 and page.locator(".sd-rounds").is_visible()


@pytest.mark.slow
def test_lanes_shrink_back_after_the_window_was_large(ended):
    page = ended(1280, 720, "Liberation")
    before = page.evaluate(LANES)
    for width, height in ((1920, 1080), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(250)
        page.evaluate(FRAMES)
    assert page.evaluate(LANES) == before
    assert_in_the_window(page, 720, "[data-lane=baseline]", *LIVE, ".sd-transport")


@pytest.mark.slow
@pytest.mark.parametrize("font", FONTS)
def test_the_cards_of_a_round_fit_beside_one_another(ended, font):
    page = ended(1280, 720, font)
    page.focus("[data-role=rounds]")
    page.keyboard.press("Home")
    cards = page.locator(".sd-cards")
    assert cards.locator(".sd-card").count() == 5, "four draft tokens and the target's own"
    beyond = "node => [node.scrollWidth - node.clientWidth, node.scrollHeight - node.clientHeight]"
    assert cards.evaluate(beyond) == [0, 0]
    assert {5} == set(cards.locator("ol").evaluate_all("all => all.map(list => list.children.length)"))
    microscope, main = (page.locator(part).bounding_box() for part in (".sd-microscope", ".sd-main"))
    assert microscope["width"] == main["width"]
    assert_in_the_window(page, 720, ".sd-microscope", "[data-role=rounds]", ".sd-transport")


def test_the_last_run_stays_until_the_first_token_arrives(open_page, service):
    page = open_page()
    run_to_end(page)
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


def test_the_stage_names_its_run_and_leads_back_from_any_state(open_page, service):
    page = open_page()
    run_to_end(page)
    prompt = page.input_value("#prompt textarea")
    expect(page.locator("[data-role=source-prompt]")).to_have_text(f"“{prompt}”")
    page.select_option("[data-role=recordings]", "paris")
    page.wait_for_selector(".sd[data-recording=paris]")
    paris = recorded("shared_noise")[0]["run"]["config"]
    expect(page.locator("[data-role=source-prompt]")).to_have_text(f"“{paris['prompt']}”")
    expect(page.locator("[data-role=source-words]")).to_contain_text(f"k {paris['k']} · shared-noise")
    page.get_by_role("button", name="Clear").click()
    page.wait_for_selector(".sd[data-state=idle]")
    page.get_by_role("button", name="Back to my run").click()
    page.wait_for_selector(".sd[data-kept][data-state=ended]")
    expect(page.locator("[data-role=source-prompt]")).to_have_text(f"“{prompt}”")
    expect(page.get_by_role("link", name="Load these settings")).to_be_visible()


def test_auto_k_shows_no_number(open_page):
    page = open_page()
    field = page.locator("#k input[type=number]")
    shown = "node => getComputedStyle(node.parentElement, '::after').content"
    page.check("#auto input")
    expect(field).to_be_disabled()
    assert field.evaluate(shown) == '"auto"'
    page.uncheck("#auto input")
    expect(field).to_be_enabled()
    assert field.evaluate(shown) == "none"


def test_share_closes_on_escape_and_outside_and_moves_nothing(open_page, url):
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    run_to_end(page)
    menu = page.locator("[data-role=save-menu] > div")
    for close in (lambda: page.keyboard.press("Escape"), lambda: page.mouse.click(300, 400)):
        page.click("[data-role=save-menu] summary")
        expect(menu).to_be_visible()
        close()
        expect(menu).to_be_hidden()
    before = page.evaluate(PLACES)
    page.click("[data-role=save-menu] summary")
    press(page, "copy-link")
    expect(page.locator("[data-role=told]")).to_have_text("Link copied.")
    assert page.evaluate(PLACES) == before


def test_tabs_come_before_tools_in_the_tab_order(open_page):
    page = open_page()
    stops = page.locator("[role=tab], .sd-tools input, .sd-text").evaluate_all(
        "all => all.map(node => node.closest('.sd-tools, [role=tablist], .sd-lane').className)"
    )
    kinds = list(dict.fromkeys(stops))
    assert "tab-container" in kinds[0] and kinds[1:] == ["sd-tools", "sd-lane"]


def test_on_a_phone_three_lanes_come_before_the_charts(open_page, service):
    service.replayed = recorded("shared_noise")
    page = open_page(width=390, height=844)
    run_to_end(page)
    tops = [page.locator(part).bounding_box()["y"] for part in (".sd-lane[data-lane=draft]", ".sd-live")]
    assert tops == sorted(tops)
