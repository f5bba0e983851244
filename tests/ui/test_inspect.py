"""The strip of rounds, the microscope, tooltips, and the selection that they share."""

import re

import pytest
from helpers.replay import recorded, rounds
from helpers.visitor import FRAMES, click_token, open_round, pieces, point_at, press, run_to_end, token_of
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

TIP = "[data-role=tip]"
STRIP = "[data-role=rounds]"
MICROSCOPE = "[data-role=microscope]"
TITLE = "[data-role=microscope-title]"
CARDS = """() => [...document.querySelectorAll('.sd-card')].map(card => ({
    verdict: card.dataset.verdict,
    hasCoin: Boolean(card.querySelector('.sd-coin')),
    overlap: [...card.querySelectorAll('.sd-overlap > div')].slice(1).map(row =>
        [...row.children].filter(part => !part.className).map(part => part.textContent)),
    token: card.querySelector('.sd-card-token').textContent,
    words: card.querySelector('.sd-verdict').textContent,
    figures: Object.fromEntries([...card.querySelectorAll('.sd-card-figures div')].map(row =>
        [row.children[0].textContent, row.children[1].textContent])),
    tops: Object.fromEntries([...card.querySelectorAll('.sd-top ol')].map(list => [list.dataset.symbol,
        [...list.children].map(row => [...row.children].map(part => part.textContent))])),
}))"""
SHOWN = """() => { const box = document.querySelector('[data-lane=speculative] .sd-text');
    const seen = box.getBoundingClientRect();
    const [first] = box.querySelector('[data-selected]').getClientRects();
    return seen.top <= first.top + 1 && first.bottom <= seen.bottom + 1; }"""
SELECTED_ROUNDS = """() => [...document.querySelectorAll('[data-lane=speculative] .sd-round')]
    .flatMap((round, index) => round.hasAttribute('data-selected') ? [index] : [])"""
BAND = """() => { const { shapes } = document.querySelector('[data-plot=rates]').layout;
    const band = shapes.find(shape => shape.name === 'selected');
    return band.visible ? (band.x0 + band.x1) / 2 : null; }"""
AT_ROUND = """round => { const { xaxis } = document.querySelector('[data-plot=rates]')._fullLayout;
    return xaxis._offset + xaxis.d2p(round); }"""


def count(recording: str) -> int:
    return len(rounds(recorded(recording)))


# The second round: figures of its first draft tokens and of the target's own, and two lists of top fives.
SECOND_ROUND = {
    "greedy": (
        [
            {"q": "83%", "p": "2.5%", "most likely?": "no"},
            {"q": "44%", "p": "1.4%", "most likely?": "not compared"},
        ],
        {"p": "96%"},
        ["83% 14% 1.3% <0.1% <0.1%", "96% 2.5% 0.9% 0.3% 0.2%"],
    ),
    "rejection": (
        [
            {"q": "92%", "p": "92%", "min(1, p/q)": "1.000", "u": "0.622"},
            {"q": "60%", "p": "12%", "min(1, p/q)": "0.197", "u": "0.482"},
            {"q": "87%", "p": "84%", "min(1, p/q)": "not compared", "u": "not used"},
        ],
        {"share": "97%", "mass": "0.860"},
        [
            "92% 92% 0.7% 7.6% 2.5% <0.1% 1.1% <0.1% 0.9% <0.1% <0.7% 0.3%",  # q and p of each row
            "97% 1.4% 0.6% 0.1% <0.1%",
        ],
    ),
    "shared_noise": (
        [{"q": "46%", "p": "16%", "noise g": "0.392"}],
        {"p": "78%", "noise g": "-0.217"},
        ["46% 41% 6.0% 1.9% 1.3%", "78% 16% 2.9% 0.5% 0.5%"],
    ),
}
VERDICTS = {
    "greedy": (["the target's most likely token, so accepted"], ["most likely token is a different one"]),
    "rejection": (["always accepted", "so accepted"], ["so rejected"]),
    "shared_noise": (
        ["the target picks the same token, so accepted"],
        ["the target picks a different token"],
    ),
}


@pytest.mark.parametrize("recording", VERDICTS)
def test_the_microscope_shows_the_recorded_figures_and_explains_verdicts(played, recording):
    page = played(recording)
    events = recorded(recording)
    words: dict[str, list[str]] = {}
    for index, event in enumerate(rounds(events)[:16]):
        open_round(page, index, count(recording))
        *drafted, own = page.evaluate(CARDS)
        for card, token in zip(drafted, event["round"]["drafted"], strict=True):
            assert card["verdict"] == ("rejected" if token["rejected"] else token["status"])
            words.setdefault(card["verdict"], []).append(card["words"])
            if recording == "rejection":  # a trace may leave out the lists of most likely tokens
                assert bool(card["overlap"]) == (token["compared"] and bool(token["target_top"]))
                assert card["hasCoin"] == (token["compared"] and not token["target_top"])
        assert own["verdict"] == event["round"]["emission"]["status"]
        if index == 1:
            first, of_own, tops = SECOND_ROUND[recording]
            assert [card["figures"] for card in drafted[: len(first)]] == first
            assert own["figures"] == of_own
            (own_top,) = own["tops"].values()
            lists = drafted[0]["overlap"] or drafted[0]["tops"]["q"], own_top
            assert [" ".join(" ".join(shown[1:]) for shown in one) for one in lists] == tops
            most_likely = pieces(events)[event["round"]["emission"]["top"][0][0]].decode()
            assert own_top[0][0] == most_likely.replace(" ", "␣")
    for verdict, parts in zip(("accepted", "rejected"), VERDICTS[recording], strict=True):
        assert all(any(part in one for part in parts) for one in words[verdict])
        assert all(any(part in one for one in words[verdict]) for part in parts)
    assert all("after the rejected token" in one for one in words["discarded"])


def test_the_strip_opens_rounds_by_click_and_keys(played):
    page = played("greedy")
    page.locator(STRIP).hover(position={"x": 3, "y": 20})
    assert page.inner_text(TIP) == "Round 1: 4 of 4 accepted, then one bonus token."
    page.mouse.move(0, 0)
    assert page.locator(TIP).is_hidden()
    open_round(page, 3, count("greedy"))
    assert page.inner_text(TITLE).startswith("Round 4:")
    for key, number in (("ArrowRight", 5), ("ArrowLeft", 4), ("Home", 1), ("ArrowLeft", 1), ("End", 73)):
        page.keyboard.press(key)
        assert page.inner_text(TITLE).startswith(f"Round {number}:")
        expect(page.locator(STRIP)).to_have_attribute("aria-valuenow", str(number))
        expect(page.locator(STRIP)).to_have_attribute("aria-valuetext", re.compile(f"^Round {number}: "))
    press(page, "microscope-back")
    assert page.inner_text(TITLE).startswith("Round 72:")
    press(page, "microscope-on")
    assert page.inner_text(TITLE).startswith("Round 73:")
    for key in ("Escape", "Enter"):
        page.focus("[data-role=microscope-close]")
        page.keyboard.press(key)
        assert page.locator(MICROSCOPE).is_hidden()
        assert page.evaluate(f"document.activeElement === document.querySelector('{STRIP}')")
        assert page.evaluate(SELECTED_ROUNDS) == []
        assert page.locator("[data-lane=baseline]").is_visible()
        page.keyboard.press("Enter")


def test_a_tooltip_describes_the_token_under_the_pointer_and_a_click_pins_it(played):
    page = played("greedy")
    tip = page.locator(TIP)
    first = rounds(recorded("greedy"))[1]["round"]["drafted"][0]
    point_at(page, token_of(page, 1, 0))
    words = tip.inner_text()
    assert "rejected · round 2" in words and "most likely token is a different one" in words
    assert f"q {100 * first['raw_q']:.0f}% · p {100 * first['raw_p']:.1f}%" in words
    assert tip.locator("button").is_hidden()
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    click_token(page, 1, 0)
    page.mouse.move(0, 0)
    point_at(page, token_of(page, 0, 0))
    assert "rejected · round 2" in tip.inner_text()
    assert tip.get_attribute("data-pinned") == "true"
    tip.locator("button").click()
    assert page.inner_text(TITLE).startswith("Round 2:")
    assert page.locator(".sd-card[data-chosen]").count() == 1
    assert page.locator(".sd-card:nth-child(1)[data-chosen][data-verdict=rejected]").count() == 1
    press(page, "microscope-close", "to-start", "phase-on")
    point_at(page, token_of(page, 0, 0))
    words = tip.inner_text()
    assert "pending" in words and "not verified yet" in words and "Target " not in words


def test_a_token_of_the_draft_s_own_lane_is_the_draft_model_s(open_page, service):
    service.replayed = recorded("shared_noise")
    page = open_page()
    run_to_end(page)
    for lane, choice in (("baseline", "largest log p"), ("draft", "largest log q")):
        point_at(page, page.locator(f"[data-lane={lane}] .sd-token").first)
        expect(page.locator(TIP)).to_contain_text(f"The token with the {choice} + noise")


def test_no_tooltip_covers_the_open_microscope_and_the_lane_goes_to_its_round(played):
    page = played("greedy")
    tip = page.locator(TIP)
    click_token(page, 1, 0)
    tip.locator("button").focus()
    page.keyboard.press("Enter")
    assert page.inner_text(TITLE).startswith("Round 2:")
    assert tip.is_hidden()
    assert page.evaluate("document.activeElement.dataset.role") == "microscope-cards"
    point_at(page, token_of(page, 2, 0))
    assert tip.is_hidden()
    click_token(page, 2, 0)
    assert page.inner_text(TITLE).startswith("Round 3:")
    assert page.locator(".sd-card:nth-child(1)[data-chosen]").count() == 1
    assert tip.is_hidden()
    # The end of a text that has just begun is near; the open microscope makes the lane lower.
    press(page, "microscope-close", "to-start", *["round-on"] * 6)
    for index in (0, 5, 2):
        page.locator(STRIP).focus()
        for key in ("Home", *["ArrowRight"] * index):
            page.keyboard.press(key)
        page.evaluate(FRAMES)
        assert page.evaluate(SHOWN), index
        press(page, "microscope-close")
    page.check(".sd-pace input[value='1']", force=True)
    press(page, "play")
    page.wait_for_selector(".sd[data-state=ended]")
    lane = page.locator("[data-lane=speculative] .sd-text")
    assert lane.evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight < 2"), "it follows again"


def test_arrow_keys_walk_the_tokens_and_enter_pins(played):
    page = played("greedy")
    page.check("[data-role=show-discards]")
    page.focus("[data-lane=speculative] .sd-text")
    page.keyboard.press("ArrowRight")
    assert "accepted · round 1" in page.inner_text(TIP)
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert "rejected · round 2" in page.inner_text(TIP)
    page.keyboard.press("ArrowLeft")
    assert "bonus · round 1" in page.inner_text(TIP)
    page.keyboard.press("Enter")
    assert page.get_attribute(TIP, "data-pinned") == "true"
    page.mouse.move(0, 0)
    assert page.locator(TIP).is_visible()


def test_a_copied_token_is_called_copied(open_page, service):
    for event in rounds(service.replayed):
        event["round"]["drafted_by"] = "prompt-lookup"
    page = open_page()
    run_to_end(page)
    point_at(page, token_of(page, 0, 0))
    assert "the draft token was copied from earlier text" in page.inner_text(TIP)
    assert "q " not in page.inner_text(f"{TIP} .sd-tip-figures")
    open_round(page, 0, count("greedy"))
    assert all("q" not in {**card["figures"], **card["tops"]} for card in page.evaluate(CARDS))


def test_all_views_show_the_selected_round(played):
    page = played("greedy")
    chart = page.locator("[data-plot=rates]")

    def assert_selected(index: int) -> None:
        assert page.evaluate(SELECTED_ROUNDS) == [index]
        expect(page.locator(STRIP)).to_have_attribute("aria-valuenow", str(index + 1))
        chart.scroll_into_view_if_needed()
        page.wait_for_function(f"({BAND})() === {index + 1}")

    click_token(page, 2, 0)
    assert_selected(2)
    page.keyboard.press("Escape")
    page.evaluate("window.scrollTo(0, 0)")
    open_round(page, 4, count("greedy"))
    assert page.evaluate(SELECTED_ROUNDS) == [4]
    click_token(page, 5, 0)
    assert page.inner_text(TITLE).startswith("Round 6:"), "the open microscope follows"
    assert_selected(5)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".main-svg").first.bounding_box()
    x = box["x"] + page.evaluate(AT_ROUND, 2)
    page.mouse.move(x, box["y"] + 120)
    page.mouse.click(x, box["y"] + 120)
    page.wait_for_selector(MICROSCOPE)
    assert page.inner_text(TITLE).startswith("Round 2:"), "a click in a chart opens the round"
