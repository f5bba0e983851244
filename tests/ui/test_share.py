"""Sharing runs: addresses, trace files and links. A journey has pictures, frames and offline pages."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers.replay import recorded
from helpers.visitor import press, run_to_end
from playwright.sync_api import expect

from specdemo.records.limits import UserError
from specdemo.ui.controls import settings_from

pytestmark = pytest.mark.slow

SETTINGS = (
    "prompt=Once%20upon%20%3Ca%3E%20time&k=5&temperature=0.8&seed=7&max_new_tokens=33"
    "&drafter=lookup%2Bmodel&draft_alone=true"
)
WANTED = {
    "k": 5,
    "temperature": 0.8,
    "seed": 7,
    "max_new_tokens": 33,
    "rule": "rejection",
    "mode": "chat",
} | {"prompt": "Once upon <a> time", "drafter": "combined", "draft_alone": True}
ERROR = "[data-role=error]"
ENDED = ".sd[data-state=ended]"


def wait_for_settings(page: Any) -> None:
    page.wait_for_function(
        "text => document.querySelector('#prompt textarea').value === text", arg=WANTED["prompt"]
    )


def test_an_address_out_of_bounds_or_of_no_recording_gets_one_sentence(open_page, service):
    with pytest.raises(UserError) as refused:
        settings_from({"k": "99"}, "x")
    for query in ("k=99", "trace=%3Cscript%3Ealert(1)%3C/script%3E", "trace=../../etc/passwd"):
        page = open_page(query=query)
        page.wait_for_selector(".sd[data-state=error]")
        reported = page.inner_text(ERROR)
        assert (reported == str(refused.value)) == (query == "k=99")
        assert reported.endswith(".") and "\n" not in reported and "root:" not in page.content()
        assert page.locator(".sd script").count() == 0
        run_to_end(page)
        assert service.requests[-1]["k"] == 4
        assert page.locator(ERROR).is_hidden()


def test_a_copied_link_sets_the_same_settings(open_page, service, url):
    page = open_page(query=SETTINGS)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    wait_for_settings(page)
    service.replayed = recorded("rejection")
    run_to_end(page)
    link = copied_link(page)
    again = open_page(query=urlsplit(link).query)
    wait_for_settings(again)
    run_to_end(again)
    first, second = service.requests
    assert first == second
    assert service.requests[-1].items() >= WANTED.items()


def copied_link(page: Any) -> str:
    page.click("[data-role=save-menu] summary")
    press(page, "copy-link")
    expect(page.locator("[data-role=told]")).to_contain_text("without this run")
    return page.evaluate("navigator.clipboard.readText()")


def test_the_citations_are_copied_or_selected(open_page, url):
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page.click(".sd-cite summary")
    press(page, "copy-bibtex")
    expect(page.locator("[data-role=copied]")).to_have_text("Copied.")
    entries = page.evaluate("navigator.clipboard.readText()")
    assert "@software{specdemo," in entries and "@inproceedings{leviathan2023fast," in entries
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    press(page, "copy-bibtex")
    expect(page.locator("[data-role=copied]")).to_contain_text("selected")
    assert page.evaluate("getSelection().toString().trim()") == entries.strip()
    expect(page.locator("[data-role=source-code]")).to_be_hidden()
