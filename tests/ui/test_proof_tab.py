"""The tab "Is it the same?": three proofs, their results, and actions during them."""

import json
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.replay import Event, proved, recorded
from helpers.visitor import WIDER, press_and_wait, run_to_end

from specdemo.ui.component import STATIC

HOSTILE = "<img src=x onerror=document.title='pwned'><b>${alert(1)}{{x}}</b>"
BARS = """([lane, bars]) => {
    const { data } = document.querySelector('[data-role=chart]');
    return String(data?.find(trace => trace.uid === lane)?.x) === String(bars); }"""
NAMES = """() => [...document.querySelectorAll('[data-role=chart] .yaxislayer-above text')]
    .map(text => text.textContent)"""


@pytest.fixture
def proof_page(open_page: Any) -> Any:
    def opened(**how: Any) -> Any:
        page = open_page(**how)
        page.click("#tab-proof-button")
        page.wait_for_selector("#prove-greedy:visible")
        return page

    return opened


def prove(page: Any, proof: str, state: str = "ended") -> None:
    press_and_wait(page, f"#prove-{proof}")
    page.wait_for_selector(f".sd-proof[data-state={state}]")


def figure(page: Any, name: str) -> Any:
    return json.loads(page.get_attribute(f"[data-figure-of={name}]", "data-value"))


def texts_of(page: Any, part: str) -> list[str]:
    return page.locator(part).all_inner_texts()


def fill(page: Any, field: int, value: str) -> None:
    page.fill(f"#proofs input[type=number] >> nth={field}", value)


def shipped(name: str) -> list[Event]:
    """Return the events of a built-in recording of a proof."""
    text = (STATIC / "proof" / "recorded" / f"{name}.ndjson").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def assert_samples_shown(page: Any, end: Event) -> None:
    [kinds, *others], texts = end["others"], end["texts"]
    for place, lane in enumerate(("speculative", "baseline")):
        bars = [text[1 + place] for text in texts] + [others[place]] * bool(kinds)
        page.wait_for_function(BARS, arg=[lane, bars])
    for name in ("total_variation", "p_value", "alpha", "drawn", "passes_saved"):
        assert figure(page, name) == end[name], name
    assert page.inner_text("[data-role=reading]") == end["reading"]


def test_an_audit_shows_each_prompt_and_a_wrong_rule_is_caught(proof_page, service):
    page = proof_page()
    fill(page, 0, "4")
    prove(page, "greedy")
    prove(page, "greedy")  # clears the first
    assert service.requests[-1].items() >= {"proof": "greedy", "prompts": 4}.items()
    rows = [event["row"] for event in proved("greedy") if event["type"] == "row"]
    assert texts_of(page, "[data-role=rows] th") == [row["prompt"].replace("\n", " ") for row in rows]
    assert texts_of(page, "[data-role=rows] td[data-same=true]") == ["identical"] * len(rows)
    assert page.inner_text("[data-role=rows] tr >> nth=0 >> td:last-child") == f"{rows[0]['speedup']:.2f}×"
    assert page.inner_text("[data-role=words]") == "Identical, token for token."
    assert page.inner_text("[data-role=sentence]") == proved("greedy")[-1]["sentence"]
    assert not page.is_visible("[data-role=samples]")
    page.locator("#proof-rule label").nth(1).click()
    prove(page, "distribution")
    assert not page.is_visible("[data-role=audit]")
    assert service.requests[-1]["rule"] == "accept-everything"
    assert_samples_shown(page, proved("accept_everything")[-1])
    assert page.inner_text("[data-role=words]") == "Caught: not the target's distribution."
    assert page.get_attribute("[data-role=words]", "data-kind") == "different"
    assert page.locator("[data-role=band][data-outside]").count() == 1


@pytest.mark.slow
def test_hostile_text_is_taken_literally_in_the_table_and_the_chart(proof_page, service):
    service.proof = proved("greedy")
    service.proof[2]["row"] |= {"identical": False, "divergence": 6, "gap": 0.0004, "prompt": HOSTILE}
    service.proof[-1] |= {"verdict": "different", "words": "Not identical."}
    page = proof_page()
    prove(page, "greedy")
    words = "differ at token 7; the target's two most likely tokens are <0.1% apart"
    assert page.inner_text("td[data-same=false]") == words
    assert page.get_attribute("[data-role=words]", "data-kind") == "different"
    assert page.text_content("[data-role=rows] tr >> nth=1 >> th") == HOSTILE
    service.proof = proved("true_rule")
    for event in service.proof:
        if event.get("texts"):
            event["texts"][0][0] = HOSTILE
    page.fill("#proof-prompt :is(textarea, input)", HOSTILE)
    prove(page, "distribution")
    assert service.requests[-1]["prompt"] == HOSTILE
    page.wait_for_function(f"({NAMES})()[0]?.startsWith('<img src=x')")
    assert page.locator("#tab-proof img").count() == 0 and "pwned" not in page.title()


@pytest.mark.slow
def test_a_button_and_an_address_show_recorded_comparisons_and_a_switch_runs_one(
    open_page, proof_page, service
):
    page = proof_page()
    page.click("[data-recorded=typical]")
    page.wait_for_selector(".sd-proof[data-state=ended]:visible")
    assert "proof=typical" in page.url and page.is_visible("[data-role=recorded]")
    assert page.is_visible("[data-recorded=other-libraries]"), "another recorded test is one press away"
    page = open_page(query="proof=other-libraries", width=390)
    page.wait_for_selector(".sd-proof[data-state=ended]:visible")
    rows = [event["row"] for event in shipped("other-libraries") if event["type"] == "row"]
    different = sum(not row["identical"] for row in rows)
    assert page.locator("[data-role=rows] td[data-same=false]").count() == different
    cells = texts_of(page, "[data-role=rows] td:last-child")
    gaps = [float(text.removeprefix("≥ ").split()[0]) for text in cells]
    assert gaps == pytest.approx([row["gap"] for row in rows], abs=6e-4)
    assert page.text_content("[data-role=last-column]") == "Logit gap"
    assert page.inner_text("[data-role=recorded]").startswith("Recorded earlier: target SmolLM2-135M")
    assert page.inner_text("[data-role=sentence]") == shipped("other-libraries")[-1]["sentence"]
    assert page.evaluate(WIDER, 390) == []
    assert_accessible(page, "#tab-proof", state="recorded")
    assert service.requests == []
    service.proof = shipped("other-libraries")
    page.focus("#proof-verify input >> nth=1")
    page.keyboard.press("Space")
    page.wait_for_selector("#proof-verify label.selected:has-text('other libraries')")
    prove(page, "greedy")
    assert service.requests[-1]["proof"] == "other-libraries"
    assert page.inner_text("[data-role=why]") == service.proof[-1]["reading"]
    assert not page.is_visible("[data-role=recorded]") and "proof=" not in page.url


@pytest.mark.slow
def test_the_samples_grow_and_stop_keeps_them(proof_page, service):
    service.hold_at = 3
    service.proof = proved("true_rule")
    service.proof[-1] |= {"drawn": 700}
    page = proof_page()
    page.click("#prove-distribution")
    page.wait_for_function("document.querySelector('[data-figure-of=drawn]').dataset.value > 0")
    assert page.locator("#proofs button:enabled").count() == 0
    assert 0 < figure(page, "drawn") < 2000 and figure(page, "p_value") is None
    assert page.inner_text("[data-role=progress-text]").startswith("Drawing 3 tokens after “A dog is”")
    page.click("#proof-stop")
    page.wait_for_selector(".sd-proof[data-state=ended]")
    page.wait_for_selector("#prove-distribution:enabled")
    assert page.is_disabled("#proof-stop")
    assert figure(page, "drawn") == 700 and figure(page, "p_value") is not None
    assert page.inner_text("[data-role=drawn-words]").startswith("of 2,000 draws per sample")


@pytest.mark.slow
def test_the_badge_of_a_sampled_run_leads_to_results_that_fit_a_phone(open_page, service):
    service.replayed = recorded("greedy")
    page = open_page(width=390, height=844)
    page.click(".sd-player-more")
    run_to_end(page)
    assert page.locator("[data-role=badge] button").count() == 0
    service.replayed = recorded("rejection")
    run_to_end(page)
    page.click("[data-role=badge] button")
    page.wait_for_selector("#prove-distribution:visible")
    assert_accessible(page, "#tab-proof", state="idle")
    page.locator("#proof-rule label").nth(2).click()
    for proof in ("greedy", "distribution"):
        prove(page, proof)
        assert page.evaluate(WIDER, 390) == []
        assert_accessible(page, "#tab-proof", state=proof)
    assert_samples_shown(page, proved("no_residual")[-1])
    assert page.locator("[data-role=chart]").bounding_box()["width"] > 340
