"""The page around a run, in real Chromium, with recorded rounds."""

from typing import Any

import pytest
from helpers.frames import CLOCK_READINGS, restyled
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
from specdemo.ui.controls import EXAMPLES

RECORDINGS = {
    "greedy": ("speculative", "baseline"),
    "rejection": ("speculative", "baseline", "draft"),
    "shared_noise": ("speculative", "baseline", "draft"),
}


def test_tokens_go_from_pending_to_their_verdict(open_page, service):
    page = open_page()
    run_to_end(page)
    press(page, "to-start", "phase-on")
    token = page.wait_for_selector(".sd-token[data-status=pending]")
    border = "token => getComputedStyle(token).borderBottomStyle"
    assert token.evaluate(border) == "dashed"
    press(page, "play")
    page.wait_for_function("token => token.dataset.status !== 'pending'", arg=token)
    first = rounds(service.replayed)[0]["round"]["drafted"][0]
    assert token.get_attribute("data-status") == first["status"]
    assert token.evaluate(border) == "solid"


@pytest.mark.parametrize("recording", RECORDINGS)
def test_final_statuses_are_the_recorded_ones(played, recording):
    page = played(recording)
    expected = []
    for event in rounds(recorded(recording)):
        drafted, own = event["round"]["drafted"], event["round"]["emission"]
        expected += [(token["status"], token["rejected"]) for token in drafted]
        # A token of a round without a draft is no bonus.
        expected += [(own["status"] if drafted else "plain", False)] if own else []
    page.check("[data-role=show-discards]")
    shown = [(status or "plain", rejected) for _, status, rejected, _ in tokens(page)]
    assert sorted(shown) == sorted(expected)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_plain_text_is_the_text_of_each_lane(played, recording):
    page = played(recording)
    for lane in RECORDINGS[recording]:
        assert plain_text(page, lane) == text_of(recorded(recording), lane)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_headline_figures_sentence_and_badge_are_those_of_the_last_event(played, recording):
    page = played(recording)
    totals = recorded(recording)[-1]["totals"]
    assert_figures(page, totals)
    assert page.inner_text("[data-label=speedup]") == ("speedup" if totals["speedup"] >= 1 else "slower")
    end = recorded(recording)[-1]
    assert page.inner_text("[data-role=sentence]") == end["sentence"]
    assert page.text_content("[data-role=badge]") == end["badge"]["text"]
    assert page.get_attribute("[data-role=badge]", "data-kind") == end["badge"]["kind"]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_shown_clocks_and_the_exported_rounds_give_the_shown_speedup(played, recording):
    shown = figures(played(recording))
    count, seconds = {}, {}
    for name in ("speculative", "baseline"):
        own = [event["round"] for event in rounds(recorded(recording), name)]
        seconds[name] = sum(one["draft_s"] + one["verify_s"] + one["other_s"] for one in own)
        count[name] = len(emitted(recorded(recording), name))
    per_token = {name: seconds[name] / count[name] for name in count}
    assert shown["speedup"] == pytest.approx(per_token["baseline"] / per_token["speculative"], rel=1e-9)
    assert shown["seconds"] == pytest.approx(seconds["speculative"], rel=1e-9)
    assert shown["baseline_seconds"] == pytest.approx(seconds["baseline"], rel=1e-9)
    assert shown["tokens_per_s"] == pytest.approx(1 / per_token["speculative"], rel=1e-9)
    assert shown["baseline_tokens_per_s"] == pytest.approx(1 / per_token["baseline"], rel=1e-9)


def test_the_words_of_the_static_copy_are_hidden(open_page):
    page = open_page()
    for tab in ("run", "learn", "proof", "lab"):
        page.click(f"#tab-{tab}-button")
        page.wait_for_selector(f"#tab-{tab}")
        assert page.locator("[data-only=copy]:visible").count() == 0, tab


def test_a_page_at_rest_reads_no_clock(played):
    """The counter of Gradio's loading screen has been stopped."""
    page = played("greedy")
    until(lambda: page.evaluate(CLOCK_READINGS) == 0)


def test_new_tokens_restyle_what_is_around_them_and_not_the_page(played, browser):
    page = played("greedy")
    press(page, "to-start")
    before = len(tokens(page))
    counts = restyled(browser, page, lambda: press(page, *["phase-on"] * 12))
    assert len(tokens(page)) > before + 5
    everything = page.evaluate("document.querySelectorAll('main *').length")
    assert counts and max(counts) < everything / 2, (sorted(counts), everything)


def test_recalibrate_measures_pass_costs_and_shows_them(open_page):
    page = open_page()
    page.click("#more > button")
    page.click("#recalibrate")
    page.wait_for_selector("#more .sd-choice:has-text('A target pass takes')")


def test_figures_follow_the_rounds_that_have_been_played(open_page, service):
    service.replayed = faster(service.replayed, 4)
    page = open_page()
    receive_run(page)
    assert service.served == len(service.replayed) - 2, "all rounds have arrived"
    page.wait_for_function("document.querySelector('[data-figure=passes]').dataset.value >= 2")
    assert figures(page)["passes"] < len(rounds(service.replayed)), "few are played"
    assert page.locator(".sd[data-state=playing]").count() == 1
    assert page.inner_text("[data-role=pace-text]") == "shown at 1/4 of real speed"


@pytest.mark.slow
def test_the_draft_alone_is_shown_if_it_ran_and_its_divergence_is_marked(played):
    lane = played("greedy").locator("[data-lane=draft]")
    assert not lane.is_visible()
    page = played("shared_noise")
    assert lane.is_visible()
    assert page.inner_text("[data-label=diverges]") == "differs from the target at token 1"
    assert page.locator("[data-lane=draft] [data-diverges]").count() == 1
    page = played("rejection")
    assert lane.is_visible()
    assert page.inner_text("[data-label=diverges]") == "another sample, not compared token by token"
    assert page.locator("[data-lane=draft] [data-diverges], [data-lane=draft] [data-diverged]").count() == 0


@pytest.mark.slow
def test_the_first_divergent_token_is_marked_and_later_ones_set_apart(open_page, service):
    def agree_at_first(trace: Any) -> None:
        target = emitted(service.replayed, "baseline")
        for index, round_ in enumerate(trace["lanes"]["draft"]["rounds"][:5]):
            round_["emission"]["id"] = target[index]

    service.replayed = recorded("shared_noise")
    service.replayed = edited(service.replayed, agree_at_first)
    draft_divergence = service.replayed[-1]["totals"]["draft_divergence"]
    assert draft_divergence == 5
    page = open_page()
    run_to_end(page)
    marks = "all => all.map(one => [one.hasAttribute('data-diverges'), one.hasAttribute('data-diverged')])"
    shown = page.eval_on_selector_all("[data-lane=draft] .sd-round", marks)
    assert shown == [[i == draft_divergence, i >= draft_divergence] for i in range(len(shown))]
    assert page.inner_text("[data-label=diverges]") == "differs from the target at token 6"
    assert page.locator("[data-lane=baseline] [data-diverged]").count() == 0


def test_the_prompt_box_grows_with_its_text_up_to_four_lines(open_page):
    page = open_page()
    heights = []
    for text in ("one line", "two\nlines", "a\nlot\nof\nlines\nin\nall"):
        page.fill("#prompt textarea", text)
        page.eval_on_selector("#prompt textarea", "box => box.style.height = '300px'")
        heights.append(page.locator("#prompt textarea").bounding_box()["height"])
    line = heights[1] - heights[0]
    assert heights[0] < 40 and line > 20
    assert heights[2] - heights[0] == pytest.approx(3 * line, abs=1)


def test_a_refusal_and_a_fault_show_one_sentence_and_keep_the_prompt(open_page, service):
    page = open_page()
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
    page.check("#rule input[value=shared-noise]")
    page.wait_for_function("n => n.value === '0.8'", arg=temperature.element_handle())
    page.check("#rule input[value=greedy]")
    page.wait_for_function("n => n.value === '0'", arg=temperature.element_handle())
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


@pytest.mark.slow
def test_drafter_automatic_length_and_the_draft_alone_reach_the_service(open_page, service):
    page = open_page()
    page.click("#more > button")
    page.click("#drafter input")
    page.get_by_role("option", name="lookup, then draft model").click()
    page.check("#auto input")
    page.wait_for_selector("input[type=range][aria-label*='Draft length k']:disabled")
    assert page.inner_text("#summary") == "lookup, then draft model · greedy · 64 tokens"
    page.get_by_label("Run the draft alone").check()
    page.get_by_label("Race the target alone").uncheck()
    page.click("#summary")
    page.wait_for_selector("#rule", state="hidden")
    page.click("#summary")
    page.wait_for_selector("#rule")
    run_to_end(page)
    page.wait_for_selector("#rule", state="hidden")
    wanted = {"drafter": "lookup+model", "k": "auto", "draft_alone": True, "baseline": False}
    assert service.requests[-1].items() >= wanted.items()
    page.uncheck("#auto input")
    page.wait_for_selector("input[type=range][aria-label*='Draft length k']:not(:disabled)")
    run_to_end(page)
    assert service.requests[-1]["k"] == 3


def test_no_request_leaves_the_machine(open_page, url):
    page = open_page()
    strangers: list[str] = []
    page.on("request", lambda request: strangers.append(request.url))
    page.reload()
    page.locator("[data-plot=speedup]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=speedup].js-plotly-plot")
    run_to_end(page)
    assert strangers
    assert [address for address in strangers if not address.startswith((url, "data:", "blob:"))] == []


@pytest.mark.slow
def test_the_help_of_a_run_explains_its_settings_and_its_precision(open_page, service):
    page = open_page()
    opener = page.locator("[data-help=run]")
    assert opener.is_hidden()
    run_to_end(page)
    opener.click()
    assert "k = auto, temperature 0" in page.inner_text(".sd-help")
    line = page.locator(".sd-help-formula")
    assert line.inner_text() == "", "a recording of before says nothing"
    service.replayed = [dict(event) for event in recorded("greedy")]
    hostile = "Weights in <b>bf16</b> \u202e."
    service.replayed[0]["run"] = {**service.replayed[0]["run"], "arithmetic": hostile}
    run_to_end(page)
    opener.click()
    assert line.is_visible() and line.locator("b").count() == 0
    assert line.inner_text().startswith("Weights in <b>bf16</b>") and "\u202e" not in line.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize(("query", "asked"), [("", "auto"), ("k=4", 4), ("temperature=0.8", "auto")])
def test_k_is_auto_unless_a_link_sets_it(open_page, service, query, asked):
    page = open_page(query=query)
    slider = page.locator("input[type=range][aria-label*='Draft length k']")
    page.wait_for_function("box => box.checked === %s" % ("true" if asked == "auto" else "false"),
                           arg=page.query_selector("#auto input"))  # fmt: skip
    run_to_end(page)
    assert service.requests[-1]["k"] == asked and slider.is_disabled() == (asked == "auto")


def test_enter_starts_a_run_and_on_a_phone_the_stage_comes_into_view(open_page, service):
    page = open_page(width=390, height=844)
    page.fill("#prompt textarea", "Once")
    page.press("#prompt textarea", "Shift+Enter")
    page.locator("#prompt textarea").press_sequentially("more")
    page.press("#prompt textarea", "Enter")
    page.wait_for_selector(".sd[data-state=playing]")
    asked = requested(service)
    assert asked["prompt"] == "Once\nmore" and asked["max_new_tokens"] == 64
    page.wait_for_function("() => Math.abs(document.querySelector('.sd').getBoundingClientRect().top) < 40")
