"""A reload keeps the tab, in the address, and the last run, in the browser's storage."""

import pytest
from helpers.pages import MOUNTED
from helpers.replay import beginning
from helpers.visitor import FINISHED, WATCH, figures, run_to_end, stage_state
from helpers.watched_runs import watched_events
from playwright.sync_api import expect

KEPT = ".sd[data-kept]"
ENDED = ".sd[data-state=ended]"


def selected(name: str) -> str:
    return f"#tab-{name}-button[aria-selected=true]"


@pytest.mark.slow
def test_tabs_charts_and_lessons_are_in_the_address_and_back_leads_to_the_one_before(open_page):
    page = open_page()
    page.evaluate("window.same = true")
    for name in ("lab", "proof"):
        page.click(f"#tab-{name}-button")
        assert page.url.endswith(f"#tab={name}")
    page.go_back()
    page.wait_for_selector(selected("lab"))
    page.go_forward()
    page.wait_for_selector(selected("proof"))
    page.go_back()
    page.go_back()
    page.wait_for_selector(selected("run"))
    assert "#" not in page.url and page.evaluate("window.same"), "nothing was loaded again"
    page.click("#tab-play-button")
    page.reload()
    page.wait_for_selector(selected("play"))
    page = open_page(query="trace=paris#tab=run&part=ranks")
    page.wait_for_function("document.activeElement.dataset.plot === 'ranks'")
    expect(page.locator("[data-plot=ranks]")).to_be_in_viewport()
    page = open_page(query="lesson=cost")
    page.wait_for_selector(selected("learn"))
    page.click("#tab-run-button")
    assert "lesson" not in page.url and page.url.endswith("#tab=run"), "leaving it removes it"
    page.go_back()
    page.wait_for_selector(selected("learn"))
    assert "lesson=cost" in page.url


@pytest.mark.slow
def test_a_reload_shows_the_last_run_labelled_as_such(open_page, service):
    service.replayed = beginning("greedy")
    page = open_page()
    assert page.locator(KEPT).count() == 0
    run_to_end(page)
    before = stage_state(page)
    page.reload()
    page.wait_for_selector(KEPT + ENDED)
    assert stage_state(page) == before
    assert page.inner_text(".sd-kept").startswith("Your last run")
    assert page.inner_text("[data-role=sentence]") == service.replayed[-1]["sentence"]
    assert len(service.requests) == 1, "shown, not run again"
    page.click(".sd-kept button")
    page.wait_for_selector(".sd[data-state=idle]")
    assert figures(page)["speedup"] is None
    page.reload()
    page.wait_for_selector(MOUNTED, state="attached")
    assert page.locator(KEPT).count() == 0, "deleted"


@pytest.mark.slow
def test_the_page_that_gradio_loads_again_after_a_lost_connection_keeps_prompt_and_settings(open_page):
    page = open_page()
    page.fill("#prompt textarea", "About my cat & dog")
    page.fill("#k input[type=number]", "7")
    page.keyboard.press("Tab")
    page.evaluate("window.old = true")
    page.context.set_offline(True)
    page.click("#run")
    message = page.wait_for_selector(".toast-body").bounding_box()
    boxes = [page.locator(button).bounding_box() for button in ("#run", "#stop", "[data-role=play]")]
    page.context.set_offline(False)
    for box in boxes:
        assert message["y"] > box["y"] + box["height"] or message["y"] + message["height"] < box["y"]
    page.wait_for_function("!window.old")
    page.wait_for_selector(MOUNTED, state="attached")
    expect(page.locator("#prompt textarea")).to_have_value("About my cat & dog")
    expect(page.locator("#k input[type=number]")).to_have_value("7")
    page.goto(f"{page.url}&prompt=Linked")
    expect(page.locator("#prompt textarea")).to_have_value("Linked")
    expect(page.locator("#k input[type=number]")).to_have_value("4")


@pytest.mark.slow
def test_back_leads_from_a_lesson_to_the_one_before(open_page):
    page = open_page()
    page.click("#tab-learn-button")
    for number in (4, 5):
        page.click(f"[data-role=lesson-dots] .sd-dot:text-is('{number}')")
    for number in (4, 1):
        page.go_back()
        page.wait_for_selector(f"[data-lesson='{number}'][data-current]")
        page.wait_for_selector(selected("learn"))
    page.go_forward()
    page.wait_for_selector("[data-lesson='4'][data-current]")
    page.go_back()
    page.go_back()
    page.wait_for_selector(selected("run"))


@pytest.mark.slow
def test_a_new_run_an_address_and_spoilt_storage_replace_the_last_run(open_page):
    page = open_page()
    plain = page.url
    run_to_end(page)
    page.reload()
    page.wait_for_selector(KEPT)
    run_to_end(page)
    assert page.locator(".sd-kept").count() == 0
    page.goto(f"{page.url.partition('?')[0]}?trace=paris")
    page.wait_for_selector(".sd[data-recording=paris]")
    assert page.locator(KEPT).count() == 0
    page.goto(plain)
    for text in ("{", '{"type":"start"}', '{"type":"round","lane":"x"}'):
        page.evaluate("text => localStorage.setItem('specdemo-last-run', text)", text)
        page.reload()
        page.wait_for_selector(".sd[data-state=idle]")
        page.wait_for_function("localStorage.getItem('specdemo-last-run') === null")
    run_to_end(page)


@pytest.mark.slow
def test_without_storage_the_page_works(open_page):
    page = open_page(pace=None)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } });"
    )
    page.reload()
    page.wait_for_selector(".sd-prediction[data-ready]", state="attached")
    page.click("#run")
    page.locator("#run").evaluate(WATCH)
    page.keyboard.press("Escape")  # skip the card: the page cannot know that an earlier visit skipped it
    page.evaluate(FINISHED)
    run_to_end(page)
    page.reload()
    page.wait_for_selector(MOUNTED, state="attached")
    assert page.locator(KEPT).count() == 0
    page.close()  # no other test can use it


@pytest.mark.slow
def test_a_run_of_a_watched_server_is_not_kept_as_the_last_run(open_page, service):
    service.replayed = watched_events("llama-models.json", "llama-ngram-text-code")
    page = open_page()
    run_to_end(page)
    page.reload()
    page.wait_for_selector(MOUNTED, state="attached")
    assert page.evaluate("localStorage.getItem('specdemo-last-run')") is None
