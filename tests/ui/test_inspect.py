"""The strip of rounds, the microscope, tooltips, and the selection that they share."""

import re
from typing import Any

import pytest
from helpers.replay import Event, recorded, rounds
from helpers.visitor import FRAMES, open_round, pieces, point_at, press, run_to_end, token_of
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

TIP = "[data-role=tip]"
STRIP = "[data-role=rounds]"
MICROSCOPE = "[data-role=microscope]"
TITLE = "[data-role=microscope-title]"
CARDS = """() => [...document.querySelectorAll('.sd-card')].map(card => ({
    verdict: card.dataset.verdict,
    hasCoin: Boolean(card.querySelector('.sd-coin')),
    token: card.querySelector('.sd-card-token').textContent,
    words: card.querySelector('.sd-verdict').textContent,
    figures: Object.fromEntries([...card.querySelectorAll('.sd-card-figures div')].map(row =>
        [row.children[0].textContent, row.children[1].textContent])),
    tops: Object.fromEntries([...card.querySelectorAll('.sd-top ol')].map(list => [list.dataset.symbol,
        [...list.children].map(row => [...row.children].map(part => part.textContent))])),
}))"""
SELECTED_ROUNDS = """() => [...document.querySelectorAll('[data-lane=speculative] .sd-round')]
    .flatMap((round, index) => round.hasAttribute('data-selected') ? [index] : [])"""
BAND = """() => { const { shapes } = document.querySelector('[data-plot=rates]').layout;
    const band = shapes.find(shape => shape.name === 'selected');
    return band.visible ? (band.x0 + band.x1) / 2 : null; }"""
AT_ROUND = """round => { const { xaxis } = document.querySelector('[data-plot=rates]')._fullLayout;
    return xaxis._offset + xaxis.d2p(round); }"""


def count(recording: str) -> int:
    return len(rounds(recorded(recording)))


def says(shown: str, value: float | None) -> bool:
    if value is None:
        return shown == "unknown"
    if shown[0] in "<>":
        edge = float(shown[1:-1]) / 100
        return 0 < value < edge if shown[0] == "<" else edge <= value + 0.0005 and value < 1
    digits = len(shown[:-1].partition(".")[2])
    return abs(float(shown[:-1]) - 100 * value) <= 0.5 * 10**-digits + 1e-9


def reads(shown: str, value: float) -> bool:
    return 0 < value < 0.001 if shown == "<0.001" else abs(float(shown) - value) <= 0.0005 + 1e-9


def assert_top(shown: list[list[str]], top: list[Any], known: dict[int, bytes]) -> None:
    assert len(shown) == len(top) == 5
    for (label, probability), (token, value) in zip(shown, top, strict=True):
        assert says(probability, value)
        text = known[token].decode(errors="replace")
        assert not text.isprintable() or label == text.replace(" ", "␣")


def assert_drafted(card: Event, token: Event, rule: str, known: dict[int, bytes]) -> None:
    figures = dict(card["figures"])
    raw = "raw_" if rule == "greedy" else ""
    assert says(figures.pop("q"), token[f"{raw}q"]) and says(figures.pop("p"), token[f"{raw}p"])
    if rule == "greedy":
        asked = "not compared" if not token["compared"] else "no" if token["rejected"] else "yes"
        assert figures.pop("most likely?") == asked
    elif rule == "rejection":
        chance = figures.pop("min(1, p/q)")
        assert reads(chance, token["accept_prob"]) if token["compared"] else chance == "not compared"
        assert card["hasCoin"] == token["compared"]
        coin = figures.pop("u")
        assert coin == "not drawn" if token["u"] is None else reads(coin, token["u"])
    else:
        assert reads(figures.pop("noise g"), token["noise"])
    assert figures == {}
    assert_top(card["tops"]["q"], token["draft_top"], known)
    assert_top(card["tops"]["p"], token["target_top"], known)


def assert_own(card: Event, emission: Event, rule: str, known: dict[int, bytes]) -> None:
    figures = dict(card["figures"])
    residual = rule == "rejection" and emission["status"] == "corrected"
    if residual:
        assert says(figures.pop("share"), emission["prob"])
        assert reads(figures.pop("mass"), emission["residual_mass"])
    else:
        assert says(figures.pop("p"), emission["raw_prob" if rule == "greedy" else "prob"])
    if rule == "shared-noise":
        assert reads(figures.pop("noise g"), emission["noise"])
    assert figures == {}
    assert_top(card["tops"]["r" if residual else "p"], emission["top"], known)


VERDICTS = {
    "greedy": (["the target's most likely token, so accepted"], ["most likely token is a different one"]),
    "rejection": (["always accepted", "so accepted"], ["so rejected"]),
    "shared_noise": (
        ["the target picks the same token, so accepted"],
        ["the target picks a different token"],
    ),
}


@pytest.mark.parametrize("recording", VERDICTS)
def test_the_microscope_shows_the_recorded_figures_and_explains_verdicts(played, recording):
    page = played(recording)
    events = recorded(recording)
    rule, known = events[0]["run"]["config"]["rule"], pieces(events)
    words: dict[str, list[str]] = {}
    for index in range(24):
        open_round(page, index, count(recording))
        round_ = rounds(events)[index]["round"]
        *drafted, own = page.evaluate(CARDS)
        for card, token in zip(drafted, round_["drafted"], strict=True):
            assert card["verdict"] == ("rejected" if token["rejected"] else token["status"])
            words.setdefault(card["verdict"], []).append(card["words"])
            if index < 6:  # later rounds have no top fives
                assert_drafted(card, token, rule, known)
        assert own["verdict"] == round_["emission"]["status"]
        if index < 6:
            assert_own(own, round_["emission"], rule, known)
    for verdict, parts in zip(("accepted", "rejected"), VERDICTS[recording], strict=True):
        assert all(any(part in one for part in parts) for one in words[verdict])
        assert all(any(part in one for one in words[verdict]) for part in parts)
    assert all("after the rejected token" in one for one in words["discarded"])


def test_the_strip_opens_rounds_by_click_and_keys(played):
    page = played("greedy")
    page.locator(STRIP).hover(position={"x": 3, "y": 20})
    assert page.inner_text(TIP) == "Round 1: 4 of 4 accepted, then one bonus token."
    page.mouse.move(0, 0)
    assert page.locator(TIP).is_hidden()
    open_round(page, 3, count("greedy"))
    assert page.inner_text(TITLE).startswith("Round 4:")
    for key, number in (("ArrowRight", 5), ("ArrowLeft", 4), ("Home", 1), ("ArrowLeft", 1), ("End", 73)):
        page.keyboard.press(key)
        assert page.inner_text(TITLE).startswith(f"Round {number}:")
        expect(page.locator(STRIP)).to_have_attribute("aria-valuenow", str(number))
        expect(page.locator(STRIP)).to_have_attribute("aria-valuetext", re.compile(f"^Round {number}: "))
    press(page, "microscope-back")
    assert page.inner_text(TITLE).startswith("Round 72:")
    press(page, "microscope-on")
    assert page.inner_text(TITLE).startswith("Round 73:")
    for key in ("Escape", "Enter"):
        page.focus("[data-role=microscope-close]")
        page.keyboard.press(key)
        assert page.locator(MICROSCOPE).is_hidden()
        assert page.evaluate(f"document.activeElement === document.querySelector('{STRIP}')")
        assert page.evaluate(SELECTED_ROUNDS) == []
        assert page.locator("[data-lane=baseline]").is_visible()
        page.keyboard.press("Enter")


def test_a_tooltip_describes_the_token_under_the_pointer_and_a_click_pins_it(played):
    page = played("greedy")
    drafted = rounds(recorded("greedy"))[1]["round"]["drafted"]
    point_at(page, token_of(page, 1, 0))
    assert page.locator(TIP).is_visible()
    tip = page.inner_text(TIP)
    assert "rejected · round 2" in tip and "most likely token is a different one" in tip
    assert f"q {100 * drafted[0]['raw_q']:.0f}% · p {100 * drafted[0]['raw_p']:.1f}%" in tip
    assert page.locator(f"{TIP} button").is_hidden()
    page.mouse.move(0, 0)
    assert page.locator(TIP).is_hidden()
    token_of(page, 1, 0).click()
    page.mouse.move(0, 0)
    point_at(page, token_of(page, 0, 0))
    assert "rejected · round 2" in page.inner_text(TIP)
    assert page.get_attribute(TIP, "data-pinned") == "true"
    page.keyboard.press("Escape")
    assert page.locator(TIP).is_hidden()
    press(page, "to-start", "phase-on")
    point_at(page, token_of(page, 0, 0))
    assert "pending" in page.inner_text(TIP) and "not verified yet" in page.inner_text(TIP)
    assert "Target " not in page.inner_text(TIP)


def test_arrow_keys_walk_the_tokens_and_enter_pins(played):
    page = played("greedy")
    page.check("[data-role=show-discards]")
    page.focus("[data-lane=speculative] .sd-text")
    page.keyboard.press("ArrowRight")
    assert "accepted · round 1" in page.inner_text(TIP)
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert "rejected · round 2" in page.inner_text(TIP)
    page.keyboard.press("ArrowLeft")
    assert "bonus · round 1" in page.inner_text(TIP)
    page.keyboard.press("Enter")
    assert page.get_attribute(TIP, "data-pinned") == "true"
    page.mouse.move(0, 0)
    assert page.locator(TIP).is_visible()


def test_the_pinned_tooltip_opens_its_round_at_its_token(played):
    page = played("rejection")
    token_of(page, 1, 1).click()
    page.click(f"{TIP} button")
    assert page.inner_text(TITLE).startswith("Round 2:")
    assert page.locator(".sd-card[data-chosen]").count() == 1
    assert page.locator(".sd-card:nth-child(2)[data-chosen][data-verdict=rejected]").count() == 1


def test_a_copied_token_is_called_copied(open_page, service):
    for event in rounds(service.replayed):
        event["round"]["drafted_by"] = "prompt-lookup"
    page = open_page()
    run_to_end(page)
    point_at(page, token_of(page, 0, 0))
    assert "the draft token was copied from earlier text" in page.inner_text(TIP)
    assert "q " not in page.inner_text(f"{TIP} .sd-tip-figures")
    open_round(page, 0, count("greedy"))
    assert all("q" not in {**card["figures"], **card["tops"]} for card in page.evaluate(CARDS))


def test_all_views_show_the_selected_round(played):
    page = played("greedy")
    chart = page.locator("[data-plot=rates]")
    token_of(page, 2, 0).click()
    assert page.evaluate(SELECTED_ROUNDS) == [2]
    expect(page.locator(STRIP)).to_have_attribute("aria-valuenow", "3")
    chart.scroll_into_view_if_needed()
    page.wait_for_function(f"({BAND})() === 3")
    page.keyboard.press("Escape")
    page.evaluate("window.scrollTo(0, 0)")
    open_round(page, 4, count("greedy"))
    assert page.evaluate(SELECTED_ROUNDS) == [4]
    token_of(page, 5, 0).click()
    assert page.inner_text(TITLE).startswith("Round 6:"), "the open microscope follows"
    chart.scroll_into_view_if_needed()
    page.wait_for_function(f"({BAND})() === 6")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".main-svg").first.bounding_box()
    x = box["x"] + page.evaluate(AT_ROUND, 2)
    page.mouse.move(x, box["y"] + 120)
    page.mouse.click(x, box["y"] + 120)
    page.wait_for_selector(MICROSCOPE)
    assert page.inner_text(TITLE).startswith("Round 2:"), "a click in a chart opens the round"


def test_no_line_is_left_half_cut_when_the_size_of_letters_changes(open_page):
    page = open_page(width=1920, height=1080)
    run_to_end(page)
    open_round(page, 1, 20)
    page.check("[data-role=projector]")
    page.wait_for_timeout(250)
    page.evaluate(FRAMES)
    top, cut = page.eval_on_selector(
        "[data-lane=speculative] .sd-text",
        "box => [box.scrollTop, box.scrollTop % parseFloat(getComputedStyle(box).lineHeight)]",
    )
    assert top > 0 and cut == pytest.approx(0, abs=0.5)
