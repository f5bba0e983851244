"""What a visitor sees and does on the page, in real Chromium, with recorded rounds."""

import base64
import time
from typing import Any

import pytest
from replay import Event, recorded

from specdemo.limits import UserError, parse_config
from specdemo.ui.page import EXAMPLES

HOSTILE = ("<img src=x onerror=document.title='pwned'>", "${alert(1)}", "{{x}}")
LANES = ("speculative", "baseline")
KEPT_TEXT = """lane => [...document.querySelectorAll(`[data-lane=${lane}] .sd-token`)]
    .filter(token => getComputedStyle(token).display !== 'none').map(token => token.textContent).join('')"""
LOOKS = """() => [...document.querySelectorAll('.sd-key')].map(key => {
    const style = getComputedStyle(key);
    return { name: key.textContent, colour: style.borderBottomColor + style.backgroundColor,
             cue: style.borderBottomStyle + style.textDecorationLine + style.textDecorationStyle }; })"""


def run_to_end(page: Any) -> None:
    """Press Run and let the whole recording appear."""
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    page.click("[data-role=show-all]")
    page.wait_for_selector(".sd[data-state=ended]")


def rounds(events: list[Event], lane: str = "speculative") -> list[Event]:
    """The round events of one lane."""
    return [event for event in events if event["type"] == "round" and event["lane"] == lane]


def emitted(events: list[Event], lane: str) -> list[int]:
    """Ids a lane of a recording emitted."""
    ids = []
    for event in rounds(events, lane):
        ids += [token["id"] for token in event["round"]["drafted"] if token["status"] == "accepted"]
        ids += [event["round"]["emission"]["id"]] if event["round"]["emission"] else []
    return ids


def text_of(events: list[Event], ids: list[int]) -> str:
    """What those ids spell."""
    pieces = {key: piece for event in events for key, piece in event.get("pieces", {}).items()}
    return b"".join(base64.b64decode(pieces[str(token)]) for token in ids).decode(errors="replace")


def test_tokens_go_from_pending_to_their_verdict(open_page, service):
    page = open_page()
    page.click("#run")
    token = page.wait_for_selector(".sd-token[data-status=pending]")
    drafted = token.evaluate("token => getComputedStyle(token).borderBottomStyle")
    page.wait_for_function("token => token.dataset.status !== 'pending'", arg=token)
    first = rounds(service.events)[0]["round"]["drafted"][0]
    assert token.get_attribute("data-status") == first["status"]
    assert drafted == "dashed"
    assert token.evaluate("token => getComputedStyle(token).borderBottomStyle") != "dashed"
    assert "p = " in token.get_attribute("title") and "q = " in token.get_attribute("title")


def test_final_statuses_are_the_recorded_ones(open_page, service):
    page = open_page()
    run_to_end(page)
    shown = page.evaluate(
        "() => [...document.querySelectorAll('[data-lane=speculative] .sd-token')].map(t => t.dataset.status)"
    )
    expected = [token["status"] for event in rounds(service.events) for token in event["round"]["drafted"]]
    expected += [e["round"]["emission"]["status"] for e in rounds(service.events) if e["round"]["emission"]]
    assert sorted(shown) == sorted(expected)
    rejected = sum(t["rejected"] for event in rounds(service.events) for t in event["round"]["drafted"])
    assert page.locator(".sd-token[data-rejected]").count() == rejected


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_status_has_its_own_colour_and_its_own_cue(open_page, theme):
    page = open_page(theme=theme)
    looks = page.evaluate(LOOKS)
    assert len(looks) == 6
    assert len({look["colour"] for look in looks}) == 6
    assert len({look["cue"] for look in looks}) == 6, looks


@pytest.mark.parametrize("recording", ["greedy", "shared_noise"])
def test_plain_text_is_what_each_lane_emitted(open_page, service, recording):
    service.events = recorded(recording)
    page = open_page()
    run_to_end(page)
    page.check("[data-role=hide-discarded]")
    for lane in LANES:
        assert page.evaluate(KEPT_TEXT, lane) == text_of(service.events, emitted(service.events, lane))


def test_stop_ends_the_run_within_a_round_and_the_next_run_works(open_page, service):
    service.gap_s = 0.25
    page = open_page(pace=1)
    page.click("#run")
    page.wait_for_selector(".sd-token[data-status=accepted], .sd-token[data-status=corrected]")
    served = service.served
    page.click("#stop")
    page.wait_for_selector(".sd[data-state=ended]")
    assert service.served <= served + 2 < len(service.events) - 10
    assert page.inner_text("[data-role=sentence]").startswith("Stopped early.")
    page.wait_for_selector("#run:enabled")
    service.gap_s = 0.0
    run_to_end(page)
    assert page.inner_text("[data-role=sentence]") == service.events[-1]["sentence"]


def test_closing_the_tab_ends_the_run(open_page, service):
    service.gap_s = 0.25
    page = open_page()
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    page.close()
    served = -1
    deadline = time.monotonic() + 15
    while served != service.served and time.monotonic() < deadline:
        served = service.served
        time.sleep(1)
    assert served == service.served < len(service.events) - 10


def test_hostile_text_stays_text(open_page, service):
    first = rounds(service.events)[0]
    tokens = [first["round"]["emission"], *first["round"]["drafted"]]
    for token, text in zip(tokens, HOSTILE, strict=False):
        token["id"] = 10**6 + HOSTILE.index(text)
        first["pieces"][str(token["id"])] = base64.b64encode(text.encode()).decode()
    page = open_page()
    page.fill("#prompt textarea", " ".join(HOSTILE))
    run_to_end(page)
    shown = page.text_content("[data-lane=speculative] .sd-text")
    assert all(shown.count(text) >= 2 for text in HOSTILE[:1])
    assert all(text in shown for text in HOSTILE)
    assert page.locator(".sd img").count() == 0
    assert "pwned" not in page.title()


def test_headline_figures_are_the_totals_of_the_last_event(open_page, service):
    page = open_page()
    run_to_end(page)
    totals = service.events[-1]["totals"]
    shown = page.evaluate(
        "() => [...document.querySelectorAll('[data-figure]')].map(f => [f.dataset.figure, f.dataset.value])"
    )
    assert {"speedup", "tau", "alpha_compared", "passes", "passes_saved", "identical"} <= dict(shown).keys()
    for name, value in shown:
        expected = totals[name]
        if expected is None or isinstance(expected, bool):
            assert value == {None: "null", True: "true", False: "false"}[expected]
        else:
            assert float(value) == pytest.approx(expected, rel=1e-12)
    words = "faster" if totals["speedup"] >= 1 else "slower"
    assert words in page.inner_text("[data-label=speedup]")


def test_figures_follow_the_rounds_that_have_been_played(open_page, service):
    page = open_page()
    page.click("#run")
    page.wait_for_selector("[data-figure=passes][data-value='2']")
    assert service.served == len(service.events) - 2, "all rounds have arrived, only two are played"
    assert page.locator(".sd[data-state=playing]").count() == 1
    assert page.inner_text("[data-role=pace-text]") == "shown at 1/4 of real speed"


def test_closing_sentence_and_badge(open_page, service):
    page = open_page()
    run_to_end(page)
    end = service.events[-1]
    assert page.inner_text("[data-role=sentence]") == end["sentence"]
    assert page.inner_text("[data-role=badge]") == end["badge"]["text"]
    assert page.get_attribute("[data-role=badge]", "data-kind") == end["badge"]["kind"]
    page.click("text=Play again")
    page.wait_for_selector(".sd[data-state=playing] .sd-token[data-status=pending]")


def test_plots_are_drawn_on_charts_that_stay(open_page, service):
    page = open_page()
    page.evaluate(
        "() => document.querySelectorAll('.js-plotly-plot .svg-container').forEach(n => n.kept = 1)"
    )
    run_to_end(page)
    played = rounds(service.events)
    page.wait_for_function(
        "n => document.querySelector('[data-plot=acceptance]').data[0].x.length === n", arg=len(played)
    )
    bars = page.evaluate(
        "() => document.querySelector('[data-plot=acceptance]').data.slice(0, 2).map(trace => trace.y)"
    )
    accepted = [sum(t["status"] == "accepted" for t in event["round"]["drafted"]) for event in played]
    assert bars[0] == accepted
    assert [a + d for a, d in zip(*bars, strict=True)] == [len(event["round"]["drafted"]) for event in played]
    assert page.locator("[data-plot=acceptance] .barlayer .point").count() == 2 * len(played)
    assert page.locator("[data-plot=acceptance] .scatterlayer .point").count() == len(played)
    line = page.evaluate("() => document.querySelector('[data-plot=speedup]').data[0].y")
    assert line[-1] == pytest.approx(played[-1]["totals"]["speedup"])
    (one,) = page.evaluate("() => document.querySelector('[data-plot=speedup]').layout.shapes")
    assert one["y0"] == one["y1"] == 1
    assert page.locator("[data-plot=speedup] .shapelayer path").count() >= 1
    kept = "() => [...document.querySelectorAll('.js-plotly-plot .svg-container')].map(n => n.kept)"
    assert page.evaluate(kept) == [1, 1]


def test_a_fault_shows_one_sentence_and_keeps_the_prompt(open_page, service):
    service.fault = "The device ran out of memory; ask for fewer tokens or a shorter prompt."
    page = open_page()
    page.fill("#prompt textarea", "keep me")
    page.click("#run")
    page.wait_for_selector(".sd[data-state=error]")
    assert page.inner_text("[role=alert][data-role=error]") == service.fault
    assert page.input_value("#prompt textarea") == "keep me"
    assert page.locator(".toast-body").count() == 0, "one sentence, not two"
    page.wait_for_selector("#run:enabled")


def test_a_bad_request_is_refused_in_the_words_of_the_limits(open_page):
    page = open_page()
    page.fill("#prompt textarea", "   ")
    page.click("#run")
    page.wait_for_selector(".sd[data-state=error]")
    with pytest.raises(UserError) as refused:
        parse_config({"prompt": "   "})
    assert page.inner_text("[data-role=error]") == str(refused.value)


def test_rule_and_temperature_never_contradict_each_other(open_page):
    page = open_page()
    temperature = page.locator("input[type=number][aria-label*=Temperature]")
    page.check("#rule input[value=shared-noise]")
    page.wait_for_function("n => n.value === '0.8'", arg=temperature.element_handle())
    page.check("#rule input[value=greedy]")
    page.wait_for_function("n => n.value === '0'", arg=temperature.element_handle())
    temperature.fill("1.2")
    temperature.blur()
    page.wait_for_selector("#rule input[value=rejection]:checked")


def test_an_example_sets_prompt_and_mode(open_page, service):
    page = open_page()
    for example in EXAMPLES[-1:] + EXAMPLES[:1]:
        page.click(f"#examples button:text-is('{example.label}')")
        page.wait_for_selector(f"#mode input[value={example.mode}]:checked")
        assert page.input_value("#prompt textarea") == example.prompt
    run_to_end(page)
    assert service.requests[-1]["prompt"] == EXAMPLES[0].prompt
    assert service.requests[-1]["mode"] == EXAMPLES[0].mode


def test_nothing_overflows_on_a_phone(open_page):
    page = open_page(width=390, height=844)
    run_to_end(page)
    time.sleep(0.4)  # the plots resize after the last round
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    for part in page.locator(".sd-lane, .sd-figures, .sd-plot, #prompt, #settings").all():
        assert part.bounding_box()["width"] > 340, "one column"
    wide = page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter(node => {
            const box = node.getBoundingClientRect();
            return box.width && box.right > 391 && !node.closest('.sr-only, .sd-sr, svg'); })
        .map(node => node.outerHTML.slice(0, 80))"""
    )
    assert wide == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_projector_shows_all_but_the_plots(open_page, theme):
    page = open_page(theme=theme)
    run_to_end(page)
    for part in ("#run", "#settings", "[data-lane=baseline]", ".sd-figures", ".sd-bar"):
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 720, part
    paper = page.evaluate("() => getComputedStyle(document.querySelector('.sd-lane')).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 29, 36)"}[theme]
    plot = page.evaluate("() => document.querySelector('[data-plot=speedup]').layout.paper_bgcolor")
    assert plot == {"light": "#ffffff", "dark": "#161d24"}[theme]


def test_no_request_leaves_the_machine(open_page, url):
    page = open_page()
    strangers: list[str] = []
    page.on("request", lambda request: strangers.append(request.url))
    page.reload()
    page.wait_for_selector("[data-plot=speedup].js-plotly-plot")
    run_to_end(page)
    assert strangers
    assert [address for address in strangers if not address.startswith((url, "data:", "blob:"))] == []


def test_drafter_and_automatic_length_reach_the_service(open_page, service):
    page = open_page()
    page.click("#drafter input")
    page.get_by_role("option", name="copy, else draft model").click()
    page.check("#auto input")
    page.wait_for_selector("input[type=range][aria-label*='Draft length k']:disabled")
    run_to_end(page)
    assert service.requests[-1]["drafter"] == "lookup+model"
    assert service.requests[-1]["k"] == "auto"
    page.uncheck("#auto input")
    page.wait_for_selector("input[type=range][aria-label*='Draft length k']:not(:disabled)")
    run_to_end(page)
    assert service.requests[-1]["k"] == 3


def test_a_copied_token_is_called_copied(open_page, service):
    for event in rounds(service.events):
        event["round"]["drafted_by"] = "prompt-lookup"
    page = open_page()
    run_to_end(page)
    titles = page.eval_on_selector_all("[data-status=accepted]", "all => all.map(one => one.title)")
    assert any("copied, target p = " in title for title in titles)
    assert not any("draft q" in title for title in titles)
