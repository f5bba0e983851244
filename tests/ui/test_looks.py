"""The look of the page: layout, contrast and structure, themes, and statuses without colours."""

import io
from itertools import combinations
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.replay import RECORDING, recorded
from helpers.visitor import WIDER, open_round, press, requested, run_to_end, token_of
from PIL import Image, ImageChops

from specdemo.charts.palette import THEMES

OURS = (".sd-header", ".sd", "#ask", "#examples", ".sd-about")
CUES = """nodes => nodes.map(node => {
    const style = getComputedStyle(node);
    const lines = [style.textDecorationLine, style.textDecorationStyle, style.textDecorationThickness];
    return [style.borderBottomStyle, ...lines, getComputedStyle(node, '::before').content].join(' '); })"""
CUE = f"node => ({CUES})([node])[0]"
DEFICIENCIES = ["protanopia", "deuteranopia", "tritanopia", "achromatopsia"]
SAME_WORD = """keys => {
    const names = keys.map(key => key.textContent);
    for (const key of keys) key.textContent = 'token';
    return keys.map((key, index) => {
        const { left, top, right, bottom } = key.getBoundingClientRect();
        return [names[index], [left, top, right, bottom]]; }); }"""
KEY_SIZE = (58, 24)
STEP = 48  # difference in grey levels (of 256) at which two pixels are distinguishable at a glance
LIVE = ("[data-role=rounds]", "[data-plot=race]")
CONTROLS = (".sd-transport", ".sd-pace", ".sd-bar")
ASKED = ("#prompt", "#run", "#mode", "#k", "#more")
SPECULATIVE, BASELINE = "[data-lane=speculative]", "[data-lane=baseline]"


def assert_above_the_fold(page: Any, *parts: str, height: int = 720) -> None:
    for part in parts:
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, part


@pytest.mark.slow
def test_axe_finds_nothing_serious(open_page, service):
    page = open_page()
    assert_accessible(page, *OURS, state="idle")
    service.replayed = recorded("shared_noise")
    run_to_end(page)
    page.locator("[data-plot=position]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=position].js-plotly-plot")
    assert_accessible(page, *OURS, state="at the end")
    page.click("[data-help=alpha]")
    assert_accessible(page, ".sd", state="with a figure's help")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert_accessible(page, ".sd-keys", state="the list of keys")
    page.keyboard.press("Escape")
    open_round(page, 2, 34)
    assert_accessible(page, *OURS, state="with the microscope")
    page.keyboard.press("Escape")
    token_of(page, 2, 1).click()
    page.click(".sd-cite summary")
    page.click("[data-role=save-menu] summary")
    assert_accessible(page, *OURS, state="with a pinned tooltip, the citations and the menu")
    press(page, "to-start", "phase-on")
    page.check("[data-role=projector]")
    assert_accessible(page, *OURS, state="on a projector, tokens pending")


@pytest.mark.slow
def test_axe_finds_nothing_serious_in_a_replay_for_other_sites(patient_page, url):
    page = patient_page(viewport={"width": 700, "height": 640})
    page.goto(f"{url}?embed=1&trace={RECORDING}")
    page.wait_for_selector(".sd-token:visible")  # the first token may be discarded and folded already
    assert_accessible(page, "main", state="in a frame")


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_the_whole_stage_fits_a_small_projector(open_page, service, theme):
    page = open_page(theme=theme)
    run_to_end(page)
    shown = (SPECULATIVE, BASELINE, ".sd-figures", *LIVE)
    assert_above_the_fold(page, *ASKED, *shown, *CONTROLS)
    paper = page.evaluate("() => getComputedStyle(document.querySelector('.sd-lane')).backgroundColor")
    assert paper == f"rgb{tuple(bytes.fromhex(THEMES[theme].surface[1:]))}"
    service.replayed = recorded("shared_noise")
    run_to_end(page)
    assert_above_the_fold(page, *ASKED, *shown, "[data-lane=draft]", *CONTROLS)
    open_round(page, 1, 34)
    assert_above_the_fold(page, *ASKED, SPECULATIVE, ".sd-microscope", "[data-role=rounds]", *CONTROLS)


def test_on_a_phone_enter_starts_a_run_whose_parts_all_fit_the_width(open_page, service):
    service.replayed = recorded("rejection")
    page = open_page(width=390, height=844)
    page.fill("#prompt textarea", "Once")
    page.press("#prompt textarea", "Shift+Enter")
    page.locator("#prompt textarea").press_sequentially("more")
    page.press("#prompt textarea", "Enter")
    page.wait_for_selector(".sd[data-state=playing]")
    asked = requested(service)
    assert asked["prompt"] == "Once\nmore" and asked["max_new_tokens"] == 64
    page.wait_for_function("() => Math.abs(document.querySelector('.sd').getBoundingClientRect().top) < 40")
    page.wait_for_selector("#run:enabled")
    press(page, "to-end")
    for part in page.locator(".sd-lane, .sd-figures, .sd-plot, #prompt").all():
        assert part.bounding_box()["width"] > 340, "one column"
    tops = [page.locator(part).bounding_box()["y"] for part in (".sd-lane[data-lane=draft]", ".sd-live")]
    assert tops == sorted(tops), "the lanes come before the charts"
    page.locator("[data-plot=position]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=position].js-plotly-plot")
    for state in ("run", "microscope", "tooltip"):
        if state == "microscope":
            open_round(page, 1, 60)
            card = page.locator(".sd-card").last
            card.scroll_into_view_if_needed()
            box = card.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390, "cards scroll in their own row"
        if state == "tooltip":
            page.keyboard.press("Escape")
            token_of(page, 1, 1).click()
        assert page.evaluate("() => document.documentElement.scrollWidth") == 390, state
        assert page.evaluate(WIDER, 390) == [], state


def test_each_status_has_a_cue_of_its_own(played):
    page = played("greedy")
    keys = page.eval_on_selector_all(".sd-key[data-status]", CUES)
    assert len(keys) == len(set(keys)) == 6, keys
    statuses = ["=accepted]", "=discarded]:not([data-rejected])", "=discarded][data-rejected]"]
    statuses += ["=corrected]", "=bonus]"]
    tokens = [page.locator(f".sd-token[data-status{status}").first.evaluate(CUE) for status in statuses]
    press(page, "to-start", "phase-on")
    tokens.append(page.locator(".sd-token[data-status=pending]").first.evaluate(CUE))
    assert sorted(tokens) == sorted(keys), "tokens look as the legend says"


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_statuses_differ_without_colours(open_page, theme):
    page = open_page(theme=theme)
    keys = dict(page.eval_on_selector_all(".sd-key", SAME_WORD))
    session = page.context.new_cdp_session(page)
    for deficiency in DEFICIENCIES:
        session.send("Emulation.setEmulatedVisionDeficiency", {"type": deficiency})
        grey = Image.open(io.BytesIO(page.screenshot())).convert("L")
        looks = {name: grey.crop(box).resize(KEY_SIZE) for name, box in keys.items()}
        for one, other in combinations(looks, 2):
            difference = ImageChops.difference(looks[one], looks[other])
            apart = sum(difference.histogram()[STEP:])
            assert apart > 0.03 * KEY_SIZE[0] * KEY_SIZE[1], (deficiency, one, other)
    session.detach()
