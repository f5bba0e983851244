"""The layout of the Run tab: room for the text, sizes of letters, and what stays in its place."""

import pytest
from helpers.browsing import in_every_font
from helpers.layout import LANES, assert_in_the_window, resize
from helpers.replay import recorded
from helpers.visitor import press, receive_run, run_to_end
from playwright.sync_api import expect

PLACES = """() => [...document.querySelectorAll('.sd-lane, .sd-tools > *:not(.sd-told), .sd-bar')]
    .map(node => JSON.stringify(node.getBoundingClientRect()))"""
SMALL, LARGE = (1280, 720), (1920, 1080)


@pytest.mark.slow
@in_every_font
def test_lanes_charts_and_the_cards_of_a_round_have_room_in_every_font(open_page, service):
    service.replayed = [*service.replayed[:-1], service.replayed[-1] | {"remarks": ""}]
    page = open_page(*SMALL)
    run_to_end(page)
    resize(page, SMALL)
    before = page.evaluate(LANES)
    for size, lines, px in ((SMALL, 4, 20), (LARGE, 8, 26), (SMALL, 4, 20)):
        resize(page, size)
        lanes = page.evaluate(LANES)
        assert len(lanes) == 2
        assert all(lane["lines"] >= lines and lane["size"] >= px for lane in lanes), lanes
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
    assert cards.evaluate(beyond) == [0, 0]
    lists = cards.locator("ol").evaluate_all("all => all.map(list => list.children.length)")
    assert set(lists) == {5}
    microscope, main = (page.locator(part).bounding_box() for part in (".sd-microscope", ".sd-main"))
    assert microscope["width"] == main["width"]
    assert_in_the_window(page, 720, ".sd-microscope", "[data-role=rounds]", ".sd-transport")


@pytest.mark.slow
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
    expect(page.locator("[data-role=told]")).to_contain_text("Link copied. It opens the page with")
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


SHIFTS = """() => new Promise(done => {
    const shifts = [];
    const place = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
    const add = list => {
        for (const { value, hadRecentInput, startTime, sources } of list.getEntries()) if (!hadRecentInput) {
            const name = node => node?.id || node?.className || node?.nodeName;
            const moved = sources.map(({ node, previousRect: from, currentRect: to }) =>
                `${name(node)}: ${place(from)} to ${place(to)}`);
            shifts.push([value, Math.round(startTime), ...moved]); } };
    new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: true });
    setTimeout(() => done(shifts), 300); })"""
"""The layout shifts so far, each with its time in ms and what moved, but not what follows a press at once."""


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, (390, 844)], ids=["small", "phone"])
def test_nothing_jumps_on_load_and_over_a_run_and_the_first_screen_tells_no_more_than_is_known(
    open_page, size
):
    page = open_page(*size)
    page.wait_for_selector("#run:enabled")
    shown = page.locator(".sd-figure:visible > b")
    assert [figure.get_attribute("data-figure") for figure in shown.all()] == ["speedup", "passes"]
    if size != SMALL:
        strip, lane = (page.locator(part).bounding_box()["y"] for part in (".sd-pass", ".sd-lane >> nth=0"))
        ask = page.locator("#ask").bounding_box()
        assert strip < lane < size[1] and ask["height"] <= 110
        assert page.locator(".sd-replay").bounding_box()["height"] <= 56
    receive_run(page)
    page.keyboard.press("End")
    page.wait_for_selector(".sd[data-state=ended]")
    expect(shown).to_have_count(5)
    shifts = page.evaluate(SHIFTS)
    assert sum(value for value, *_ in shifts) < 0.1, "\n".join(map(str, shifts))
