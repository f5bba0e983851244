"""The lanes, and a round drawn: old discards as ticks, common rows, counted passes, one bar for a pass."""

import base64
import zlib
from typing import Any

import pytest
from helpers.replay import recorded, rounds
from helpers.visitor import FRAMES, press, run_to_end, scrub, tokens

pytestmark = pytest.mark.slow

TEXT = "[data-lane=speculative] .sd-text"
TICKS = f"{TEXT} .sd-tick"
TIP = "[data-role=tip]"
ROWS = """lane => {
    const box = document.querySelector(`[data-lane=${lane}] .sd-text`);
    const row = parseFloat(getComputedStyle(box).lineHeight);
    const kept = [...box.querySelectorAll('.sd-token')].filter(token =>
        token.getClientRects().length && token.dataset.status !== 'discarded');
    return kept.map(token => Math.round((token.getBoundingClientRect().bottom -
        box.getBoundingClientRect().top + box.scrollTop) / row)); }"""
MIDDLE = """tick => { const box = tick.getBoundingClientRect();
    return [box.left, (box.top + box.bottom) / 2]; }"""
TOPS = "() => [...document.querySelectorAll('.sd-text')].filter(b => b.clientHeight).map(b => b.scrollTop)"
HALF_ROWS = """() => [...document.querySelectorAll('.sd-text')].filter(b => b.clientHeight).map(b =>
    [b.scrollTop, b.clientHeight].map(px => px % parseFloat(getComputedStyle(b).lineHeight)))"""
PASSES = """() => ['speculative', 'baseline'].map(lane =>
    Number(document.querySelector(`[data-lane=${lane}] .sd-passes b`).textContent))"""
BRICKS = """() => [...document.querySelectorAll('.sd-bricks p')].map(row =>
    [Number(row.querySelector('b').textContent), row.querySelector('i').offsetWidth])"""
BOXES = """() => ['draft', 'own'].map(row => [...document.querySelectorAll(`.sd-pass-${row}`)]
    .filter(box => box.checkVisibility({ visibilityProperty: true }) && box.textContent)
    .map(box => box.textContent))"""
LIT = """() => { const bar = document.querySelector('.sd-pass-bar');
    const boxes = [...document.querySelectorAll('.sd-pass-column')].filter(node => node.checkVisibility());
    const sides = [bar, boxes[0], boxes.at(-1)].map(node => node.getBoundingClientRect());
    const covers = sides[0].left <= sides[1].left + 1 && sides[0].right >= sides[2].right - 1;
    return [getComputedStyle(bar).backgroundColor !== 'rgba(0, 0, 0, 0)', covers]; }"""
MOVING = "() => document.querySelector('.sd-screen').getAnimations({ subtree: true }).length"


def discards(event: Any) -> int:
    return sum(token["status"] == "discarded" for token in event["round"]["drafted"])


def lost(count: int) -> str:
    return f"1 rejected, {count - 1} discarded" if count > 1 else "1 rejected"


def moment(events: list, index: int, phase: str, share: float) -> float:
    """Return the time when ``share`` of a phase of a speculative round is over."""
    at = 0.0
    for event in rounds(events)[: index + 1]:
        made = event["round"]
        start = at + made["prefill_s"] + (made["draft_s"] if phase == "verify_s" else 0)
        at += sum(made[f"{name}_s"] for name in ("prefill", "draft", "verify", "other"))
    return start + share * made[phase]


def with_text(events: list, token: Any, text: str) -> None:
    token["id"] = 10**6 + zlib.crc32(text.encode())
    events[1]["pieces"][str(token["id"])] = base64.b64encode(text.encode()).decode()


def test_old_discards_are_ticks_that_open_by_click_and_by_key(played):
    page = played("greedy")
    thrown = [discards(event) for event in rounds(recorded("greedy"))]
    ticks = page.locator(TICKS)
    labels = ticks.evaluate_all("all => all.map(tick => tick.getAttribute('aria-label'))")
    assert labels == [lost(count) for count in thrown if count]
    shrunk = tokens(page)
    assert [token[0] for token in shrunk] == [token[0] for token in tokens(page, "baseline")]
    page.focus(TEXT)
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert f"{lost(thrown[1])} · round 2" in page.inner_text(TIP)
    page.keyboard.press("Enter")
    assert len(tokens(page)) == len(shrunk) + thrown[1]
    page.mouse.click(*ticks.first.evaluate(MIDDLE))
    assert tokens(page) == shrunk
    page.locator(TEXT).evaluate("box => { box.scrollTop = 0; }")
    page.evaluate(FRAMES)
    page.mouse.move(0, 0)
    page.mouse.move(*ticks.first.evaluate(MIDDLE))
    assert page.inner_text(TIP).startswith(f"{lost(thrown[1])} · round 2")
    assert page.locator(f"{TIP} [data-status=discarded]").count() == thrown[1]
    page.check("[data-role=show-discards]")
    everything = sum(len(event["round"]["drafted"]) + 1 for event in rounds(recorded("greedy")))
    assert len(tokens(page)) == everything and page.locator(".sd-tick:visible").count() == 0
    page.uncheck("[data-role=show-discards]")
    assert tokens(page) == shrunk


def test_lanes_show_the_same_tokens_on_the_same_rows_and_scroll_together_by_whole_rows(played):
    page = played("greedy")
    assert page.evaluate(ROWS, "speculative") == page.evaluate(ROWS, "baseline")
    page.locator(TEXT).evaluate("box => { box.scrollTop = 1e6; }")
    page.wait_for_function(f"new Set(({TOPS})()).size === 1")
    ends = page.evaluate(TOPS)
    assert ends[0] == ends[1] > 100
    two_rows = 2 * page.locator(TEXT).first.evaluate("box => parseFloat(getComputedStyle(box).lineHeight)")
    for lane in ("speculative", "baseline"):
        page.locator(f"[data-lane={lane}] .sd-text").evaluate("box => { box.scrollTop = 64; }")
        page.wait_for_function(f"top => ({TOPS})().every(one => one === top)", arg=two_rows)
        page.evaluate(FRAMES)
        press(page, "to-end")
        page.locator(f"[data-lane={lane}] .sd-text").evaluate("box => { box.scrollTop = 1e6; }")
        page.wait_for_function(f"tops => String(({TOPS})()) === String(tops)", arg=ends)
    assert {rest for lane in page.evaluate(HALF_ROWS) for rest in lane} == {0}


def test_passes_and_tokens_are_counted_at_their_verdict_as_bricks_of_one_size(played):
    page = played("greedy")
    spec, base = page.evaluate(PASSES)
    assert [spec, base] == [len(rounds(recorded("greedy"), lane)) for lane in ("speculative", "baseline")]
    counts, widths = zip(*page.evaluate(BRICKS), strict=True)
    totals = recorded("greedy")[-1]["totals"]
    assert counts == (spec, totals["tokens"], base)
    assert (
        max(widths[at] / counts[at] for at in range(3)) - min(widths[at] / counts[at] for at in range(3))
        < 0.1
    )
    press(page, "to-start")
    for count in range(1, 3):
        press(page, "phase-on", "phase-on")
        assert page.evaluate(PASSES)[0] == count - 1, "with the target"
        press(page, "phase-on")
        assert page.evaluate(PASSES)[0] == count == page.evaluate(BRICKS)[0][0]


def test_draft_tokens_come_one_by_one_and_one_bar_lights_under_all_of_them_before_all_choices_come(played):
    page = played("greedy")
    drafted = len(rounds(recorded("greedy"))[0]["round"]["drafted"])
    for filled in range(1, drafted + 1):
        scrub(page, moment(recorded("greedy"), 0, "draft_s", (filled + 0.1) / drafted))
        draft, own = page.evaluate(BOXES)
        assert len(tokens(page)) == len(draft) == filled and not own
        assert page.evaluate(LIT) == [filled == drafted, True], "the pass follows the last token at once"
    for share in (0.25, 0.75):
        scrub(page, moment(recorded("greedy"), 0, "verify_s", share))
        draft, own = page.evaluate(BOXES)
        assert len(draft) == drafted and not own
        assert page.evaluate(LIT) == [True, True]
    press(page, "phase-on", "phase-on")
    draft, own = page.evaluate(BOXES)
    assert len(draft) == drafted and len(own) == drafted + 1
    assert page.evaluate(LIT) == [False, True]
    page.locator(".sd-pass-column").nth(1).click()
    assert page.inner_text("[data-role=microscope-title]").startswith("Round 1:")
    assert page.locator(".sd-card").nth(1).get_attribute("data-chosen") is not None


def test_what_is_kept_moves_into_the_text_while_it_plays_slowly(played):
    page = played("greedy")
    page.check(".sd-pace input[value='0.05']", force=True)
    press(page, "to-start", "play")
    page.wait_for_selector(".sd-pass-ghost")
    assert page.locator("[data-role=pass]").get_attribute("data-motion") == "on"
    press(page, "play")


def test_rejected_and_discarded_words_stay_in_the_text_only_until_the_next_round_goes_on(played):
    page = played("greedy")
    index = next(at for at, event in enumerate(rounds(recorded("greedy"))) if discards(event))
    press(page, "to-start", *["round-on"] * (index + 1))
    shown = [status for _, status, *_ in tokens(page)]
    assert shown.count("discarded") == discards(rounds(recorded("greedy"))[index])
    press(page, "phase-on")
    assert "discarded" not in [status for _, status, *_ in tokens(page)]


FLOW = """async url => {
    const { RoundFlow } = await import(url);
    const box = document.body.appendChild(document.createElement('div'));
    box.style = 'width: 300px; height: 60px; overflow-y: auto';
    const nodes = Array.from({ length: 1000 }, () => {
        const element = document.createElement('span');
        element.dataset.folded = '';
        element.append(Object.assign(document.createElement('span'), { textContent: ' word' }));
        return { element, kept: element.children }; });
    const flow = new RoundFlow(box);
    const counts = [];
    const show = moving => { flow.show(nodes, 1000, moving); counts.push(box.children.length); };
    show(false);
    flow.rest();
    for (const moving of [true, false, true]) show(moving);
    await new Promise(rested => setTimeout(rested, 1000));
    return [...counts, box.children.length]; }"""


def test_only_the_end_of_a_long_text_is_in_the_page_while_it_moves_and_all_of_it_at_rest(open_page, url):
    counts = open_page().evaluate(FLOW, f"{url}specdemo-static/stage/lane_scroll.js")
    assert [counts[index] for index in (0, 2, 4)] == [1000] * 3
    assert 300 < counts[1] == counts[3] < 720


def test_nothing_moves_with_reduced_motion(open_page, service):
    page = open_page(pace=0.05)
    page.emulate_media(reduced_motion="reduce")
    run_to_end(page)
    scrub(page, moment(service.replayed, 0, "verify_s", 0.5))
    assert page.evaluate(LIT)[0]
    press(page, "play")
    page.wait_for_selector("[data-role=pass][data-phase=verdict]")
    assert page.evaluate(MOVING) == 0
    press(page, "play")
    invitation = "node => getComputedStyle(node, '::after').content"
    assert "Step through the phases" in page.eval_on_selector("[data-role=hint]", invitation)


def test_the_end_of_the_text_spaces_and_empty_lines_are_shown(open_page, service):
    events = service.replayed
    # The first round and the baseline begin with an empty line.
    baseline = [event["round"]["emission"] for event in rounds(events, "baseline")[:4]]
    texts = ("one\n\n", "\n", "two", " three")
    for drafted, own, text in zip(rounds(events)[0]["round"]["drafted"], baseline, texts, strict=True):
        for token in (drafted, own):
            with_text(events, token, text)
    # The second round is rejected, and its third token is spaces.
    blank = rounds(events)[1]["round"]["drafted"]
    for token, text in zip(blank, ("  ", " \n", "\n" + 8 * " "), strict=False):
        with_text(events, token, text)
    page = open_page()
    run_to_end(page)
    for lane in ("speculative", "baseline"):
        rows = page.evaluate(ROWS, lane)[:4]
        assert rows[2:] == [rows[1]] * 2 and rows[1] - rows[0] <= 1, "an empty line costs no row"
        text = page.text_content(f"[data-lane={lane}] .sd-text")
        assert "one\n\n\ntwo three" in text, "all of it can be copied"
    widths = page.eval_on_selector_all(
        "[data-lane=baseline] .sd-return", "all => all.map(mark => mark.offsetWidth)"
    )
    assert 0 not in widths, "Safari paints nothing in a token of no width"
    press(page, "to-start", "round-on", "round-on")
    content = "all => all.map(token => getComputedStyle(token, '::after').content)"
    shown = page.eval_on_selector_all(f"{TEXT} [data-blank][data-status=discarded]", content)
    assert shown == ['"␣␣"', '"␣↵"', '"↵␣×8"']

    # The second token of the second round ends the text: what was drafted after it is not shown.
    with_text(events, blank[1], "<|end|>")
    events[0]["specials"].append(blank[1]["id"])
    run_to_end(page)
    page.check("[data-role=show-discards]")
    press(page, "to-start", "round-on")
    before = len(tokens(page))
    press(page, "phase-on")
    assert len(tokens(page)) == before + 2, "pending"
    press(page, "phase-on", "phase-on")
    assert len(tokens(page)) == before + 3, "the target's own, the rejected, the end"
    assert page.locator(f"{TEXT} .sd-chip:has-text('<|end|>')").is_visible()


WIDTHS = """lane => [...document.querySelectorAll(`[data-lane=${lane}] .sd-token`)]
    .filter(token => token.getClientRects().length).slice(0, 4)
    .map(token => Math.round(token.getBoundingClientRect().width))"""


def test_right_to_left_text_runs_from_the_right_and_letters_join_across_tokens(open_page, service):
    events = service.replayed
    kept = rounds(events)[0]["round"]
    own = [event["round"]["emission"] for event in rounds(events, "baseline")]
    texts = ("مر", "حبا", " بال", "عالم", "سل", "ام")
    for drafted, emitted, text in zip([*kept["drafted"], kept["emission"]], own, texts, strict=False):
        for token in (drafted, emitted):
            with_text(events, token, text)
    page = open_page()
    run_to_end(page)
    for lane in ("speculative", "baseline"):
        box = page.locator(f"[data-lane={lane}] .sd-text")
        assert box.evaluate("box => getComputedStyle(box).direction") == "rtl"
    assert page.evaluate(WIDTHS, "speculative") == page.evaluate(WIDTHS, "baseline")


FIXED_WIDTH = """() => [...document.querySelectorAll('[data-lane=baseline] .sd-token')].slice(0, 5)
    .map(token => getComputedStyle(token).fontFamily.includes('monospace'))"""
TEXT_ROWS = """() => { const box = document.querySelector('[data-lane=baseline] .sd-text');
    return box.scrollHeight / parseFloat(getComputedStyle(box).lineHeight); }"""


def test_code_between_fences_has_a_fixed_width_font_on_rows_of_the_same_height(open_page, service):
    emissions = [event["round"]["emission"] for event in rounds(service.replayed, "baseline")]
    for token, text in zip(emissions, ("a\n", "```b\n", "c\n", "```\n", "d\n"), strict=False):
        with_text(service.replayed, token, text)
    page = open_page()
    run_to_end(page)
    assert page.evaluate(FIXED_WIDTH) == [False, True, True, True, False]
    assert page.evaluate(TEXT_ROWS) % 1 == 0
