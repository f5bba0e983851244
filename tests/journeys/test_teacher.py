"""A teacher and two phones: one lesson from the start of the class to its end, and what each person sees."""

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers.http_visitor import served
from helpers.pages import MOUNTED, PATIENCE_MS
from helpers.tiny import tiny_pair
from helpers.visitor import open_class, press
from playwright.sync_api import expect

from specdemo.classroom.rooms import Rooms
from specdemo.quiz.questions import QUESTIONS
from specdemo.service.jobs import perform
from specdemo.service.service import local_service
from specdemo.ui.http.class_routes import class_routes, submit_with
from specdemo.ui.page import build_page, launch_options

pytestmark = pytest.mark.slow

PHONE = {"viewport": {"width": 390, "height": 844}}
A4_PX = {"width": 794, "height": 1123}
SCHOOL = "school.localhost"
"""A name of this computer that the page takes for an address in a network."""
PROMPT = "What is a leap year?"
RETYPE = """(box, text) => { box.value = text; box.dispatchEvent(new Event("input", { bubbles: true })); }"""
TOLD = "[data-role=asked] .sd-asked-told"
RIGHT, WRONG = "✓ You were right.", "✗ You were wrong."
FIVE = QUESTIONS[0]
RECORDED = f"No verdict. Recorded answer: A, “{FIVE.options[0].text}”."
"""The tiny target rejects a draft token, for which the question has no verdict."""


class Device:
    """A tiny pair whose jobs begin slowly and then wait while ``is_free`` is not set."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_free.set()
        pair = tiny_pair()
        self.service = local_service(lambda _name, _progress: pair, performer=self._perform)

    def _perform(self, pair: Any, request: Any, stop: Any) -> Iterator[Any]:
        for number, event in enumerate(perform(pair, request, stop)):
            yield event
            while not self.is_free.wait(0.2) and number > 8 and not stop():
                pass


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr("specdemo.records.events.doubt", lambda *_: None)  # no other work on this machine
    return Device()


@pytest.fixture
def url(device: Device) -> Iterator[str]:
    rooms = Rooms(submit_for=partial(submit_with, device.service))
    yield from served(build_page(device.service), **launch_options(class_routes(rooms), [SCHOOL]))


class Persons:
    """Opens a page for each person; an error on any of them fails the test at its end."""

    def __init__(self, browser: Any, url: str):
        self._browser, self._url = browser, url
        self._contexts: list[Any] = []
        self.faults: list[str] = []

    def comes(self, path: str = "", **options: Any) -> Any:
        context = self._browser.new_context(reduced_motion="reduce", **options)
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("weberror", lambda fault: self.faults.append(str(fault.error)))
        page = context.new_page()
        page.goto(f"{self._url}{path}")
        return page

    def leave(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def persons(browser: Any, url: str) -> Iterator[Persons]:
    persons = Persons(browser, url)
    yield persons
    persons.leave()
    assert persons.faults == []


def go(page: Any, tab: str) -> None:
    page.click(f"#tab-{tab}-button")


def click(teacher: Any, words: str) -> None:
    teacher.locator(".sd-class").get_by_role("button", name=words, exact=True).click()


def asked(page: Any) -> Any:
    return expect(page.locator("[data-role=asked]"))


def where(phone: Any) -> Any:
    return expect(phone.locator("[data-role=where]"))


def summary(teacher: Any) -> Any:
    return expect(teacher.locator("[data-role=summary]"))


def type_prompt(teacher: Any, words: str) -> None:
    """Change the prompt of the tab Run, which the tab Class hides."""
    teacher.locator("#prompt textarea").evaluate(RETYPE, words)


def ask(teacher: Any, name: str, first: Any, second: Any) -> None:
    """Ask a prepared question, which both phones answer differently, and close voting."""
    teacher.select_option("[data-role=prepared]", name)
    type_prompt(teacher, PROMPT)
    click(teacher, "Ask the class")
    for option, phone in enumerate((first, second)):
        phone.locator(".sd-asked-option").nth(option).click()
        asked(phone).to_contain_text("You can change your answer until voting closes.")
    asked(teacher).to_contain_text("2 of 2 have answered")
    click(teacher, "Close voting")
    type_prompt(teacher, "A prompt for later")
    for page in (first, second, teacher):
        expect(page.locator(".sd-answer-count").first).to_have_text("1 (50%)")
    asked(first).to_contain_text("Wait for the result.")


def measuring(*phones: Any) -> None:
    for phone in phones:
        asked(phone).to_contain_text("The answer is being measured now.")


def start(teacher: Any) -> None:
    """Read whether phones can reach the page, at two of its addresses, and start the class."""
    address = teacher.url
    for page_at, words in (
        (
            address.replace("127.0.0.1", SCHOOL),
            f"Students will open {SCHOOL}:{urlsplit(address).port}/class",
        ),
        (address, "Phones can't reach this page"),
    ):
        teacher.goto(page_at)
        teacher.wait_for_selector(MOUNTED, state="attached")
        go(teacher, "class")
        expect(teacher.locator(f".sd-class p:has-text({json.dumps(words)})")).to_be_visible()
    open_class(teacher)
    expect(teacher.get_by_role("link", name="Lesson plans and worksheet")).to_be_visible()
    expect(teacher.locator("[data-role=here]")).to_have_text("0 students are here.")


def join(teacher: Any, persons: Persons) -> tuple[Any, Any]:
    """Type the code of the full screen on one phone, first wrongly, and open the link on the other."""
    press(teacher, "join-open")
    code = teacher.inner_text("[data-role=join-code]")
    teacher.keyboard.press("Escape")
    typing = persons.comes("class", **PHONE)
    spaced = f"{code[:2]} {code[2:]}".lower()
    for typed in ("zzzzzz", spaced):
        typing.fill("input[name=code]", typed)
        typing.click("text=Join")
        typing.wait_for_url(f"**/{typed.replace(' ', '').upper()}")
        if typed != spaced:
            expect(typing.locator("[data-role=refused]")).to_contain_text("no class with this code")
    phones = typing, persons.comes(f"specdemo-class/{code}", **PHONE)
    for phone in phones:
        where(phone).to_have_text("Your teacher is on the tab “Class”; look at the projector.")
    expect(teacher.locator("[data-role=here]")).to_have_text("2 students are here.")
    return phones


def measure_while_looking_elsewhere(teacher: Any, phones: tuple[Any, Any], device: Device) -> None:
    """Measure a run, pause it, and open other tabs: the phones have the result once the job has ended."""
    ask(teacher, "run-speed", *phones)
    device.is_free.clear()
    click(teacher, "Measure it")
    measuring(*phones)
    for phone in phones:
        asked(phone).to_contain_text(f"“{PROMPT}”")
        expect(phone.locator("[data-lane=speculative]")).to_contain_text(PROMPT)
        expect(phone.locator("[data-lane=speculative] .sd-token:visible").first).to_be_visible()
    press(teacher, "play")  # pauses it
    for tab, words in (("learn", "This page follows"), ("lab", "“Lab”")):
        go(teacher, tab)
        where(phones[0]).to_contain_text(words)
    measuring(*phones)
    device.is_free.set()
    for phone in phones:
        asked(phone).to_contain_text("Measured: ")
        asked(phone).to_contain_text("1 of 2 were right.")
    assert sorted(phone.inner_text(TOLD)[: len(RIGHT)] for phone in phones) == [RIGHT, WRONG]
    go(teacher, "run")
    teacher.click(".sd-player-more")
    press(teacher, "to-end")
    teacher.click("text=Show the students' answers")
    asked(teacher).to_contain_text("1 of 2 were right.")
    click(teacher, "Next question")


def leave_in_the_middle(teacher: Any, phones: tuple[Any, Any], device: Device) -> None:
    """Leave the page during a measurement: without a verdict, the phones get the recorded answer."""
    ask(teacher, "five", *phones)
    device.is_free.clear()
    click(teacher, "Measure it")
    measuring(*phones)
    page = teacher.url
    teacher.goto("about:blank")
    device.is_free.set()
    for phone in phones:
        expect(phone.locator(TOLD)).to_have_text(RECORDED)
        asked(phone).to_contain_text(FIVE.undecided)
        asked(phone).to_contain_text(f": {FIVE.options[0].why}")
    teacher.goto(page)
    teacher.wait_for_selector(MOUNTED, state="attached")
    asked(teacher).to_contain_text(RECORDED)


def play_a_game(teacher: Any, phones: tuple[Any, Any]) -> None:
    """Start a game while the phones are elsewhere on their pages: its form and its results come into view."""
    click(teacher, "Next question")
    for phone in phones:
        phone.evaluate("scrollTo(0, document.body.scrollHeight)")
    teacher.fill(".sd-class-game textarea[name=text]", "Please answer")
    teacher.fill(".sd-class-game input[name=seconds]", "5")
    click(teacher, "Start the game")
    for phone in phones:
        expect(phone.locator(".sd-game-form textarea")).to_be_in_viewport()
        phone.fill(".sd-game-form textarea", "as soon as you can")
        phone.evaluate("scrollTo(0, document.body.scrollHeight)")
    for phone in phones:
        expect(phone.locator(".sd-game-figures")).to_be_in_viewport()
    click(teacher, "New game")


def lose_the_connection(teacher: Any) -> None:
    """Open another tab while nothing reaches the server: the code of the class says so there."""
    go(teacher, "run")
    chip = teacher.locator(".sd-class-chip")
    expect(chip).to_have_text(re.compile(r"Class \w+ · 2"))
    teacher.context.set_offline(True)
    expect(chip).to_contain_text("no connection")
    teacher.context.set_offline(False)
    expect(chip).to_have_text(re.compile(r"Class \w+ · 2"))
    go(teacher, "class")


def continue_in_a_second_window(teacher: Any) -> Any:
    with teacher.expect_popup() as opened:
        teacher.evaluate("() => void window.open(location.href)")
    second = opened.value
    second.wait_for_selector(".sd-class[data-state=open]", state="attached")
    expect(teacher.locator(".sd-class")).to_contain_text("Another window of yours controls this class now")
    asked(second).to_contain_text(RECORDED)
    return second


def drawn(paper: bytes) -> list[bytes]:
    """Return what a printed page draws, without the date."""
    return re.findall(rb"stream\r?\n(.*?)\r?\nendstream", paper, re.DOTALL)


def print_summary(teacher: Any) -> None:
    press(teacher, "sum-up")
    for words in ("Is this run faster", "Measured: ", FIVE.text, RECORDED, "1 (50%)"):
        summary(teacher).to_contain_text(words)
    teacher.emulate_media(media="print")
    expect(
        teacher.locator(".sd-class-door, .sd-header h1, .sd-class .sd-button >> visible=true")
    ).to_have_count(0)
    assert teacher.locator("[data-role=summary]").bounding_box()["width"] > 0.8 * A4_PX["width"]
    assert teacher.pdf(format="A4").count(b"/Type /Page\n") == 1
    teacher.emulate_media(media="null")
    teacher.set_viewport_size({"width": 1280, "height": 720})
    plain = drawn(teacher.pdf(format="A4"))
    teacher.click("label:has([data-role=projector])")
    assert drawn(teacher.pdf(format="A4")) == plain, "a projector changes nothing on paper"
    teacher.click("label:has([data-role=projector])")
    teacher.set_viewport_size(A4_PX)


def end(teacher: Any, phones: tuple[Any, Any]) -> None:
    press(teacher, "end", "end")
    expect(teacher.locator(".sd-class")).to_contain_text("The class has ended.")
    for phone in phones:
        where(phone).to_contain_text("The class has ended.")


def test_a_lesson_from_its_start_to_its_end(persons, device):
    teacher = persons.comes(viewport=A4_PX)
    start(teacher)
    phones = join(teacher, persons)
    measure_while_looking_elsewhere(teacher, phones, device)
    leave_in_the_middle(teacher, phones, device)
    lose_the_connection(teacher)
    second = continue_in_a_second_window(teacher)
    print_summary(second)
    play_a_game(second, phones)
    end(second, phones)
