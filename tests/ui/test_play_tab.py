"""The tab Play in the browser: a visitor drafts, a stand-in target verifies."""

from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.browsing import in_every_font
from helpers.game_page import BOX, TURNS, draft, open_game
from helpers.stand_in import GAME_GUESS, GAME_TEXT
from playwright.sync_api import expect

from specdemo.play.game import parse_turn
from specdemo.ui.tabs.play import OPENINGS

TEXT = "[data-role=text]"
NOTICE = ".sd-play [data-role=notice]"
ERROR = ".sd-play [data-role=error]"
TOKENS = """row => [...row.querySelectorAll('.sd-token')].map(({ textContent, dataset }) =>
    [textContent, 'rejected' in dataset ? 'rejected' : dataset.status])"""
OPENING = OPENINGS[0].text


def scores(page: Any) -> dict[str, list[str]]:
    rows = page.locator("[data-role=scores] tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}


def tokens(page: Any, turn: int, row: int) -> list[list[str]]:
    return page.locator(TURNS).nth(turn).locator(".sd-play-row").nth(row).evaluate(TOKENS)


def test_a_game_for_one_is_played_to_its_end(open_page, service):
    page = open_game(open_page, turns=3)
    draft(page, "as late")
    assert page.inner_text(TEXT) == OPENING + " as s"
    assert "Only a player’s draft extends the text" in page.inner_text(".sd-play-rule")
    assert tokens(page, 0, 0) == [
        *[[letter, "accepted"] for letter in " as "],
        ["l", "rejected"],
        ["s", "corrected"],
        *[[letter, "discarded"] for letter in "ate"],
    ]
    assert [letter for letter, _ in tokens(page, 0, 1)[:6]] == list(GAME_GUESS[:6])
    assert "p 75%" in page.locator(TURNS).inner_text() and "p 13%" in page.locator(TURNS).inner_text()
    assert scores(page) == {"You": ["80%", "5.00", "4"], "Draft model": ["86%", "7.00", "6"]}
    assert page.inner_text(NOTICE).startswith("You: 4 of 8 accepted; the target writes “s” instead of “l”.")
    assert page.inner_text("[data-role=turn]") == "Turn 2 of 3"
    page.press(BOX, "Backspace")
    draft(page, "oon as p")
    assert tokens(page, 0, 0)[-1] == ["o", "bonus"]
    page.press(BOX, "Backspace")
    draft(page, "ssible")
    assert page.inner_text(TEXT) == OPENING + GAME_TEXT[:-1]
    assert page.locator(TURNS).locator("h3").all_inner_texts() == ["Turn 3", "Turn 2", "Turn 1"]
    assert page.inner_text("[data-role=turn]") == "Game over after 3 turns"
    assert page.locator(BOX).is_hidden()
    assert page.locator(f"{NOTICE} b").inner_text().startswith("Acceptance rates: you 95%, the draft model ")
    asked = [parse_turn(raw) for raw in service.requests]
    assert [bytes(request.written).decode() for request in asked] == ["", " as s", " as soon as po"]
    assert [request.scores["one"].compared for request in asked[1:]] == [5, 13]
    page.click("[data-role=again]")
    assert page.inner_text(TEXT) == OPENING and page.locator(TURNS).count() == 0
    assert scores(page)["You"] == ["–", "–", "–"]


@pytest.mark.slow
@in_every_font
def test_two_players_draft_in_secret_and_the_better_draft_extends_the_text(open_page, service):
    page = open_game(open_page, players=2)
    assert page.locator("#stage").is_hidden()
    page.fill(BOX, "as late")
    assert page.inner_text(TEXT) == OPENING + " as late", "as it would stand there"
    page.press(BOX, "Enter")
    assert page.input_value(BOX) == "" and "late" not in page.inner_text(".sd-play")
    assert page.inner_text("[data-role=who]").startswith("Player 2's next words")
    assert "hidden" in page.inner_text(NOTICE) and service.requests == []
    page.fill(BOX, "as soon as")
    page.press(BOX, "Enter")
    page.wait_for_selector(TURNS)
    assert page.locator(f"{TURNS} h4").all_inner_texts() == ["Player 1", "Player 2", "Draft model"]
    assert page.inner_text(TEXT) == OPENING + " as soon as "
    assert scores(page)["Player 2"] == ["100%", "12.00", "11"]
    assert parse_turn(service.requests[0]).drafts == {"one": " as late", "two": " as soon as"}
    assert page.inner_text("[data-role=who]").startswith("Player 1's next words")
    for part in (TEXT, BOX, ".sd-play-scores", NOTICE, f"{TURNS}:first-child"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    draft(page, "possible.", "possible.")
    assert page.inner_text("[data-role=turn]") == "Game over after 2 turns"
    assert "The text has ended." in page.inner_text(NOTICE)
    page.fill("[data-role=most]", "20")
    page.press("[data-role=most]", "Tab")
    assert page.locator(BOX).is_hidden(), "more turns would not help"
    assert_accessible(page, ".sd-play", ".sd-header", state="at the end")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.click("#tab-learn-button")
    assert page.locator("#stage").is_visible() and page.locator(BOX).is_hidden()


@pytest.mark.slow
def test_the_keyboard_alone_plays_and_the_number_of_turns_can_change(open_page):
    page = open_game(open_page)
    page.focus(BOX)
    page.keyboard.type("as soon")
    page.keyboard.press("Enter")
    page.wait_for_selector(TURNS)
    assert page.evaluate("document.activeElement.id") == "play-draft" and page.input_value(BOX) == ""
    page.keyboard.type("a")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("b")
    assert page.input_value(BOX) == "a\nb", "a line, not a turn"
    for most, turn in ((1, "Game over after 1 turn"), (2, "Turn 2 of 2"), (3, "Turn 2 of 3")):
        page.fill("[data-role=most]", str(most))
        page.press("[data-role=most]", "Tab")
        assert page.inner_text("[data-role=turn]") == turn
        if most == 2:
            page.fill(BOX, "kept")
    assert page.input_value(BOX) == "kept"


@pytest.mark.slow
def test_a_space_is_added_before_a_word_unless_it_is_removed(open_page, service):
    page = open_game(open_page)
    button = page.locator("[data-role=space]")
    page.fill(BOX, "as")
    assert page.inner_text(TEXT) == OPENING + " as"
    page.fill(BOX, "")
    page.press(BOX, "Backspace")
    page.keyboard.type("as")
    assert page.inner_text(TEXT) == OPENING + "as" and button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.inner_text(TEXT) == OPENING + " as" and button.get_attribute("aria-pressed") == "true"
    button.click()
    draft(page, "as")
    assert service.requests[0]["draft"] == "as" and button.is_disabled(), "the target wrote a space"
    draft(page, "a")
    assert service.requests[1]["draft"] == "a"
    assert button.get_attribute("aria-pressed") == "true", "the next word begins with a space again"


@pytest.mark.slow
def test_after_bad_input_or_a_stop_the_drafts_come_back_and_the_game_continues(open_page, service):
    page = open_game(open_page, players=2)
    for empty in ("", "   "):
        page.fill(BOX, empty)
        page.press(BOX, "Enter")
        assert page.inner_text(ERROR) == "The draft is empty; type the next few words."
    assert service.requests == []
    service.hold_at = 1
    for words in ("as late", "as soon"):
        page.fill(BOX, words)
        page.press(BOX, "Enter")
    page.wait_for_selector(".sd-play[data-state=judging]")
    page.wait_for_selector("#play-stop:enabled", state="attached")
    page.click(".sd-play [data-role=stop]")
    page.wait_for_selector(".sd-play[data-state=drafting]")
    assert page.inner_text(NOTICE).startswith("The stopped turn does not count")
    assert page.inner_text("[data-role=turn]") == "Turn 1 of 6" and page.locator(TURNS).count() == 0
    service.go_on()
    service.fault = "The device ran out of memory; ask for fewer tokens."
    both_again(page)
    page.wait_for_selector(f"{ERROR}:has-text('ran out of memory')")
    service.fault = None
    both_again(page)
    page.wait_for_selector(TURNS)
    assert page.locator(ERROR).is_hidden() and page.inner_text(TEXT) == OPENING + " as soon "
    assert parse_turn(service.requests[-1]).drafts == {"one": " as late", "two": " as soon"}
    page.select_option("[data-role=opening]", "own")
    page.click(".sd-play-own button")
    assert "is empty" in page.inner_text(ERROR)


def both_again(page: Any) -> None:
    """Send the drafts that came back into the box."""
    for player in (1, 2):
        page.wait_for_selector(f'[data-role=who]:has-text("Player {player}\'s")')
        page.press(BOX, "Enter")
