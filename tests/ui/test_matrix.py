"""The page at every size, in every font and state: nothing is cut, covered or overwritten."""

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.browsing import in_every_font
from helpers.layout import faults
from helpers.replay import recorded
from helpers.visitor import FRAMES, end_class, open_class, open_round, press, receive_run, run_to_end
from helpers.watched_runs import watched_events

SIZES = {
    "1280x720": (1280, 720),
    "1366x768": (1366, 768),
    "projector": (1920, 1080),
    "125 %": (1024, 576),
    "150 %": (853, 480),
    "phone": (390, 844),
}
IN_ONE_SCREEN = ("1280x720", "1366x768", "projector")
ALWAYS = (".sd-legend", ".sd-transport")
LIVE = ("[data-role=rounds]", "[data-plot=race]")
PROJECTOR = """on => {
    const box = document.querySelector('[data-role=projector]');
    if (box.checked !== on) box.click(); }"""
LONG_PROMPT = "Write a story about a lighthouse keeper who finds a letter in a bottle. " * 111


def idle(page: Any, service: Any) -> None:
    pass


def running(page: Any, service: Any) -> None:
    receive_run(page)
    press(page, "to-start", "round-on", "round-on", "round-on", "phase-on", "phase-on")


def ended(page: Any, service: Any) -> None:
    run_to_end(page)


def microscope(page: Any, service: Any) -> None:
    run_to_end(page)
    open_round(page, 1, 20)


def third_lane(page: Any, service: Any) -> None:
    service.replayed = recorded("shared_noise")
    run_to_end(page)


def long_prompt(page: Any, service: Any) -> None:
    page.fill("#prompt textarea", LONG_PROMPT[:8000])
    run_to_end(page)


def watched(page: Any, service: Any) -> None:
    service.replayed = watched_events("llama-models.json", "llama-ngram-text-code")
    run_to_end(page)
    rounds = [event["round"] for event in service.replayed if event["type"] == "round"]
    longest = max(range(len(rounds)), key=lambda index: len(rounds[index]["drafted"]))
    open_round(page, longest, len(rounds))


def settings(page: Any, service: Any) -> None:
    page.click("#more > button")


def tab(name: str) -> Any:
    def state(page: Any, service: Any) -> None:
        page.click(f"#tab-{name}-button")
        page.wait_for_selector("#lessons h2" if name == "learn" else f"#{name} .sd-{name}")

    state.__name__ = name
    return state


TABS = map(tab, ("learn", "play", "proof", "lab"))
STAGE_STATES = (idle, running, ended, microscope, third_lane, long_prompt, watched)
OTHER_STATES = (settings, *TABS)


def cases(states: Any, dark: Any) -> Any:
    # Places do not depend on colours; a few states in dark show that.
    both = [(state, "light") for state in states] + [(state, "dark") for state in dark]
    names = [f"{state.__name__}-{theme}" for state, theme in both]
    return pytest.mark.parametrize(("state", "theme"), both, ids=names)


def look(page: Any, size: str) -> list[str]:
    """Return what is cut or covered at this size."""
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(250)  # resize observers run
    page.evaluate(FRAMES)
    page.evaluate("scrollTo(0, 0)")
    return faults(page)


@pytest.mark.slow
@in_every_font
@cases((*STAGE_STATES, *OTHER_STATES), dark=(ended, microscope))
def test_nothing_is_cut_or_covered(open_page, service, state, theme):
    page = open_page(theme=theme)
    state(page, service)
    seen = list(faults_at_every_size(page, state))
    assert not seen, "\n".join(seen)


def faults_at_every_size(page: Any, state: Any) -> Iterator[str]:
    for name, (_, height) in SIZES.items():
        # In some tabs the switch is out of sight, but its setting applies there too.
        page.evaluate(PROJECTOR, name == "projector")
        yield from (f"{name}: {fault}" for fault in look(page, name))
        if name in IN_ONE_SCREEN and state in STAGE_STATES:
            parts = [*ALWAYS, *live_charts(page, name)]
            yield from (f"{name}: below the fold: {part}" for part in parts if not within(page, part, height))


def live_charts(page: Any, size: str) -> tuple[str, ...]:
    """Return the charts beside the lanes: on a projector none, with the microscope only the first."""
    if size == "projector":
        return ()
    return LIVE[:1] if page.locator(".sd[data-inspecting]").count() else LIVE


def within(page: Any, part: str, height: int) -> bool:
    box = page.locator(part).bounding_box()
    return bool(box) and box["y"] >= 0 and box["y"] + box["height"] <= height + 0.5


def waiting(teacher: Any, student: Any) -> None:
    pass


def question(teacher: Any, student: Any) -> None:
    for name, text in {
        "text": "What happens to the speedup with drafts that are twice as long?",
        "options": "It rises a lot\nIt rises a little\nIt falls\nIt depends on α",
    }.items():
        teacher.fill(f".sd-class textarea[name={name}]", text)
    teacher.click("text=Ask the class")
    student.click(".sd-asked-option >> nth=2")
    teacher.wait_for_selector("text=1 of 1 have answered")


def result(teacher: Any, student: Any) -> None:
    question(teacher, student)
    teacher.click("text=Close voting")
    teacher.click("text=D is right")
    student.wait_for_selector("text=You were wrong.")
    press(teacher, "sum-up")


def writing(teacher: Any, student: Any) -> None:
    teacher.fill(".sd-class-game textarea[name=text]", "Once upon a time there was a")
    teacher.fill(".sd-class-game input[name=seconds]", "120")
    teacher.click("text=Start the game")
    student.wait_for_selector(".sd-game-form textarea")
    teacher.wait_for_selector("text=Cancel the game")


@pytest.mark.slow
@in_every_font
@cases((waiting, question, result, writing), dark=(question,))
def test_nothing_of_a_class_is_cut_or_covered(open_page, patient_page, state, theme):
    teacher = open_page(theme=theme)
    open_class(teacher)
    student = patient_page(color_scheme=theme)
    student.goto(teacher.text_content(".sd-class-link"))
    student.wait_for_selector(".sd-student[data-state=following]")
    state(teacher, student)
    seen = []
    for name in SIZES:
        teacher.evaluate(PROJECTOR, name == "projector")
        for who, page in (("teacher", teacher), ("student", student)):
            seen += [f"{who}, {name}: {fault}" for fault in look(page, name)]
    end_class(teacher)
    assert not seen, "\n".join(seen)
