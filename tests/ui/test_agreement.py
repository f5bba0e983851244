"""At every phase of a run, figures, lanes, strip and the live chart show the same rounds."""

import pytest
from helpers.replay import recorded, rounds
from helpers.visitor import FRAMES, figures, press, run_to_end, tokens

pytestmark = pytest.mark.slow

SHOWN = """() => ({
    passes: Number(document.querySelector('[data-lane=speculative] .sd-passes b').textContent),
    chart: Number(document.querySelector('.sd-live-layer').dataset.rounds),
    clock: Number(document.querySelector('[data-role=scrub]').value),
    ended: document.querySelector('.sd').dataset.state === 'ended' })"""
STRIP = """count => {
    const strip = document.querySelector('[data-role=rounds]');
    const canvas = strip.querySelector('canvas');
    const pen = canvas.getContext('2d');
    // The left edge of each column, filled or drawn, as strong as it was played.
    const strong = index => pen.getImageData(18 * index, canvas.height - 3, 1, 1).data[3] > 200;
    const indices = Array.from({ length: count }, (_, index) => index);
    return [Number(strip.getAttribute('aria-valuenow')), indices.map(strong)]; }"""
OF_A_ROUND = ("passes", "tau", "alpha_compared", "tokens_per_s", "seconds")


@pytest.mark.parametrize("recording", ["greedy", "rejection"])
def test_figures_lanes_strip_and_chart_agree_at_every_phase(open_page, service, recording):
    service.replayed = recorded(recording)
    events = rounds(service.replayed)
    page = open_page(width=4000)  # wide enough for columns of 18 whole pixels
    run_to_end(page)
    press(page, "to-start")
    stops, seen = 0, set()
    while not page.evaluate(SHOWN)["ended"]:
        press(page, "phase-on")
        page.evaluate(FRAMES)
        shown = page.evaluate(SHOWN)
        settled = shown["passes"]
        assert shown["chart"] == settled, f"at {shown['clock']} s"
        at, strong = page.evaluate(STRIP, len(events))
        assert at == max(1, settled)
        drafted = [index for index, event in enumerate(events) if event["round"]["drafted"]]
        assert [strong[index] for index in drafted] == [index < settled for index in drafted]
        kept = [status for _, status, *_ in tokens(page) if status not in ("pending", "discarded")]
        if settled:
            totals = events[settled - 1]["totals"]
            reported = figures(page)
            assert {name: reported[name] for name in OF_A_ROUND} == {
                name: totals[name] for name in OF_A_ROUND
            }
            assert len(kept) == totals["tokens"]
        else:
            assert not kept and figures(page)["passes"] is None, "nothing is told before a verdict"
        stops += 1
        seen.add(settled)
        if settled == len(events):
            press(page, "to-end")
            page.wait_for_selector(".sd[data-state=ended]")
    assert seen >= set(range(1, len(events) + 1)) and stops > len(events)
