"""The page around a run, in real Chromium, with recorded rounds."""

import re
from typing import Any

import pytest
from helpers.http_visitor import PLAIN
from helpers.replay import edited, faster, recorded, rounds
from helpers.visitor import (
    assert_figures,
    emitted,
    figures,
    plain_text,
    press,
    receive_run,
    requested,
    run_to_end,
    text_of,
    tokens,
)
from helpers.waiting import until
from playwright.sync_api import expect

from specdemo.records.limits import UserError, parse_config
from specdemo.ui.component import STATIC
from specdemo.ui.controls import EXAMPLES
from specdemo.ui.http.gradio_internals import stopped_counters

# The lanes of each run, the label of its divergence, and the number of marks in the draft model's lane.
TWO = ("speculative", "baseline")
RECORDINGS = {
    "greedy": (TWO, "", 0),
    "rejection": ((*TWO, "draft"), "independent sample, not compared", 0),
    "shared_noise": ((*TWO, "draft"), "differs from the target at token 1", 1),
}
# Counts how often the page reads the clock within a second.
CLOCK_READINGS = """() => new Promise(done => {
    const clock = performance.now;
    let count = 0;
    performance.now = () => { count += 1; return clock.call(performance); };
    setTimeout(() => { performance.now = clock; done(count); }, 1000); })"""


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_end_of_a_run_shows_its_tokens_texts_and_figures(played, recording):
    page, events = played(recording), recorded(recording)
    end, totals = events[-1], events[-1]["totals"]
    assert_figures(page, totals)
    assert end["spread"]["disturbed"] and page.inner_text("[data-label=speedup]") == "speedup, disturbed"
    assert page.inner_text("[data-role=sentence]") == end["sentence"]
    assert page.text_content("[data-role=badge]") == end["badge"]["text"]
    assert page.get_attribute("[data-role=badge]", "data-kind") == end["badge"]["kind"]
    lanes, diverges, marked = RECORDINGS[recording]
    for lane in lanes:
        assert plain_text(page, lane) == text_of(events, lane)
    alone = page.locator("[data-lane=draft]")
    assert alone.is_visible() == ("draft" in lanes)
    assert page.inner_text("[data-label=diverges]") == diverges
    assert alone.locator("[data-diverges]").count() == marked
    expected = []
    for event in rounds(events):
        drafted, own = event["round"]["drafted"], event["round"]["emission"]
        expected += [(token["status"], token["rejected"]) for token in drafted]
        # A token of a round without a draft is no bonus.
        expected += [(own["status"] if drafted else "plain", False)] if own else []
    page.check("[data-role=show-discards]")
    shown = [(status or "plain", rejected) for _, status, rejected, _ in tokens(page)]
    assert sorted(shown) == sorted(expected)


def test_the_script_without_counters_is_served_to_every_visitor(url):
    name, text = stopped_counters()
    for encoding in ("identity", "gzip", "br", "identity"):
        reply = PLAIN.get(f"{url}assets/{name}", headers={"accept-encoding": encoding})
        assert reply.status_code == 200 and reply.text == text


@pytest.mark.slow
def test_a_page_at_rest_reads_no_clock_and_new_tokens_restyle_little(played, browser):
    page = played("greedy")
    # Until the counter of Gradio's loading screen has stopped.
    until(lambda: page.evaluate(CLOCK_READINGS) == 0)
    press(page, "to-start")
    before = len(tokens(page))
    session, events, ended = browser.new_browser_cdp_session(), [], []
    session.on("Tracing.dataCollected", lambda more: events.extend(more["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    categories = {"includedCategories": ["devtools.timeline"], "excludedCategories": ["*"]}
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
    press(page, *["phase-on"] * 12)
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()
    assert len(tokens(page)) > before + 5
    updates = [event["args"] for event in events if event["name"] == "UpdateLayoutTree"]
    counts = [update["elementCount"] for update in updates if update.get("elementCount")]
    everything = page.evaluate("document.querySelectorAll('main *').length")
    assert counts and max(counts) < everything / 2, (sorted(counts), everything)


@pytest.mark.slow
def test_figures_and_tokens_follow_the_clock(open_page, service):
    service.replayed = faster(service.replayed, 4)
    page = open_page()
    receive_run(page)
    assert service.served == len(service.replayed) - 2, "all rounds have arrived"
    page.wait_for_function("document.querySelector('[data-figure=passes]').dataset.value >= 2")
    assert figures(page)["passes"] < len(rounds(service.replayed)), "few are played"
    assert page.get_attribute(".sd", "data-state") == "playing"
    assert page.inner_text("[data-role=pace-text]") == "shown at 1/4 of real speed"
    expect(page.locator("[data-role=live][aria-live=polite]")).to_have_text(re.compile("^Round "))
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
def test_the_first_divergent_token_is_marked_and_later_ones_set_apart(open_page, service):
    def agree_at_first(trace: Any) -> None:
        target = emitted(service.replayed, "baseline")
        for index, round_ in enumerate(trace["lanes"]["draft"]["rounds"][:5]):
            round_["emission"]["id"] = target[index]

    service.replayed = recorded("shared_noise")
    service.replayed = edited(service.replayed, agree_at_first)
    page = open_page()
    run_to_end(page)
    marks = "all => all.map(one => [one.hasAttribute('data-diverges'), one.hasAttribute('data-diverged')])"
    shown = page.eval_on_selector_all("[data-lane=draft] .sd-round", marks)
    assert shown == [[i == 5, i >= 5] for i in range(len(shown))]
    assert page.inner_text("[data-label=diverges]") == "differs from the target at token 6"
    assert page.locator("[data-lane=baseline] [data-diverged]").count() == 0


@pytest.mark.slow
def test_the_prompt_box_grows_and_an_error_shows_one_sentence_and_keeps_the_prompt(open_page, service):
    page = open_page()
    prompt, run, heights = page.locator("#prompt textarea"), page.locator("#run"), []
    for text in ("one line", "two\nlines", "a\nlot\nof\nlines\nin\nall"):
        prompt.fill(text)
        prompt.evaluate("box => box.style.height = '300px'")
        heights.append(prompt.bounding_box()["height"])
    line = heights[1] - heights[0]
    assert heights[0] < 40 and line > 20
    assert heights[2] - heights[0] == pytest.approx(3 * line, abs=1), "four lines at most"
    with pytest.raises(UserError) as refused:
        parse_config({"prompt": "   "})
    service.fault = "The device ran out of memory; ask for fewer tokens or a shorter prompt."
    for text, sentence in (("   ", str(refused.value)), ("keep me", service.fault)):
        prompt.fill(text)
        run.click()
        expect(page.locator("[role=alert][data-role=error]")).to_have_text(sentence)
        assert page.locator(".toast-body").count() == 0, "one sentence, not two"
        expect(run).to_be_enabled()
        assert prompt.input_value() == text


@pytest.mark.slow
def test_settings_follow_an_example_a_link_and_one_another(open_page, service):
    page = open_page(query="k=6")
    page.click("#more > button")
    for example in EXAMPLES[-1:] + EXAMPLES[:1]:
        page.click(f"#examples button:text-is('{example.label}')")
        page.wait_for_selector(f"#mode input[value={example.mode}]:checked")
        assert page.input_value("#prompt textarea") == example.prompt
        assert page.evaluate("document.activeElement.id") == "run", "Enter or a press runs it"
    expect(page.locator("#run")).to_have_css("outline-style", "solid")
    expect(page.locator("#auto input")).not_to_be_checked()
    run_to_end(page)
    expect(page.locator("#run")).to_have_css("outline-style", "none")
    example = {"prompt": EXAMPLES[0].prompt, "mode": EXAMPLES[0].mode}
    assert service.requests[-1].items() >= {**example, "k": 6}.items()
    page.click("#more > button")
    temperature = page.locator("input[type=number][aria-label*=Temperature]")
    hint, field = page.locator(".sd-choice p:visible >> nth=0"), page.locator("#drafter .wrap-inner")
    assert abs(hint.bounding_box()["x"] - field.bounding_box()["x"]) < 3, "the text is as wide as its widget"
    assert temperature.bounding_box()["width"] > 75, "0.8 and the arrows"
    for rule, value in (("shared-noise", "0.8"), ("greedy", "0")):
        page.check(f"#rule input[value={rule}]")
        expect(temperature).to_have_value(value)
    temperature.fill("1.2")
    temperature.blur()
    page.wait_for_selector("#rule input[value=rejection]:checked")


def test_settings_reach_the_service_and_costs_are_measured_again(open_page, service):
    page = open_page()
    field = page.locator("#k input[type=number]")
    auto = "node => getComputedStyle(node.parentElement, '::after').content"
    expect(field).to_have_value("4")
    page.check("#auto input")
    expect(field).to_be_disabled()
    assert field.evaluate(auto) == '"auto"', "no number"
    page.click("#more > button")
    page.click("#recalibrate")
    page.wait_for_selector("#more .sd-choice:has-text('A target pass takes')")
    page.click("#drafter input")
    page.get_by_role("option", name="combined").click()
    page.get_by_label("Also run the draft model alone").check()
    page.get_by_label("Also run the target alone").uncheck()
    for state in ("hidden", "visible"):
        page.click("#more > button")
        page.wait_for_selector("#rule", state=state)
    run_to_end(page)
    page.wait_for_selector("#rule", state="hidden")
    wanted = {"drafter": "combined", "k": "auto", "draft_alone": True, "baseline": False}
    assert service.requests[-1].items() >= wanted.items()
    page.uncheck("#auto input")
    expect(field).to_be_enabled()
    assert field.evaluate(auto) == "none"
    run_to_end(page)
    assert service.requests[-1]["k"] == 4
    page.click("#tab-proof-button")
    page.wait_for_selector("#proof [data-only=copy]", state="attached")
    assert page.locator("[data-only=copy]:visible").count() == 0, "words of the static copy"


@pytest.mark.slow
def test_the_help_of_a_run_explains_its_settings_and_its_precision(open_page, service):
    page = open_page()
    opener = page.locator("[data-help=run]")
    assert opener.is_hidden()
    run_to_end(page)
    opener.click()
    assert "k = 4, temperature 0" in page.inner_text(".sd-help")
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
def test_repeat_measures_the_shown_run_several_times_and_the_next_run_once(open_page, service):
    page = open_page(query="k=3")
    run_to_end(page)
    page.fill("#prompt textarea", "Another prompt")
    first = service.requests[-1]
    page.get_by_role("button", name="Repeat", exact=True).click()
    asked = requested(service, 2)
    assert asked["repeats"] == 3
    assert all(asked[name] == first[name] for name in ("prompt", "mode", "k", "rule", "seed", "drafter"))
    page.wait_for_selector("#run:enabled")
    expect(page.locator("#prompt textarea")).to_have_value("Another prompt")
    receive_run(page)
    assert requested(service, 3)["repeats"] == 1


def test_no_form_of_a_template_loads_the_page_again_before_its_script_is_there():
    texts = [path.read_text(encoding="utf-8") for path in STATIC.rglob("*.html")]
    outside = [re.sub("<dialog.*?</dialog>", "", text, flags=re.DOTALL) for text in texts]
    forms = [form for text in outside for form in re.findall("<form[^>]*>", text)]
    assert len(forms) >= 9
    assert [form for form in forms if 'method="dialog"' not in form] == []
