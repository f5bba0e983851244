"""The page around a run, in real Chromium, with recorded rounds."""

from typing import Any

import pytest
from helpers.replay import edited, faster, recorded, rounds
from helpers.visitor import (
    assert_figures,
    emitted,
    figures,
    plain_text,
    press,
    receive_run,
    run_to_end,
    text_of,
    tokens,
)
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.records.limits import UserError, parse_config
from specdemo.ui.controls import EXAMPLES

RECORDINGS = {
    "greedy": ("speculative", "baseline"),
    "rejection": ("speculative", "baseline", "draft"),
    "shared_noise": ("speculative", "baseline", "draft"),
}
# Counts how often the page reads the clock within a second.
CLOCK_READINGS = """() => new Promise(done => {
    const clock = performance.now;
    let count = 0;
    performance.now = () => { count += 1; return clock.call(performance); };
    setTimeout(() => { performance.now = clock; done(count); }, 1000); })"""
K = "input[type=range][aria-label*='Draft length k']"


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_end_of_a_run_shows_its_tokens_texts_and_figures(played, recording):
    page, events = played(recording), recorded(recording)
    end, totals = events[-1], events[-1]["totals"]
    assert_figures(page, totals)
    assert page.inner_text("[data-label=speedup]") == ("speedup" if totals["speedup"] >= 1 else "slower")
    assert page.inner_text("[data-role=sentence]") == end["sentence"]
    assert page.text_content("[data-role=badge]") == end["badge"]["text"]
    assert page.get_attribute("[data-role=badge]", "data-kind") == end["badge"]["kind"]
    for lane in RECORDINGS[recording]:
        assert plain_text(page, lane) == text_of(events, lane)
    expected = []
    for event in rounds(events):
        drafted, own = event["round"]["drafted"], event["round"]["emission"]
        expected += [(token["status"], token["rejected"]) for token in drafted]
        # A token of a round without a draft is no bonus.
        expected += [(own["status"] if drafted else "plain", False)] if own else []
    page.check("[data-role=show-discards]")
    shown = [(status or "plain", rejected) for _, status, rejected, _ in tokens(page)]
    assert sorted(shown) == sorted(expected)


@pytest.mark.slow
def test_the_words_of_the_static_copy_are_hidden(open_page):
    page = open_page()
    for tab in ("run", "learn", "proof", "lab"):
        page.click(f"#tab-{tab}-button")
        page.wait_for_selector(f"#tab-{tab}")
        assert page.locator("[data-only=copy]:visible").count() == 0, tab


def restyled(browser: Any, page: Any, act: Any) -> list[int]:
    """Return the number of elements of each style update in the browser during ``act()``."""
    session, events, ended = browser.new_browser_cdp_session(), [], []
    session.on("Tracing.dataCollected", lambda more: events.extend(more["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    categories = {"includedCategories": ["devtools.timeline"], "excludedCategories": ["*"]}
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
    act()
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()
    updates = [event["args"] for event in events if event["name"] == "UpdateLayoutTree"]
    return [update["elementCount"] for update in updates if update.get("elementCount")]


@pytest.mark.slow
def test_a_page_at_rest_reads_no_clock_and_new_tokens_restyle_little(played, browser):
    page = played("greedy")
    until(
        lambda: page.evaluate(CLOCK_READINGS) == 0
    )  # the counter of Gradio's loading screen has been stopped
    press(page, "to-start")
    before = len(tokens(page))
    counts = restyled(browser, page, lambda: press(page, *["phase-on"] * 12))
    assert len(tokens(page)) > before + 5
    everything = page.evaluate("document.querySelectorAll('main *').length")
    assert counts and max(counts) < everything / 2, (sorted(counts), everything)


def test_figures_and_tokens_follow_the_clock(open_page, service):
    service.replayed = faster(service.replayed, 4)
    page = open_page()
    receive_run(page)
    assert service.served == len(service.replayed) - 2, "all rounds have arrived"
    page.wait_for_function("document.querySelector('[data-figure=passes]').dataset.value >= 2")
    assert figures(page)["passes"] < len(rounds(service.replayed)), "few are played"
    assert page.get_attribute(".sd", "data-state") == "playing"
    assert page.inner_text("[data-role=pace-text]") == "shown at 1/4 of real speed"
    press(page, "to-start", "phase-on")
    token = page.wait_for_selector(".sd-token[data-status=pending]")
    border = "token => getComputedStyle(token).borderBottomStyle"
    assert token.evaluate(border) == "dashed"
    press(page, "play")
    page.wait_for_function("token => token.dataset.status !== 'pending'", arg=token)
    first = rounds(service.replayed)[0]["round"]["drafted"][0]
    assert token.get_attribute("data-status") == first["status"]
    assert token.evaluate(border) == "solid"


@pytest.mark.slow
def test_the_draft_model_alone_is_shown_if_it_ran(played):
    lane = played("greedy").locator("[data-lane=draft]")
    assert not lane.is_visible()
    page = played("shared_noise")
    assert lane.is_visible()
    assert page.inner_text("[data-label=diverges]") == "differs from the target at token 1"
    assert page.locator("[data-lane=draft] [data-diverges]").count() == 1
    page = played("rejection")
    assert lane.is_visible()
    assert page.inner_text("[data-label=diverges]") == "independent sample, not compared"
    assert page.locator("[data-lane=draft] [data-diverges], [data-lane=draft] [data-diverged]").count() == 0


@pytest.mark.slow
def test_the_first_divergent_token_is_marked_and_later_ones_set_apart(open_page, service):
    def agree_at_first(trace: Any) -> None:
        target = emitted(service.replayed, "baseline")
        for index, round_ in enumerate(trace["lanes"]["draft"]["rounds"][:5]):
            round_["emission"]["id"] = target[index]

    service.replayed = recorded("shared_noise")
    service.replayed = edited(service.replayed, agree_at_first)
    assert service.replayed[-1]["totals"]["draft_divergence"] == 5
    page = open_page()
    run_to_end(page)
    marks = "all => all.map(one => [one.hasAttribute('data-diverges'), one.hasAttribute('data-diverged')])"
    shown = page.eval_on_selector_all("[data-lane=draft] .sd-round", marks)
    assert shown == [[i == 5, i >= 5] for i in range(len(shown))]
    assert page.inner_text("[data-label=diverges]") == "differs from the target at token 6"
    assert page.locator("[data-lane=baseline] [data-diverged]").count() == 0


def test_the_prompt_box_grows_and_an_error_shows_one_sentence_and_keeps_the_prompt(open_page, service):
    page = open_page()
    heights = []
    for text in ("one line", "two\nlines", "a\nlot\nof\nlines\nin\nall"):
        page.fill("#prompt textarea", text)
        page.eval_on_selector("#prompt textarea", "box => box.style.height = '300px'")
        heights.append(page.locator("#prompt textarea").bounding_box()["height"])
    line = heights[1] - heights[0]
    assert heights[0] < 40 and line > 20
    assert heights[2] - heights[0] == pytest.approx(3 * line, abs=1), "four lines at most"
    page.fill("#prompt textarea", "   ")
    page.click("#run")
    page.wait_for_selector(".sd[data-state=error]")
    with pytest.raises(UserError) as refused:
        parse_config({"prompt": "   "})
    assert page.inner_text("[data-role=error]") == str(refused.value)
    service.fault = "The device ran out of memory; ask for fewer tokens or a shorter prompt."
    page.fill("#prompt textarea", "keep me")
    page.wait_for_selector("#run:enabled")
    page.click("#run")
    expect(page.locator("[role=alert][data-role=error]")).to_have_text(service.fault)
    assert page.input_value("#prompt textarea") == "keep me"
    assert page.locator(".toast-body").count() == 0, "one sentence, not two"
    page.wait_for_selector("#run:enabled")


@pytest.mark.slow
def test_rule_and_temperature_never_contradict_each_other(open_page):
    page = open_page()
    page.click("#more > button")
    temperature = page.locator("input[type=number][aria-label*=Temperature]")
    for rule, value in (("shared-noise", "0.8"), ("greedy", "0")):
        page.check(f"#rule input[value={rule}]")
        expect(temperature).to_have_value(value)
    temperature.fill("1.2")
    temperature.blur()
    page.wait_for_selector("#rule input[value=rejection]:checked")


@pytest.mark.slow
def test_an_example_sets_prompt_and_mode(open_page, service):
    page = open_page()
    for example in EXAMPLES[-1:] + EXAMPLES[:1]:
        page.click(f"#examples button:text-is('{example.label}')")
        page.wait_for_selector(f"#mode input[value={example.mode}]:checked")
        assert page.input_value("#prompt textarea") == example.prompt
    run_to_end(page)
    assert service.requests[-1]["prompt"] == EXAMPLES[0].prompt
    assert service.requests[-1]["mode"] == EXAMPLES[0].mode


def test_settings_reach_the_service_and_costs_are_measured_again(open_page, service):
    page = open_page()
    field = page.locator("#k input[type=number]")
    auto = "node => getComputedStyle(node.parentElement, '::after').content"
    expect(field).to_be_disabled()
    assert field.evaluate(auto) == '"auto"', "no number"
    page.click("#more > button")
    page.click("#recalibrate")
    page.wait_for_selector("#more .sd-choice:has-text('A target pass takes')")
    page.click("#drafter input")
    page.get_by_role("option", name="lookup, then draft model").click()
    expect(page.locator("#summary")).to_have_text("lookup, then draft model · greedy · 64 tokens")
    page.get_by_label("Also run the draft model alone").check()
    page.get_by_label("Also run the target alone").uncheck()
    page.click("#summary")
    page.wait_for_selector("#rule", state="hidden")
    page.click("#summary")
    page.wait_for_selector("#rule")
    run_to_end(page)
    page.wait_for_selector("#rule", state="hidden")
    wanted = {"drafter": "lookup+model", "k": "auto", "draft_alone": True, "baseline": False}
    assert service.requests[-1].items() >= wanted.items()
    page.uncheck("#auto input")
    expect(field).to_be_enabled()
    assert field.evaluate(auto) == "none"
    run_to_end(page)
    assert service.requests[-1]["k"] == 3


@pytest.mark.slow
def test_the_help_of_a_run_explains_its_settings_and_its_precision(open_page, service):
    page = open_page()
    opener = page.locator("[data-help=run]")
    assert opener.is_hidden()
    run_to_end(page)
    opener.click()
    assert "k = auto, temperature 0" in page.inner_text(".sd-help")
    line = page.locator(".sd-help-formula")
    assert line.inner_text() == "", "an old recording does not contain its precision"
    service.replayed = [dict(event) for event in recorded("greedy")]
    hostile = "Weights in <b>bf16</b> \u202e."
    service.replayed[0]["run"] = {**service.replayed[0]["run"], "arithmetic": hostile}
    run_to_end(page)
    opener.click()
    assert line.is_visible() and line.locator("b").count() == 0
    assert line.inner_text().startswith("Weights in <b>bf16</b>") and "\u202e" not in line.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize(("query", "asked"), [("k=4", 4), ("temperature=0.8", "auto")])
def test_k_is_auto_unless_a_link_sets_it(open_page, service, query, asked):
    page = open_page(query=query)
    expect(page.locator("#auto input")).to_be_checked(checked=asked == "auto")
    run_to_end(page)
    assert service.requests[-1]["k"] == asked and page.locator(K).is_disabled() == (asked == "auto")
