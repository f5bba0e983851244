"""The tab Play in a browser."""

from typing import Any

BOX = "#play-draft"
TURNS = ".sd-play-turns > ol > li"


def open_game(open_page: Any, players: int = 1, turns: int = 6, **options: Any) -> Any:
    page = open_page(**options)
    page.click("#tab-play-button")
    page.wait_for_selector(".sd-play[data-players]")
    if players == 2:
        page.check("[name=sd-players][value='2']", force=True)
    page.fill("[data-role=most]", str(turns))
    page.press("[data-role=most]", "Tab")
    return page


def draft(page: Any, *drafts: str) -> None:
    before = page.locator(TURNS).count()
    for words in drafts:
        page.fill(BOX, words)
        page.press(BOX, "Enter")
    page.wait_for_function(f"document.querySelectorAll('{TURNS}').length === {before + 1}")
