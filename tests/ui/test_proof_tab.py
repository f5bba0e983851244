"""The tab "Is it the same?": three proofs, their results, and actions during them."""

import json
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.replay import Event, proved, recorded
from helpers.visitor import press_and_wait, run_to_end

from specdemo.ui.component import STATIC

HOSTILE = "<img src=x onerror=document.title='pwned'><b>${alert(1)}{{x}}</b>"
MARKUP = "<i>a</i> &lt; <b>b</b>"
"""Text that a chart would treat as markup."""
BARS = """([lane, bars]) => {
    const { data } = document.querySelector('[data-role=chart]');
    return String(data?.find(trace => trace.uid === lane)?.x) === String(bars); }"""
NAMES = """() => [...document.querySelectorAll('[data-role=chart] .yaxislayer-above text')]
    .map(text => text.textContent)"""
FILLED = "role => document.querySelector(`[data-role=${role}]`).data?.[0].x.length > 1"
WIDER = """width => [...document.querySelectorAll('#tab-proof *')].filter(node => {
    const box = node.getBoundingClientRect();
    return box.width && box.right > width + 1 && !node.closest('.sd-sr, svg'); })
    .map(node => node.outerHTML.slice(0, 80))"""
CUT = """() => [...document.querySelectorAll('#proofs :is(p, h2, button), .sd-proof :is(p, b, span, td)')]
    .filter(node => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline')
    .map(node => node.outerHTML.slice(0, 80))"""
SMALL = """() => [...document.querySelectorAll('#tab-proof *')].filter(node => node.getClientRects().length
    && [...node.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.textContent.trim())
    && parseFloat(getComputedStyle(node).fontSize) < 16 && !node.closest('svg, .sd-sr, .sr-only'))
    .map(node => node.outerHTML.slice(0, 80))"""


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


def test_the_greedy_audit_shows_each_prompt_and_sums_up(proof_page, service):
    page = proof_page()
    page.fill("#proofs input[type=number] >> nth=0", "4")
    prove(page, "greedy")
    assert service.requests[-1].items() >= {"proof": "greedy", "prompts": 4}.items()
    rows = [event["row"] for event in proved("greedy") if event["type"] == "row"]
    assert texts_of(page, "[data-role=rows] th") == [row["prompt"].replace("\n", " ") for row in rows]
    assert texts_of(page, "[data-role=rows] td[data-same=true]") == ["identical"] * len(rows)
    assert page.inner_text("[data-role=rows] tr >> nth=0 >> td:last-child") == f"{rows[0]['speedup']:.2f}×"
    assert page.inner_text("[data-role=words]") == "Identical, token for token."
    assert page.inner_text("[data-role=sentence]") == proved("greedy")[-1]["sentence"]
    assert not page.is_visible("[data-role=samples]")


@pytest.mark.slow
def test_a_divergent_text_is_shown_with_its_gap(proof_page, service):
    service.proof = proved("greedy")
    service.proof[2]["row"] |= {"identical": False, "divergence": 6, "gap": 0.0004, "prompt": HOSTILE}
    service.proof[-1] |= {"verdict": "different", "words": "Not identical."}
    page = proof_page()
    prove(page, "greedy")
    parting = page.locator("td[data-same=false]")
    assert parting.inner_text() == "differ at token 7; the target's top two tokens are <0.1% apart"
    assert page.get_attribute("[data-role=words]", "data-kind") == "different"
    assert page.text_content("[data-role=rows] tr >> nth=1 >> th") == HOSTILE
    assert page.locator("#tab-proof img").count() == 0 and "pwned" not in page.title()


@pytest.mark.slow
def test_the_sampled_audit_takes_its_own_settings(proof_page, service):
    page = proof_page()
    page.fill("#proofs input[type=number] >> nth=1", "3")
    page.fill("#proofs input[type=number] >> nth=2", "1.2")
    prove(page, "shared-noise")
    asked = {"proof": "shared-noise", "prompts": 3, "temperature": 1.2}
    assert service.requests[-1].items() >= asked.items()
    assert page.locator("[data-role=rows] tr").count() == 4
    assert page.inner_text("[data-role=words]") == "Identical, token for token."


def shipped(name: str) -> list[Event]:
    """Return the events of a built-in recording of a proof."""
    text = (STATIC / "proof" / "recorded" / f"{name}.ndjson").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_an_address_shows_the_recorded_comparison_without_a_model(open_page, service, width):
    page = open_page(query="proof=other-libraries", width=width)
    page.wait_for_selector(".sd-proof[data-state=ended]:visible")
    rows = [event["row"] for event in shipped("other-libraries") if event["type"] == "row"]
    assert page.locator("[data-role=rows] td[data-same=false]").count() == sum(
        not row["identical"] for row in rows
    )
    cells = texts_of(page, "[data-role=rows] td:last-child")
    gaps = [float(text.removeprefix("≥ ").split()[0]) for text in cells]
    assert gaps == pytest.approx([row["gap"] for row in rows], abs=6e-4)
    assert page.text_content("[data-role=last-column]") == "Logit gap"
    assert page.inner_text("[data-role=recorded]").startswith("Recorded earlier: SmolLM2-135M")
    assert page.inner_text("[data-role=sentence]") == shipped("other-libraries")[-1]["sentence"]
    assert service.requests == []
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    assert page.evaluate(WIDER, width) == [] and page.evaluate(CUT) == []
    assert_accessible(page, "#tab-proof", state="recorded")


@pytest.mark.slow
def test_the_switch_verifies_as_other_libraries_do(proof_page, service):
    service.proof = shipped("other-libraries")
    page = proof_page()
    page.click("[data-recorded=typical]")
    page.wait_for_selector(".sd-proof[data-state=ended]")
    assert "proof=typical" in page.url and page.is_visible("[data-role=recorded]")
    page.focus("#proof-verify input >> nth=1")
    page.keyboard.press("Space")
    page.wait_for_selector("#proof-verify label.selected:has-text('other libraries')")
    prove(page, "greedy")
    assert service.requests[-1]["proof"] == "other-libraries"
    assert page.inner_text("[data-role=why]") == service.proof[-1]["reading"]
    assert not page.is_visible("[data-role=recorded]") and "proof=" not in page.url


def assert_samples_shown(page: Any, end: Event) -> None:
    [kinds, *others], texts = end["others"], end["texts"]
    for place, lane in enumerate(("speculative", "baseline")):
        bars = [text[1 + place] for text in texts] + [others[place]] * bool(kinds)
        page.wait_for_function(BARS, arg=[lane, bars])
    for name in ("total_variation", "p_value", "alpha", "drawn", "passes_saved"):
        assert figure(page, name) == end[name], name


@pytest.mark.slow
def test_the_true_rule_is_accepted(proof_page, service):
    page = proof_page()
    prove(page, "distribution")
    end = proved("true_rule")[-1]
    assert service.requests[-1] == {
        "proof": "distribution",
        "prompts": 8,
        "temperature": 0.8,
        "draws": 2000,
        "rule": "true-rule",
        "prompt": "The sea is",
    }
    assert_samples_shown(page, end)
    assert page.inner_text("[data-role=words]") == "Accepted: no difference beyond chance."
    assert page.get_attribute("[data-role=words]", "data-kind") == "distribution"
    assert page.locator("[data-role=band][data-outside]").count() == 0
    assert page.inner_text("[data-role=reading]") == end["reading"]
    assert page.locator("[data-role=why]:visible").count() == 0, "the explanation is shown once"
    page.wait_for_function(f"text => ({NAMES})().join(' ').includes(text)", arg=end["texts"][0][0].strip())


@pytest.mark.parametrize(
    ("place", "name"), [(1, "accept_everything"), pytest.param(2, "no_residual", marks=pytest.mark.slow)]
)
def test_a_wrong_rule_is_caught(proof_page, service, place, name):
    page = proof_page()
    page.locator("#proof-rule label").nth(place).click()
    prove(page, "distribution")
    assert service.requests[-1]["rule"] == name.replace("_", "-")
    assert_samples_shown(page, proved(name)[-1])
    assert page.inner_text("[data-role=words]") == "Caught: not the target's distribution."
    assert page.get_attribute("[data-role=words]", "data-kind") == "different"
    assert page.locator("[data-role=band][data-outside]").count() == 1
    assert page.inner_text("[data-role=reading]") == proved(name)[-1]["reading"]


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
    assert page.inner_text("[data-role=drawn-words]").startswith("draws of 2,000 each way")


@pytest.mark.slow
def test_a_second_proof_clears_the_first(proof_page):
    page = proof_page()
    prove(page, "distribution")
    prove(page, "greedy")
    assert page.is_visible("[data-role=audit]") and not page.is_visible("[data-role=samples]")
    prove(page, "greedy")
    assert page.locator("[data-role=rows] tr").count() == 4


@pytest.mark.slow
def test_text_of_models_is_taken_literally_in_the_chart(proof_page, service):
    service.proof = proved("true_rule")
    for event in service.proof:
        if event.get("texts"):
            event["texts"][0][0], event["texts"][1][0] = HOSTILE, MARKUP
    page = proof_page()
    page.fill("#proof-prompt :is(textarea, input)", HOSTILE)
    prove(page, "distribution")
    assert service.requests[-1]["prompt"] == HOSTILE
    page.wait_for_function(f"({NAMES})()[0]?.startsWith('<img src=x')")
    names = page.evaluate(NAMES)
    assert names[1] == MARKUP
    assert page.locator("#tab-proof img").count() == 0 and "pwned" not in page.title()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (0, "900", "prompts must be from 1 to 48, not 900."),
        (0, "", "prompts must be a whole number from 1 to 48, not None."),
        (2, "0", "temperature must be from 0.001 to 2, not 0."),
        (3, "99999", "draws must be from 1 to 10000, not 99999."),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(proof_page, service, field, value, words):
    page = proof_page()
    page.fill(f"#proofs input[type=number] >> nth={field}", value)
    prove(page, ("greedy", None, "shared-noise", "distribution")[field], "error")
    assert page.inner_text("[data-role=error]:visible") == words
    assert service.requests == []
    page.fill(f"#proofs input[type=number] >> nth={field}", "1")
    prove(page, ("greedy", None, "shared-noise", "distribution")[field])


@pytest.mark.slow
def test_the_badge_of_a_sampled_run_opens_this_tab(open_page, service):
    service.replayed = recorded("rejection")
    page = open_page()
    run_to_end(page)
    page.click("[data-role=badge] button")
    page.wait_for_selector("#prove-distribution:visible")
    page.click("#tab-run-button")
    service.replayed = recorded("greedy")
    run_to_end(page)
    assert page.locator("[data-role=badge] button").count() == 0


@pytest.mark.slow
def test_axe_finds_nothing_serious(proof_page):
    page = proof_page()
    assert_accessible(page, "#tab-proof", state="idle")
    prove(page, "greedy")
    assert_accessible(page, "#tab-proof", state="audited")
    page.locator("#proof-rule label").nth(1).click()
    prove(page, "distribution")
    page.wait_for_function(FILLED, arg="chart")
    assert_accessible(page, "#tab-proof", state="caught")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 720), (390, 844)], ids=str)
def test_nothing_is_cut_or_small(proof_page, size):
    width, height = size
    page = proof_page(width=width, height=height)
    for proof in ("greedy", "distribution"):
        prove(page, proof)
        assert page.evaluate("() => document.documentElement.scrollWidth") == width
        assert page.evaluate(WIDER, width) == []
        assert page.evaluate(CUT) == []
        assert page.evaluate(SMALL) == []
    page.wait_for_function(FILLED, arg="chart")
    box = page.locator("[data-role=chart]").bounding_box()
    assert box["width"] > (340 if width < 900 else 700)
