"""Three visitors share a slow machine: the queue, stops, a failed pass, a time limit, and the ways back."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers.tiny import tiny_pair
from helpers.visitor import press, run_to_end, tokens
from helpers.waiting import PATIENCE_S, until
from playwright.sync_api import expect

from specdemo.pairs.pair import Pair
from specdemo.pairs.presets import OfferedPairs
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import SPECULATIVE
from specdemo.service.jobs import perform
from specdemo.service.pair_pool import PairPool
from specdemo.service.queue import Bounds, JobQueue
from specdemo.service.service import Service

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shipped")]

OWN = ".sd[data-state=playing]:not([data-recording])"
NOTICE = "[data-role=progress-text]"
SENTENCE = "[data-role=sentence]"
ERROR = ".sd [data-role=error]"
SOURCE = "[data-role=source]"
MARKS = ".sd-plot[data-plot=race] .scatterlayer .point"
NOT_NUMBERS = "The run was ended because a model returned NaN or infinite logits; try another precision."
TOO_LONG = "The time limit of 300 s ended this job; ask for less next time."


class SlowMachine:
    """A tiny pair whose rounds take two seconds each by the queue's clock.

    While it is slow, a run does not get beyond its sixth round, unless it is stopped or a pass fails.
    """

    HELD_AT = 6
    ROUND_S = 2.0
    UNSENT_S = 0.6  # after more seconds without an update, the page gets the next round at once

    def __init__(self) -> None:
        pair = tiny_pair()
        self.seconds = 0.0
        self.is_slow = False
        self.is_broken = False
        queue = JobQueue(Bounds(max_seconds=300), lambda: self.seconds)
        pool = PairPool(lambda _name, _progress: pair, OfferedPairs().default)
        self.service = Service(pool, OfferedPairs(), queue, self._perform)
        pair.target.lm_head.register_forward_hook(self._compute)

    def _compute(self, _module: Any, _inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logits, torch.nan) if self.is_broken else logits

    def _perform(self, pair: Pair, request: Any, stop: Callable[[], bool]) -> Iterator[Any]:
        rounds = 0
        try:
            for event in perform(pair, request, stop):
                own = event.get("lane") == SPECULATIVE
                self.seconds += self.ROUND_S * ("lane" in event)
                rounds += own
                held = self.is_slow and own and rounds == self.HELD_AT
                if held:
                    time.sleep(self.UNSENT_S)
                yield event
                if held:
                    until(lambda: not self.is_slow or self.is_broken or stop(), 2 * PATIENCE_S)
        finally:
            self.is_broken = False  # only this run fails


@pytest.fixture
def machine() -> Iterator[SlowMachine]:
    machine = SlowMachine()
    yield machine
    machine.is_slow = False


def run(page: Any, prompt: str) -> None:
    page.fill("#prompt textarea", prompt)
    page.click("#run")


def assert_served(page: Any, prompt: str) -> None:
    """The visitor's own run is on the stage, and its rounds arrive."""
    page.wait_for_selector(f"{OWN} [data-lane=speculative] .sd-token:visible")
    expect(page.locator(SOURCE)).to_contain_text(f"“{prompt}”")
    expect(page.locator("[data-role=pace-text]")).to_have_text("waiting for the models")


def wait_s_of(page: Any, others: str) -> int:
    """Wait until the visitor reads this queue position and sees a recorded run; return the expected wait."""
    words = re.compile(rf"^In the queue: {others} before you, about (\d+) s to wait\. Meanwhile, a recorded")
    expect(page.locator(NOTICE)).to_have_text(words)
    page.wait_for_selector(".sd[data-state=waiting][data-recording=arrival][data-running]")
    expect(page.locator(SOURCE)).to_contain_text("Recorded on")
    expect(page.locator("#stop")).to_be_enabled()
    found = words.match(page.inner_text(NOTICE))
    assert found
    return int(found[1])


def assert_failed(page: Any, words: str) -> None:
    expect(page.locator(ERROR)).to_have_text(words)
    expect(page.locator("#run")).to_be_enabled()


def go_back(page: Any, sentence: str) -> None:
    page.get_by_role("button", name="Back to my run").click()
    page.wait_for_selector(".sd[data-kept][data-state=ended]")
    expect(page.locator(SENTENCE)).to_have_text(sentence)
    expect(page.locator(ERROR)).to_be_hidden()


def test_three_visitors_share_a_slow_machine(open_page_of: Callable[..., Any], machine: SlowMachine):
    open_page = open_page_of(machine.service)
    ada, ben, cleo = (open_page(pace=1) for _ in range(3))

    # A run on the free machine, which Cleo can go back to.
    cleo.fill("#prompt textarea", "Cleo's first")
    run_to_end(cleo)
    cleos_first = cleo.inner_text(SENTENCE)
    assert cleos_first.startswith("Same text")

    # Ada's run takes long, so two visitors wait.
    machine.is_slow = True
    run(ada, "Ada's")
    assert_served(ada, "Ada's")
    run(ben, "Ben's")
    bens_wait = wait_s_of(ben, "one other job is")
    run(cleo, "Cleo's second")
    assert wait_s_of(cleo, "2 other jobs are") > bens_wait

    # Cleo gives up her place to look at her first run, and comes again.
    go_back(cleo, cleos_first)
    expect(cleo.locator("#run")).to_be_enabled()
    cleo.click("#run")
    wait_s_of(cleo, "2 other jobs are")

    # Ben stops in the queue: the recording goes on, and Cleo moves up.
    ben.click("#stop")
    expect(ben.locator("#run")).to_be_enabled()
    expect(ben.locator(NOTICE)).to_be_hidden()
    ben.wait_for_selector(".sd[data-recording=arrival]:not([data-state=waiting])")
    expect(ben.locator(SOURCE)).to_contain_text("Recorded on")
    wait_s_of(cleo, "one other job is")

    # Ada stops her run, keeps its text, and Cleo is served.
    ada.click("#stop")
    expect(ada.locator(SENTENCE)).to_contain_text("Stopped early. Same text so far")
    passes = int(ada.inner_text("[data-lane=speculative] .sd-passes b"))
    assert machine.HELD_AT <= passes <= machine.HELD_AT + 1
    adas_first = ada.inner_text(SENTENCE)
    assert_served(cleo, "Cleo's second")

    # A pass of Cleo's run fails: her text stays, Ben is served, and she goes back to her first run.
    run(ben, "Ben's")
    wait_s_of(ben, "one other job is")
    machine.is_broken = True
    assert_failed(cleo, NOT_NUMBERS)
    assert tokens(cleo)
    assert_served(ben, "Ben's")
    cleo.get_by_role("button", name="Clear").click()  # the only one
    go_back(cleo, cleos_first)

    # Ada runs without a prompt: refused at once, while Ben's run goes on.
    with pytest.raises(UserError) as refused:
        parse_config({"prompt": " "})
    run(ada, " ")
    assert_failed(ada, str(refused.value))
    go_back(ada, adas_first)
    assert_served(ben, "Ben's")

    # Ben's run reaches the time limit and keeps its text; Ada's run is next. Her chart shows no earlier run.
    ada.wait_for_selector(MARKS, state="attached")
    run(ada, "Ada's second")
    wait_s_of(ada, "one other job is")
    expect(ada.locator(MARKS).first).to_be_hidden()
    machine.seconds += 300
    assert_failed(ben, TOO_LONG)
    assert tokens(ben)
    assert_served(ada, "Ada's second")

    # The machine is free again: her run ends well, and so does Ben's next one.
    machine.is_slow = False
    expect(ada.locator("#run")).to_be_enabled()
    press(ada, "to-end")
    ada.wait_for_selector(".sd[data-state=ended]")
    expect(ada.locator("[data-role=badge]")).to_have_text("Identical to the target alone, token for token.")
    assert len(tokens(ada)) == 64
    run_to_end(ben)
    expect(ben.locator("[data-figure=identical]")).to_have_text("=")
    expect(ben.locator(ERROR)).to_be_hidden()
