"""A person with a phone: run, pause, look into a round, share, and open the saved page."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.layout import assert_in_the_window, faults
from helpers.pages import MOUNTED, SKIP_PREDICTION
from helpers.replay import recorded
from helpers.visitor import WIDER, open_round, press, requested, token_of
from playwright.sync_api import expect

from specdemo.ui.component import CLAIM

pytestmark = pytest.mark.slow

WIDTH, HEIGHT = 390, 844
PHONE = {"viewport": {"width": WIDTH, "height": HEIGHT}, "has_touch": True, "is_mobile": True}
HELP = "#sd-help"
IN_REACH = """node => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return node.contains(document.elementFromPoint(left + width / 2, top + height / 2)); }"""


def assert_fits(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == WIDTH
    assert page.evaluate(WIDER, WIDTH) == []


def assert_in_reach(page: Any, *parts: str) -> None:
    for part in parts:
        assert page.locator(part).evaluate(IN_REACH), part


@pytest.mark.usefixtures("shipped")
def test_the_recording_of_a_first_visit_fits(patient_page, url):
    page = patient_page(**PHONE)
    page.goto(url)
    expect(page.locator(".sd-kept")).to_contain_text("Press Run for your own.")
    assert_fits(page)


def test_phone(patient_page, url, service, tmp_path):
    service.replayed = recorded("rejection")
    page = patient_page(**PHONE)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.add_init_script(SKIP_PREDICTION)
    page.goto(url)
    page.wait_for_selector(MOUNTED, state="attached")
    assert_in_the_window(page, HEIGHT, "#prompt", "#run")

    # Run: Enter starts, and the page goes to the stage.
    page.fill("#prompt textarea", "Once")
    page.press("#prompt textarea", "Shift+Enter")
    page.locator("#prompt textarea").press_sequentially("more")
    page.press("#prompt textarea", "Enter")
    page.wait_for_selector(".sd[data-state=playing] [data-lane=speculative] .sd-token:visible")
    page.wait_for_function("() => Math.abs(document.querySelector('.sd').getBoundingClientRect().top) < 40")
    asked = requested(service)
    assert asked["prompt"] == "Once\nmore" and asked["max_new_tokens"] == 64

    # Pause: the buttons of the replay stay in reach, also at the last lane.
    page.locator("[data-role=play]").tap()
    expect(page.locator("[data-role=play]")).to_have_accessible_name("Play")
    page.wait_for_selector("#run:enabled")
    page.locator("[data-lane=baseline] .sd-passes").scroll_into_view_if_needed()
    assert_in_reach(page, "[data-role=play]", "[data-lane=baseline] .sd-passes")
    assert page.locator(".sd-replay").bounding_box()["height"] <= 56
    page.locator(".sd-player-more").tap()
    page.locator("[data-role=to-end]").tap()
    page.locator(".sd-player-more").tap()
    page.wait_for_selector(".sd[data-state=ended]")
    for part in page.locator(".sd-lane, .sd-figures, .sd-plot, #prompt").all():
        assert part.bounding_box()["width"] > 340, "one column"
    tops = [page.locator(part).bounding_box()["y"] for part in (".sd-lane[data-lane=draft]", ".sd-live")]
    assert tops == sorted(tops), "the lanes come before the charts"
    page.locator("[data-plot=position]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=position].js-plotly-plot")
    assert_fits(page)
    page.locator("[data-help=speedup]").tap()
    box = page.locator(HELP).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH and box["y"] >= 0
    page.locator(".sd-clock").tap()
    expect(page.locator(HELP)).to_have_count(0)

    # Microscope: it opens above the buttons, and its cards scroll in their own row.
    open_round(page, 1, 60)
    assert_in_reach(page, "[data-role=microscope-on]")
    page.locator("[data-role=microscope-on]").tap()
    expect(page.locator("[data-role=microscope-title]")).to_contain_text("Round 3")
    card = page.locator(".sd-card").last
    card.scroll_into_view_if_needed()
    box = card.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH
    assert_fits(page)
    page.locator("[data-role=microscope-close]").tap()
    token_of(page, 1, 1).tap()
    expect(page.locator("[data-role=tip]")).to_be_visible()
    assert_fits(page)

    # Share: directly below the run; every way to share is in reach.
    share = page.locator("[data-role=save-menu] summary")
    run, plots = (page.locator(part).bounding_box()["y"] for part in (".sd-main", ".sd-plots"))
    assert run < share.bounding_box()["y"] < plots
    share.tap()
    ways = page.locator("[data-role=save-menu] button").all()
    assert len(ways) == 5 and all(way.evaluate(IN_REACH) for way in ways)
    assert_fits(page)
    page.locator("[data-role=copy-link]").click()
    expect(page.locator("[data-role=told]")).to_contain_text("Link copied. It opens the page with")
    link = page.evaluate("navigator.clipboard.readText()")
    assert parse_qs(urlsplit(link).query)["prompt"] == ["Once\nmore"]
    share.tap()
    with page.expect_download() as saved:
        page.locator("[data-role=save-page]").tap()
    saved.value.save_as(tmp_path / "run.html")

    # The saved page explains itself, without a network.
    offline = patient_page(**PHONE)
    offline.context.set_offline(True)
    offline.goto((tmp_path / "run.html").as_uri())
    offline.locator(".sd-player-more").tap()
    press(offline, "to-end")
    offline.wait_for_selector(".sd[data-state=ended]")
    expect(offline.get_by_text(CLAIM)).to_be_visible()
    expect(offline.get_by_role("link", name="Open the live page")).to_have_attribute("href", link)
    tops = [offline.locator(part).bounding_box()["y"] for part in (".sd-lane >> nth=-1", ".sd-live")]
    assert tops == sorted(tops), "the lanes come before the charts"
    assert_in_reach(offline, "[data-role=play]")
    assert faults(offline) == []
    large = patient_page(viewport={"width": 1280, "height": 720})
    large.goto((tmp_path / "run.html").as_uri())
    large.wait_for_selector(".sd[data-state=playing]")
    assert_in_the_window(large, 720, ".sd-tools", "[data-lane=draft]", ".sd-foot")
