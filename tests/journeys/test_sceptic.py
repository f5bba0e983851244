"""A sceptic: recomputes a sampled run from its trace file, tests its distribution, and measures a sweep."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from helpers.tiny import service_of, tiny_pair
from helpers.visitor import press, press_and_wait, run_to_end, saved, stage_state, tokens
from helpers.waiting import until
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

# 15 of the 24 compared tokens of this run are accepted: exactly 62.5 %.
LINK = "prompt=Once%20upon%20a%20time&k=4&temperature=0.8&seed=5&max_new_tokens=27"
FIGURES = """() => Object.fromEntries([...document.querySelectorAll('[data-figure]')]
    .filter(figure => figure.checkVisibility()).map(figure => [figure.dataset.figure, figure.textContent]))"""
POINTS = """chart => Object.fromEntries((document.querySelector(chart).data ?? [])
    .map(({ uid, x, y }) => [uid, { x: [...(x ?? [])], y: [...(y ?? [])] }]))"""


def rounded(value: float | Decimal, digits: int) -> str:
    """Return a figure as a person would round it."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def percent(part: int, whole: int) -> str:
    return f"{rounded(Decimal(100 * part) / whole, 0)}%"


def assert_shows(page: Any, chart: str, wanted: dict[str, dict[str, Any]]) -> None:
    """Wait until a chart has these points, given by the uid of the trace and by axis."""

    def shown() -> bool:
        drawn = page.evaluate(POINTS, chart)
        return all(
            drawn.get(uid, {}).get(axis) == close_to(values)
            for uid, axes in wanted.items()
            for axis, values in axes.items()
        )

    page.locator(chart).scroll_into_view_if_needed()
    until(shown)


def close_to(values: Iterable[float]) -> Any:
    return pytest.approx(list(values), rel=1e-9)


class Recount:
    """The figures of one lane of a trace file, recomputed from its rounds."""

    def __init__(self, trace: Any, lane: str):
        self.rounds = trace["lanes"][lane]["rounds"]
        self.drafted = [token for round_ in self.rounds for token in round_["drafted"]]
        self.passes = len(self.rounds)
        self.accepted, self.compared, self.tokens = (
            list(accumulate(map(count, self.rounds))) for count in (accepted_in, compared_in, tokens_in)
        )
        self.seconds = list(accumulate(map(seconds_of, self.rounds)))

    @property
    def rate(self) -> float:
        return self.tokens[-1] / self.seconds[-1]


def accepted_in(round_: Any) -> int:
    return sum(token["status"] == "accepted" for token in round_["drafted"])


def compared_in(round_: Any) -> int:
    return sum(token["compared"] for token in round_["drafted"])


def tokens_in(round_: Any) -> int:
    return accepted_in(round_) + (round_["emission"] is not None)


def seconds_of(round_: Any) -> float:
    return round_["draft_s"] + round_["verify_s"] + round_["other_s"]


def help_on(page: Any, term: str) -> str:
    page.click(f"[data-help={term}]")
    words = page.inner_text(".sd-help-numbers")
    page.keyboard.press("Escape")
    return words


def assert_figures_follow(page: Any, own: Recount, alone: Recount) -> None:
    """Compare the figures on the page, their helps and the closing sentence with the trace."""
    count, accepted, compared = own.tokens[-1], own.accepted[-1], own.compared[-1]
    tau, alpha = rounded(Decimal(count) / own.passes, 2), percent(accepted, compared)
    speedup = f"{rounded(own.rate / alone.rate, 2)}×"
    rates = rounded(own.rate, 1), rounded(alone.rate, 1)
    assert page.evaluate(FIGURES) == {
        "speedup": speedup,
        "tau": tau,
        "alpha_compared": alpha,
        "passes": str(own.passes),
        "passes_saved": str(count - own.passes),
        "identical": "≈",
        "tokens_per_s": rates[0],
        "seconds": rounded(own.seconds[-1], 2),
        "baseline_tokens_per_s": rates[1],
        "baseline_seconds": rounded(alone.seconds[-1], 2),
    }
    assert page.inner_text("[data-lane=baseline] .sd-passes b") == str(alone.passes)
    assert help_on(page, "alpha") == f"{accepted} of {compared} = {alpha}"
    assert help_on(page, "tau") == f"{count} ÷ {own.passes} = {tau}"
    assert help_on(page, "speedup").startswith(f"{rates[0]} ÷ {rates[1]} tokens/s = ")
    sentence = page.inner_text("[data-role=sentence]")
    assert f"{speedup} the speed of the target alone, {own.passes} target passes" in sentence
    assert f"Acceptance rate α {alpha}." in sentence


def assert_verdicts_follow(page: Any, own: Recount) -> None:
    """Compare each verdict with its probabilities, and the marks on the page with the verdicts."""
    for token in own.drafted:
        if token["compared"]:
            assert token["accept_prob"] == pytest.approx(min(1, token["p"] / token["q"]), rel=1e-5)
            assert (token["status"] == "accepted") == (token["u"] < token["accept_prob"])
    page.check("[data-role=show-discards]")
    shown = Counter(status for _, status, _, _ in tokens(page))
    # The target's own token has no mark in a round without a draft.
    added = [round_["emission"]["status"] if round_["drafted"] else None for round_ in own.rounds]
    assert shown == Counter([token["status"] for token in own.drafted] + added)
    page.uncheck("[data-role=show-discards]")


def assert_charts_follow(page: Any, own: Recount, alone: Recount) -> None:
    lanes = {"speculative": own, "baseline": alone}
    race = {lane: {"x": recount.seconds, "y": recount.tokens} for lane, recount in lanes.items()}
    assert_shows(page, "[data-plot=race]", race)
    tau = [count / (at + 1) for at, count in enumerate(own.tokens)]
    alpha = [part / whole for part, whole in zip(own.accepted, own.compared, strict=True)]
    assert_shows(page, "[data-plot=rates]", {"tau": {"y": tau}, "alpha": {"y": alpha}})
    assert_shows(page, "[data-plot=speedup]", {"speedup-lead": {"y": [own.rate / alone.rate]}})
    time = {
        uid: {"x": [sum(round_[part] for round_ in recount.rounds) for recount in lanes.values()]}
        for uid, part in (("verifying", "verify_s"), ("rest", "other_s"))
    }
    assert_shows(page, "[data-plot=time]", time)
    places = [
        [round_["drafted"][place] for round_ in own.rounds if place < len(round_["drafted"])]
        for place in range(4)
    ]
    rates = [
        sum(token["status"] == "accepted" for token in drafted) / sum(token["compared"] for token in drafted)
        for drafted in places
    ]
    assert_shows(page, "[data-plot=position]", {"position": {"y": rates}})


def prove(page: Any, proof: str, verdict: str) -> str:
    """Run a test, compare its verdict, and return its sentence."""
    press_and_wait(page, f"#prove-{proof}")
    page.wait_for_selector(".sd-proof[data-state=ended]")
    expect(page.locator("#proof [data-role=words]")).to_have_text(verdict)
    return page.inner_text("#proof [data-role=sentence]")


def proof_figure(page: Any, name: str) -> float:
    return json.loads(page.get_attribute(f"[data-figure-of={name}]", "data-value"))


def assert_distribution_is_tested(page: Any) -> None:
    """Draw two samples under the true rule, and two under a wrong rule, which the test must catch."""
    page.get_by_label("Draws per sample").fill("400")
    settings = "The test compared 400 draws of 5 tokens per sample at temperature 1, top-k 2."
    assert prove(page, "distribution", "Accepted: no difference beyond chance.") == settings
    assert 1e-4 < proof_figure(page, "p_value") <= 1
    assert page.locator("[data-role=band][data-outside]").count() == 0
    expect(page.locator("[data-role=p-words]")).to_contain_text("below 0.0001, the difference is significant")

    def bars() -> list[list[int]]:
        return [lane["x"] for lane in page.evaluate(POINTS, "#proof [data-role=chart]").values()]

    until(lambda: [sum(counts) for counts in bars()] == [400, 400])
    apart = sum(abs(a - b) for a, b in zip(*bars(), strict=True)) / 800
    assert apart <= proof_figure(page, "total_variation"), "some continuations are shown as one"
    page.click("#proof-rule label:has-text('Accept everything')")
    assert prove(page, "distribution", "Caught: not the target's distribution.") == settings
    assert proof_figure(page, "p_value") < 1e-4 and proof_figure(page, "alpha") == 1
    assert page.locator("[data-role=band][data-outside]").count() == 1


def assert_texts_are_compared(page: Any) -> None:
    """Compare texts token by token, greedy and sampled; the sampled audit refuses temperature 0."""
    numbers = page.locator("#proofs input[type=number]")
    for field, value in ((0, "2"), (1, "1")):
        numbers.nth(field).fill(value)
    assert_identical(page, "greedy", 2)
    refused = page.locator("#proof [data-role=error]")
    for value, words in (("0", "temperature must be from 0.001 to 2, not 0."), ("", "must be a number")):
        numbers.nth(2).fill(value)
        press_and_wait(page, "#prove-shared-noise")
        expect(refused).to_contain_text(words)
    numbers.nth(2).fill("1.2")
    assert_identical(page, "shared-noise", 1)
    expect(refused).to_be_hidden()


def assert_identical(page: Any, proof: str, texts: int) -> None:
    sentence = prove(page, proof, "Identical, token for token.")
    counts = page.locator("[data-role=rows] td:nth-child(2)").all_inner_texts()
    assert sentence == f"{texts} of {texts} texts identical, {sum(map(int, counts))} tokens compared."
    verdicts = page.locator("[data-role=rows] td[data-same=true]").all_inner_texts()
    assert verdicts == ["identical"] * len(counts) == ["identical"] * texts
    expect(page.locator("[data-role=samples]")).to_be_hidden()


def assert_sweep_follows(page: Any) -> None:
    """Measure the speedup by draft length; the table, the chart and the saved file agree."""
    page.fill("[name=max_new_tokens]", "12")
    page.fill("[name=prompts]", "1")
    page.click("[data-section=sweep] [data-start]")
    expect(page.locator("[data-section=sweep] [data-job]")).to_have_attribute("data-state", "over")
    expect(page.locator("[data-section=sweep] .sd-job-text")).to_have_text("All 13 points are measured.")
    with page.expect_download() as download:
        page.click("[data-section=sweep] [data-save=csv]")
    rows = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 13
    for row, cells in zip(rows, page.locator("[data-section=sweep] tbody tr").all(), strict=True):
        speedup = float(row["tokens_per_s"]) / float(row["baseline_tokens_per_s"])
        theory, alpha, tau = (float(row[name]) for name in ("s_theory", "alpha", "tau"))
        assert row["identical"] == "True"
        assert cells.locator("th, td").all_inner_texts() == [
            row["label"],
            f"{rounded(speedup, 2)}×{' (disturbed)' if row['disturbed'] == 'True' else ''}",
            f"{rounded(theory, 2)}×",
            f"{rounded(100 * alpha, 0)}%",
            rounded(tau, 2),
            rounded(float(row["tokens_per_s"]), 1),
            rounded(float(row["baseline_tokens_per_s"]), 1),
        ]
    speedups = [float(row["speedup"]) for row in rows if row["x"]]
    assert_shows(page, "[data-role=sweep-chart]", {"speedup": {"y": speedups}})


def test_a_sceptic_checks_a_sampled_run(open_page_of: Callable[..., Any], tmp_path: Path):
    open_page = open_page_of(service_of(tiny_pair()))
    page = open_page(query=LINK)

    # Run what a link asks for: a sampled run, whose texts cannot be compared.
    expect(page.locator("#prompt textarea")).to_have_value("Once upon a time")
    run_to_end(page)
    expect(page.locator("[data-label=identical]")).to_have_text("same distribution")

    # Save the trace, and recompute every figure from it.
    path = saved(page, "save-trace", tmp_path)
    assert path.name.startswith("specdemo-once-upon-a-time") and path.suffix == ".json"
    expect(page.locator("[data-role=told]")).to_have_text("Trace saved.")
    trace = json.loads(path.read_bytes())
    own, alone = (Recount(trace, lane) for lane in ("speculative", "baseline"))
    assert (own.accepted[-1], own.compared[-1]) == (15, 24)
    assert_figures_follow(page, own, alone)
    assert_verdicts_follow(page, own)
    assert_charts_follow(page, own, alone)

    # Another browser shows the same run from the file, and refuses a file without a run.
    other = open_page()
    other.set_input_files("[data-role=trace-file]", path)
    other.wait_for_selector(".sd[data-state=playing]")
    press(other, "to-end")
    other.wait_for_selector(".sd[data-state=ended]")
    assert stage_state(other) == stage_state(page)
    broken = {"name": "broken.json", "mimeType": "application/json", "buffer": b"[1, 2]"}
    other.set_input_files("[data-role=trace-file]", files=[broken])
    expect(other.locator(".sd [data-role=error]")).to_contain_text("not a trace")

    # The badge leads to the tests of the distribution.
    page.click("[data-role=badge] button")
    assert_distribution_is_tested(page)
    assert_texts_are_compared(page)

    # Lab: a sweep, and the run in the theory's chart.
    page.click("#tab-lab-button")
    assert_sweep_follows(page)
    page.click("[data-role=take-run]")
    alpha, speedup = percent(own.accepted[-1], own.compared[-1]), rounded(own.rate / alone.rate, 2)
    sentence = page.locator("[data-role=run-told]")
    expect(sentence).to_contain_text(f"The star marks your last run: α {alpha}")
    expect(sentence).to_contain_text(f"measured speedup {speedup}×")
    star = {"run": {"x": [own.accepted[-1] / own.compared[-1]]}}
    assert_shows(page, "[data-role=theory-chart]", star)
