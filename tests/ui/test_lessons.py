"""The lessons: each shows its topic on the stage, with a recording and live."""

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
import torch
from helpers.accessible import assert_accessible
from helpers.pages import Pages, Visitors
from helpers.visitor import figures, press, requested, tokens
from playwright.sync_api import expect

from specdemo.lab.conditions import CONTRASTS
from specdemo.models.runtime import ModelRuntime
from specdemo.records import recordings, trace_file
from specdemo.records.limits import parse_config
from specdemo.records.trace import BASELINE, DRAFT
from specdemo.ui.component import STATIC
from specdemo.ui.controls import DEFAULTS, settings_from

SHIPPED = recordings.FOLDER
"""The built-in recordings; other tests replace the folder."""
LESSONS = 6
APPENDIX = 7
REACH = """() => Math.max(...[...document.querySelectorAll('.sd-learn *')]
    .filter(part => part.checkVisibility()).map(part => part.getBoundingClientRect().right))"""
BUSY = "[data-role=end-run]:not([hidden])"
STAGE = ".sd"
MEANWHILE = f"{STAGE}[data-state=waiting][data-recording=arrival][data-running]"
"""A recording plays while the visitor's run waits in the queue."""
DIVERGENCE_IN_SIGHT = """() => [...document.querySelectorAll(".sd-text")].map(box => {
    const token = box.querySelector("[data-diverges] .sd-token");
    if (!token) return null;
    const { top, height } = token.getBoundingClientRect();
    const middle = top + height / 2 - box.getBoundingClientRect().top;
    return middle > 0 && middle < box.clientHeight; })"""


@pytest.fixture
def lesson(visitors: Visitors, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Yield ``lesson(number)``, which opens a page at this lesson, with the built-in recordings."""
    monkeypatch.setattr(recordings, "FOLDER", SHIPPED)
    pages = Pages(visitors, url)

    def opened(number: int, **how: Any) -> Any:
        page = pages.open(query=f"lesson={number}", **how)
        page.wait_for_selector(f"[data-lesson='{number}'][data-current]")
        return page

    yield opened
    pages.close()


def show(page: Any, number: int, nth: int = 0) -> None:
    """Press the nth button of a lesson that shows a recording, and wait for it."""
    page.evaluate("document.querySelector('.sd').removeAttribute('data-recording')")
    button = page.locator(f"[data-lesson='{number}'] [data-show]").nth(nth)
    asked = json.loads(button.get_attribute("data-show"))
    button.click()
    page.wait_for_selector(f".sd[data-recording={asked['recording']}]")
    if "round" in asked:
        page.wait_for_selector("[data-role=microscope]:visible")


def shown_figures(page: Any) -> list[str]:
    return [node.get_attribute("data-figure") for node in page.locator(".sd-figure:visible > b").all()]


@pytest.mark.slow
def test_all_lessons_can_be_walked_through_and_show_the_figures_of_their_topics(lesson):
    page = lesson(1)
    assert page.locator("[data-seen]").count() == 0
    titles = []
    for number in range(1, LESSONS + 1):
        titles.append(page.inner_text("[data-lesson][data-current] h2"))
        assert page.locator("[data-lesson]:visible").count() == 1
        assert page.get_attribute(".sd-dot[aria-current]", "aria-label").startswith(f"Lesson {number}:")
        topic = json.loads(page.get_attribute(f"[data-lesson='{number}']", "data-topic"))
        for nth in reversed(range(page.locator(f"[data-lesson='{number}'] [data-show]").count())):
            show(page, number, nth)
        assert set(shown_figures(page)) == set(topic["figures"]), number
        charts = page.locator(".sd-live .sd-chart:visible")
        # On a page as low as this one, lessons do not show the race.
        assert charts.count() == {"none": 0, "rounds": 1, None: 1}[topic.get("charts")], number
        if number == 5:
            page.set_viewport_size({"width": 1280, "height": 1080})
            expect(charts).to_have_count(2)
            page.set_viewport_size({"width": 1280, "height": 720})
        if number < LESSONS:
            page.click("[data-go=next]")
            assert f"lesson={number + 1}" in page.url
    assert len(set(titles)) == LESSONS
    others = ("summary", "quiz", str(APPENDIX))
    for name in others:
        page.click("[data-go=next]")
        assert f"lesson={name}" in page.url
    assert page.locator("[data-go=next]").is_disabled()
    for _ in range(LESSONS + len(others) - 1):
        page.click("[data-go=back]")
    assert page.inner_text("[data-lesson][data-current] h2") == titles[0]
    assert page.locator("[data-go=back]").is_disabled()
    page.select_option("[data-role=recordings]", "email")
    page.wait_for_selector(".sd[data-recording=email]")
    assert len(shown_figures(page)) == 5, "other runs show all"
    page.reload()
    page.wait_for_selector("[data-lesson='1'][data-current]")
    assert page.locator("[data-seen]").count() == LESSONS + len(others)


@pytest.mark.slow
def test_the_recordings_show_what_their_lessons_explain(lesson):
    page = lesson(2)

    def show_to_end(number: int, nth: int) -> dict[str, Any]:
        show(page, number, nth)
        press(page, "to-end")
        page.wait_for_selector(".sd[data-state=ended]")
        return figures(page)

    # 2. The same five tokens in one pass
    show(page, 2)
    assert not page.locator("[data-lane=baseline]").is_visible()
    press(page, "round-on")
    statuses = ["rejected" if rejected else status for _, status, rejected, _ in tokens(page)]
    assert statuses == ["accepted"] * 4 + ["bonus"]
    assert figures(page)["passes"] == 1
    show(page, 2, 1)
    assert page.inner_text("[data-role=microscope-title]").startswith("Round 1: 4 of 4 accepted")
    press(page, "microscope-close")
    assert page.locator("[data-lane=baseline]").is_visible(), "a button that does not hide a lane shows both"
    assert show_to_end(2, 2)["passes"] == 2
    written = "".join(text for text, *_ in tokens(page))
    assert written.startswith(" Paris.") and written.endswith("The answer"), "as the lesson says"

    # 3. Accepted, rejected and discarded tokens, and a near miss with only the chart of its rank
    page.click("[data-go=next]")
    show(page, 3)
    cards = page.inner_text("[data-role=microscope-cards]")
    words = ["moved", "to", "Friday", "afternoon", "Thursday"]
    found = re.findall(rf"({'|'.join(words)})\s+(accepted|rejected|discarded|corrected)", cards)
    fates = ["accepted", "accepted", "rejected", "discarded", "corrected"]
    assert found == list(zip(words, fates, strict=True))
    show(page, 3, 2)
    assert "2nd in the draft's list (19%)" in page.inner_text("[data-role=microscope-cards]")
    charts = page.locator("[data-plot]:visible")
    assert [chart.get_attribute("data-plot") for chart in charts.all()] == ["ranks"]
    charts.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('[data-plot=ranks]').data?.[0].y.length === 6")
    assert page.evaluate("document.querySelector('[data-plot=ranks]').data[0].y") == [0, 3, 0, 1, 0, 5]

    # 4. Random number and residual distribution, and a sampled text that is identical
    page.click("[data-go=next]")
    show(page, 4, 1)
    cards = page.inner_text("[data-role=microscope-cards]")
    assert "random number" in cards and "residual" in cards
    assert show_to_end(4, 2)["identical"] is True

    # 5. Two prompts with one draft length, and one prompt with two draft lengths
    page.click("[data-go=next]")
    email, sky, longer, poem = (show_to_end(5, nth) for nth in range(4))
    assert email["alpha_compared"] > max(sky["alpha_compared"], poem["alpha_compared"])
    assert email["speedup"] > max(sky["speedup"], poem["speedup"]) and longer["speedup"] < 1
    assert abs(longer["alpha_compared"] - sky["alpha_compared"]) < 0.02

    # 6. The divergence of the draft alone, in sight after a press
    page.click("[data-go=next]")
    shown = show_to_end(6, 0)
    assert page.inner_text("[data-label=diverges]").startswith("differs from the target at token")
    assert shown["draft_alone_tokens_per_s"] > 3 * shown["baseline_tokens_per_s"]
    show(page, 6, 1)
    page.wait_for_selector(".sd-dot[data-done][aria-label^='Lesson 6']")
    assert page.evaluate(DIVERGENCE_IN_SIGHT) == [None, None, True]

    # 7. The acceptance rates of the run in the table
    page.get_by_label("Appendix:").click()
    shown = show_to_end(7, 0)
    assert page.inner_text("[data-rate=compared]") == f"{shown['alpha_compared']:.0%}"
    assert page.inner_text("[data-rate-source]") == "a recorded run (AMD EPYC, 2 threads)"


@pytest.mark.slow
def test_the_first_shows_nothing_but_the_target_and_its_passes(lesson):
    page = lesson(1, pace=1)
    show(page, 1)
    for part in (".sd-figure", ".sd-live", ".sd-rounds", ".sd-legend", ".sd-plots", "[data-role=hint]"):
        expect(page.locator(f"{part}:visible")).to_have_count(0)
    assert not page.locator("[data-lane=speculative]").is_visible()
    assert page.inner_text("[data-role=pace-text]") == "shown at 10 tokens/s"
    press(page, "to-end")
    page.wait_for_selector(".sd[data-state=ended]")
    written = "".join(text for text, *_ in tokens(page, "baseline"))
    assert written.replace("↵", "").startswith("```python\ndef fib")
    alone = figures(page)["passes"] + figures(page)["passes_saved"]
    sentence = page.inner_text("[data-role=sentence]")
    assert sentence == f"The target alone wrote {alone} tokens in {alone} passes."
    assert page.locator(".sd-dot[data-done]").count() == 0, "watching is no answer"


@pytest.mark.slow
def test_a_lesson_is_ticked_by_one_of_its_answers_only_and_stays_ticked(lesson):
    page = lesson(1)
    for done, number in enumerate((1, 3, 4, 5, APPENDIX)):
        page.click(f".sd-dot:text-is('{'Appendix' if number == APPENDIX else number}')")
        answers = page.locator(f"[data-lesson='{number}'] .sd-answer button")
        status = page.locator(f"[data-lesson='{number}'] .sd-answer [role=status]")
        wrong = page.locator(f"[data-lesson='{number}'] .sd-answer button:not([data-right])")
        assert wrong.count() == answers.count() - 1
        for answer in wrong.all():
            answer.click()
            expect(status).to_have_text("✗ No. Look again.")
            assert page.locator(".sd-dot[data-done]").count() == done
        page.click(f"[data-lesson='{number}'] .sd-answer button[data-right]")
        expect(status).to_have_text("✓ Right.")
    page.reload()
    page.wait_for_selector("[data-lesson='7'][data-current][data-done]")
    assert page.locator(".sd-dot[data-done]").count() == 5


def test_a_live_run_has_the_lessons_settings_and_no_other_and_asks_for_no_prediction(open_page, service):
    page = open_page(query="lesson=4&k=9&drafter=prompt-lookup", predicts=True)
    button = page.locator("[data-lesson='4'] [data-run]")
    asked = settings_from(dict(parse_qsl(button.get_attribute("data-run"))), DEFAULTS.prompt)
    button.click()
    page.wait_for_selector(".sd[data-state=playing]")
    config = parse_config(requested(service))
    assert {key: getattr(config, key) for key in asked} == asked
    assert (config.k, config.drafter) == (DEFAULTS.k, DEFAULTS.drafter), "what the address had set is gone"
    expect(page.locator("#prompt textarea")).to_have_value(DEFAULTS.prompt)
    expect(page.locator("#k input[type=number]")).to_have_value("9")


@pytest.mark.slow
def test_a_live_run_ends_by_a_press_in_the_lesson_or_for_a_recording(open_page, service):
    service.gap_s, service.hold_at = 0.1, 6
    page = open_page(query="lesson=1", pace=1)
    page.click("[data-lesson='1'] [data-run]")
    page.wait_for_selector(BUSY)
    assert page.locator("[data-run]:visible").count() == 0, "one run at a time"
    page.wait_for_selector(".sd[data-state=playing]")
    page.click(BUSY)
    page.wait_for_selector(".sd[data-state=ended]")
    assert service.served < len(service.replayed) - 10
    page.wait_for_selector("[data-lesson='1'] [data-run]:visible")
    page.click("#tab-run-button")
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing] .sd-token:visible")
    page.select_option("[data-role=recordings]", "paris")
    page.wait_for_selector("[data-lane=draft]")
    page.wait_for_selector("#run:enabled")
    assert page.locator("[data-lane=draft]").is_visible(), "the run that was ended does not come back"
    assert service.served < len(service.replayed) - 10
    service.go_on()
    page.click("#run")
    page.wait_for_selector("[data-lane=draft]", state="hidden")


@pytest.mark.slow
def test_after_a_lesson_the_visitor_s_run_still_waits_at_its_pace_and_the_recording_plays_again(
    lesson, service
):
    service.ahead = 1
    page = lesson(1, pace=0.05)
    notice, pace = page.locator("[data-role=progress-text]"), page.locator("[data-role=pace-text]")
    page.wait_for_selector("option[value=arrival]", state="attached")
    page.click("#tab-run-button")
    page.wait_for_selector(f"{STAGE}[data-recording]")
    page.click("#run")
    page.wait_for_selector(MEANWHILE)
    page.click("#tab-learn-button")
    expect(pace).to_have_text("shown at 10 tokens/s")
    expect(notice).to_be_hidden()
    page.click("#tab-run-button")
    page.wait_for_selector(MEANWHILE)
    expect(notice).to_have_text("In the queue. Meanwhile, a recorded run plays.")
    expect(pace).to_have_text("shown at 1/20 of real speed")
    press(page, "to-end")
    page.wait_for_function("document.querySelector('[data-role=clock]').textContent.startsWith('round 0 of')")
    page.wait_for_selector(MEANWHILE)
    service.go_on()
    page.wait_for_selector(f"{STAGE}[data-state=playing]:not([data-recording])")
    expect(pace).to_have_text("shown at 1/20 of real speed")


@pytest.mark.slow
def test_lessons_are_accessible_fit_a_phone_and_print_in_order(lesson):
    page = lesson(5)
    assert_accessible(page, ".sd-learn", "#tabs")
    page.set_viewport_size({"width": 390, "height": 844})
    for number, dot in enumerate(page.locator(".sd-learn-bar .sd-dot").all()):
        dot.click()
        page.wait_for_selector(f"article:nth-of-type({number + 1})[data-current]")
        assert page.evaluate(REACH) <= 390, number
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, number
    page.emulate_media(media="print")
    assert page.locator("[data-lesson]:visible").count() == LESSONS + 2
    assert not page.locator("#stage").is_visible()
    assert page.locator(".sd-learn button:visible").count() == 0


@pytest.mark.slow
def test_a_lesson_leads_to_a_recorded_proof_or_the_lab_and_back(lesson):
    page = lesson(6)
    page.focus("[data-lesson='6'] [data-proof=other-libraries]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".sd-proof[data-state=ended]:visible")
    assert "proof=other-libraries" in page.url and "lesson=" not in page.url
    assert page.is_checked(".sd-proof-choice input[value=other-libraries]"), "its own test is one press away"
    page.go_back()
    page.wait_for_selector("[data-lesson='6']:visible")
    page.get_by_label("Lesson 5:").click()
    show(page, 5)
    page.click("text=Change the costs")
    page.wait_for_selector("[data-role=what-if-controls]:enabled")
    expect(page.locator("[data-role=what-if-speedup]")).to_have_text("1.36×")
    assert page.url.endswith("#tab=lab&part=what-if")
    page.go_back()
    page.wait_for_selector("[data-lesson='5'][data-current]")


def test_the_table_of_acceptance_rates_is_that_of_the_readme():
    html = (STATIC / "learn" / "lessons.html").read_text(encoding="utf-8")
    body = re.sub("</?code>", "`", html.split("<tbody>")[1].split("</tbody>")[0])
    table = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body.split("</tr>")[:-1]]
    readme = (STATIC.parents[1] / "watch" / "README.md").read_text(encoding="utf-8")
    lines = readme.split("| figure | formula | names |")[1].split("\n\n")[0].splitlines()[2:]
    expected = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [[figure, *rest] for figure, _, *rest in table] == expected
    assert len(expected) == 6


def test_every_button_asks_for_something_there_is(monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", SHIPPED)
    html = (STATIC / "learn" / "lessons.html").read_text(encoding="utf-8")
    proof = (STATIC / "proof" / "proof.html").read_text(encoding="utf-8")
    shows = [json.loads(show) for show in re.findall("data-(?:show|opens)='(.*?)'", html)]
    assert {show["recording"] for show in shows} <= set(recordings.names())
    proofs = re.findall('data-proof="(.*?)"', html) + re.findall('data-recorded="(.*?)"', proof)
    assert set(proofs) == {path.stem for path in (STATIC / "proof" / "recorded").iterdir()}
    runs = re.findall('data-run="(.*?)"', html)
    assert len(runs) >= 4
    for run in runs:
        settings_from(dict(parse_qsl(unescape(run), strict_parsing=True)), DEFAULTS.prompt)


def test_the_figures_in_lesson_6_are_those_of_its_recording_and_of_the_built_in_target(builtin_pair):
    html = (STATIC / "learn" / "lessons.html").read_text(encoding="utf-8")
    found = dict(re.findall(r'data-recorded-figure="(\w+)">([^<]*)<', html))
    run = trace_file.load((SHIPPED / "draft-alone.json").read_text(encoding="utf-8"))
    totals = run.totals
    assert found["seconds"] == f"{totals['seconds']:.2f} s"
    assert found["baseline_seconds"] == f"{totals['baseline_seconds']:.2f} s"
    for name in ("draft_alone_tokens_per_s", "baseline_tokens_per_s"):
        assert found[name] == f"{totals[name]:.0f}"
    assert found["draft_divergence"] == str(totals["draft_divergence"] + 1)
    for name, lane in (("perplexity", BASELINE), ("draft_perplexity", DRAFT)):
        written = [token for round_ in run.lanes[lane].rounds for token in round_.emitted]
        runtime = ModelRuntime(builtin_pair.target)
        runtime.begin(256)
        logits = runtime.forward(torch.tensor([*run.prompt_ids, *written]))
        predicted = logits[len(run.prompt_ids) - 1 : -1].float().log_softmax(-1)
        loss = -predicted.gather(1, torch.tensor(written)[:, None]).mean()
        assert found[name] == f"{loss.exp():.1f}"


def test_the_rates_in_the_appendix_are_those_of_the_recorded_tests():
    html = (STATIC / "learn" / "lessons.html").read_text(encoding="utf-8")
    rates = []
    for name in ("typical", "true-rule"):
        events = (STATIC / "proof" / "recorded" / f"{name}.ndjson").read_text(encoding="utf-8").splitlines()
        rates.append(f"{json.loads(events[-1])['alpha']:.0%}")
    assert f"the rate is {' instead of '.join(rates)}," in html


def test_no_lesson_quotes_the_prompt_of_a_recording_that_is_not_on_the_stage():
    html = (STATIC / "learn" / "lessons.html").read_text(encoding="utf-8")
    for lesson in re.findall(r"<article data-lesson=.*?</article>", html, re.DOTALL):
        opened = {json.loads(show)["recording"] for show in re.findall("data-opens='(.*?)'", lesson)}
        shown = {json.loads(show)["recording"] for show in re.findall("data-show='(.*?)'", lesson)}
        text = unescape(re.sub("<.*?>", "", lesson))
        for name in shown - opened:
            run = trace_file.load((SHIPPED / f"{name}.json").read_text(encoding="utf-8"))
            assert run.config.prompt not in text, name


def test_every_condition_of_the_summary_is_one_of_the_lab():
    html = (STATIC / "learn" / "lessons.html").read_text(encoding="utf-8")
    summary = html[html.index('data-lesson="summary"') :]
    links = re.findall(r"#tab=lab&amp;part=([\w-]+)\">(.*?)</a>", summary)
    assert links == [(contrast.name, contrast.title) for contrast in CONTRASTS]
