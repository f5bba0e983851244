"""The look of the page: layout, contrast and structure, themes, and statuses without colours."""

import io
import re
from itertools import combinations
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.browsing import in_every_font
from helpers.replay import RECORDING, recorded
from helpers.visitor import click_token, open_round, press, run_to_end
from PIL import Image, ImageChops

from specdemo.charts.palette import THEMES
from specdemo.ui.component import STATIC

NATIVE = ".sd-select, .sd-toggle input, .sd-text"
OURS = (".sd-header", ".sd", "#ask", ".sd-about")
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
FILLED = """([part, property]) => {
    const style = getComputedStyle(document.querySelector(part));
    return [style[property], style.backgroundImage]; }"""
TARGETS = """() => [...document.querySelectorAll('main :is(button, summary, select, input)')]
    .filter(node => node.checkVisibility({ visibilityProperty: true }) && node.getBoundingClientRect().width)
    .map(node => node.closest('label') ?? node)
    .filter(node => ((box) => Math.min(box.width, box.height) < 24)(node.getBoundingClientRect()))
    .map(node => node.outerHTML.slice(0, 80))"""
LIVE = ("[data-role=rounds]", "[data-plot=race]")
CONTROLS = (".sd-transport", ".sd-pace", ".sd-bar")
ASKED = ("#prompt", "#run", "#k", "#more > button")
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
    click_token(page, 2, 1)
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
    page.click(".sd-player-more")
    press(page, "to-end")  # while it plays, colors are between two states
    page.click(".sd-player-more")
    assert_accessible(page, "main", state="in a frame")


@pytest.mark.slow
@in_every_font
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_whole_stage_fits_a_small_projector(open_page, service, theme):
    page = open_page(theme=theme)
    run_to_end(page)
    shown = (".sd-pass", SPECULATIVE, BASELINE, ".sd-figures", *LIVE)
    assert_above_the_fold(page, *ASKED, *shown, *CONTROLS)
    paper = page.evaluate("() => getComputedStyle(document.querySelector('.sd-lane')).backgroundColor")
    assert paper == f"rgb{tuple(bytes.fromhex(THEMES[theme].surface[1:]))}"
    service.replayed = recorded("shared_noise")
    run_to_end(page)
    assert_above_the_fold(page, *ASKED, *shown, "[data-lane=draft]", *CONTROLS)
    open_round(page, 1, 34)
    assert_above_the_fold(page, *ASKED, SPECULATIVE, ".sd-microscope", "[data-role=rounds]", *CONTROLS)


@pytest.mark.slow
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


def test_safari_reads_how_each_line_through_a_text_is_drawn():
    for sheet in STATIC.rglob("*.css"):
        shorthands = re.findall(r"text-decoration:([^;}]+)", sheet.read_text(encoding="utf-8"))
        assert all(len(values.split()) == 1 for values in shorthands), sheet


@pytest.mark.slow
def test_native_controls_and_scroll_bars_have_the_theme_of_the_page(open_page):
    page = open_page(theme="dark")
    schemes = page.eval_on_selector_all(NATIVE, "all => all.map(node => getComputedStyle(node).colorScheme)")
    assert set(schemes) == {"dark"} and len(schemes) >= 5


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


@pytest.mark.slow
def test_forced_colors_keep_choices_and_lengths(open_page):
    page = open_page()
    run_to_end(page)
    page.emulate_media(forced_colors="active")
    page.click("#more > button")
    for chosen, other in (
        ("#tab-run-button", "#tab-lab-button"),
        ("#mode label.selected", "#mode label:not(.selected)"),
        (".sd-pace input:checked + span", ".sd-pace input:not(:checked) + span"),
    ):
        colours = [page.evaluate(FILLED, [part, "backgroundColor"]) for part in (chosen, other)]
        assert colours[0] != colours[1], chosen
    for control in ("#mode input", "#auto input"):
        assert page.locator(control).first.evaluate("node => getComputedStyle(node).appearance") == "auto"
    for part in (".sd-blocks", ".sd-strip-keys", "#k input[type=range]"):
        assert page.evaluate(FILLED, [part, "forcedColorAdjust"])[0] == "none", part
    plain = page.locator("[data-lane=baseline] .sd-token").first
    colours = plain.evaluate(
        "node => [getComputedStyle(node).borderBottomColor, getComputedStyle(document.body).backgroundColor]"
    )
    assert colours[0] == colours[1], "a token without a status has no line"


@pytest.mark.slow
def test_targets_are_large_enough_and_a_focused_radio_button_has_a_ring(open_page):
    page = open_page()
    run_to_end(page)
    assert page.evaluate(TARGETS) == []
    page.click("#more > button")
    page.focus("#examples button >> nth=-1")
    page.keyboard.press("Tab")
    ring = "node => getComputedStyle(node.closest('label')).outlineWidth"
    assert page.locator("#mode input:focus").evaluate(ring) == "3px"
