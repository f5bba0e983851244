"""Prepared questions: the server measures the answer, with or without the teacher's page."""

import asyncio

import pytest
from helpers.replay import beginning, steady
from helpers.rooms import Clock, on_loop, post
from helpers.stand_in import StandIn, planted

from specdemo.classroom.class_jobs import SPEED, SURVIVORS, answer_in
from specdemo.classroom.room import SILENT_S, Room
from specdemo.quiz.questions import QUESTIONS
from specdemo.records.limits import UserError
from specdemo.ui.http.class_routes import submit_with

COST = next(question for question in QUESTIONS if question.name == "cost")
OPTIONS = [option.text for option in COST.options]
OF_RUN = {"type": "ask", "text": "Faster?", "options": ["Faster", "Slower"], "prepared": SPEED}
SETTINGS = {"prompt": "Why?", "max_new_tokens": 64, "k": 7, "repeats": 3, "pair": "built-in"}
TOTALS = {"accepted_by_position": [9, 2, 1, 0], "passes": 10, "speedup": 1.4}


class Lesson:
    """A class with a prepared question on a device that stands in for the real one."""

    def __init__(self, question):
        self.device = StandIn()
        self.device.replayed = steady(beginning("greedy"))
        self.clock = Clock()
        self.room = Room("BCDFG", self.clock, submit_with(self.device, "192.0.2.1", "BCDFG"))
        self.student = self.room.students.join()
        self.room.take(post({"type": "ask", **question}))
        self.room.answer(self.student, {"question": 1, "answer": 0})

    def tell(self, *messages, **seen):
        return self.room.take({**post(*messages), "seen": seen})

    @property
    def shown(self):
        return self.room.questions.current.for_students()

    async def until(self, condition):
        while not condition():
            await asyncio.sleep(0.01)

    async def until_phase(self, phase):
        await self.until(lambda: self.shown["phase"] == phase)


def of_quiz():
    return Lesson({"text": COST.text, "options": OPTIONS, "prepared": "cost"})


def of_run():
    return Lesson({**OF_RUN, "settings": SETTINGS})


@on_loop
async def test_a_measurement_ends_without_the_teachers_page():
    for lesson in (of_quiz(), of_run()):
        lesson.tell({"type": "measure"})
        lesson.clock.now += SILENT_S  # the page is gone
        await lesson.until_phase("revealed")
        shown = lesson.shown
        assert (shown["right"], shown["measured"], shown["bars"][0]["count"]) == (0, True, 1)
        assert lesson.room.summary()["questions"][0]["figures"]
    assert lesson.device.requests == [{"prompt": "Why?", "max_new_tokens": 64, "k": 4, "repeats": 1}]


@on_loop
async def test_the_result_of_a_run_waits_until_the_teachers_page_has_shown_it():
    lesson = of_run()
    lesson.tell({"type": "measure"})
    await lesson.until(lambda: lesson.tell()["measurement"]["ended"])
    await asyncio.sleep(0.3)
    assert lesson.shown["phase"] == "measuring" and "right" not in lesson.shown
    lesson.tell({"type": "shown", "measurement": 1})
    await lesson.until_phase("revealed")


@on_loop
async def test_the_teachers_page_gets_every_event_once_and_after_a_reload_all_of_them():
    lesson, seen = of_run(), []
    lesson.device.hold_at = 3
    lesson.tell({"type": "measure"})
    await lesson.until(lambda: lesson.device.served == 3)
    seen += lesson.tell()["measurement"]["events"]
    lesson.device.go_on()
    while not (news := lesson.tell(measurement=1, events=len(seen))["measurement"])["ended"]:
        seen += news["events"]
        await asyncio.sleep(0.01)
    seen += news["events"]
    assert lesson.tell()["measurement"]["events"] == seen
    assert (seen[-1]["type"], news["kind"], news["question"]) == ("end", "run", 1)
    lesson.tell({"type": "shown", "measurement": 1})
    await lesson.until_phase("revealed")
    assert lesson.tell()["measurement"] is None, "a page that is opened later does not show it again"
    with pytest.raises(UserError, match="events must be"):
        lesson.tell(measurement=1, events=10_000)


@on_loop
async def test_a_failed_measurement_can_be_repeated():
    lesson = of_quiz()
    lesson.device.fault = "The GPU is gone."
    lesson.tell({"type": "measure"})
    await lesson.until_phase("closed")
    assert lesson.shown["error"] == lesson.tell()["question"]["error"] == "The GPU is gone."
    lesson.device.fault = None
    lesson.tell({"type": "measure"})
    await lesson.until_phase("revealed")
    assert lesson.shown["error"] is None


@on_loop
async def test_a_stopped_measurement_frees_the_device_and_can_be_repeated_at_once():
    lesson = of_quiz()
    lesson.device.hold_at = 1
    lesson.tell({"type": "measure"})
    await lesson.until(lambda: lesson.device.served == 1)
    with pytest.raises(UserError, match="measured already"):
        lesson.tell({"type": "measure"})
    lesson.tell({"type": "close"})
    assert lesson.shown["phase"] == "closed" and lesson.shown["error"]
    lesson.device.go_on()
    lesson.tell({"type": "measure"})
    await lesson.until_phase("revealed")
    assert len(lesson.device.requests) == 2
    for last in ({"type": "dismiss"}, None):
        lesson.tell({"type": "ask", "text": COST.text, "options": OPTIONS, "prepared": "cost"})
        lesson.device.hold_at = 1
        lesson.tell({"type": "measure"})
        await lesson.until(lambda: lesson.device.served == 1 and not lesson.device.ended)
        lesson.tell(last) if last else lesson.room.end()
        await lesson.until(lambda: lesson.device.ended)
        lesson.device.go_on()


@on_loop
async def test_students_read_that_a_measurement_waits_in_the_queue():
    lesson = of_run()
    lesson.device.ahead = 2
    lesson.tell({"type": "measure"})
    await lesson.until(lambda: lesson.shown["ahead"] == 2)
    lesson.device.go_on()
    await lesson.until(lambda: lesson.shown["ahead"] == 0)


@on_loop
async def test_figures_that_are_too_close_give_the_recorded_answer_which_nobody_is_compared_with():
    lesson = of_quiz()
    lesson.device.outcomes = {"cost": (planted(speedup=1.0), planted(speedup=0.8))}
    lesson.tell({"type": "measure"})
    await lesson.until_phase("revealed")
    shown = lesson.shown
    assert (shown["recorded"], shown["measured"], shown["right_answers"]) == (True, False, 0)
    assert shown["right"] is not None and "Recorded on" in shown["why"]


@on_loop
async def test_a_server_without_jobs_measures_nothing_and_the_teacher_enters_the_result():
    room = Room("BCDFG")
    room.take(post({"type": "ask", "text": COST.text, "options": OPTIONS, "prepared": "cost"}))
    assert room.take(post())["question"]["prepared"] is None
    with pytest.raises(UserError, match="enter the result"):
        room.take(post({"type": "measure"}))


@pytest.mark.parametrize(
    ("change", "doubt", "speed", "survivors"),
    [
        ({}, None, 0, 1),
        ({"speedup": 0.9, "passes": 4}, None, 1, 3),
        ({"speedup": None, "passes": 0}, None, None, None),
        ({}, "undecided", None, 1),
    ],
)
def test_the_options_follow_from_the_figures_of_the_run(change, doubt, speed, survivors):
    end = {"type": "end", "finish": "length", "totals": {**TOTALS, **change}, "doubt": doubt}
    assert [answer_in(name, [end]).right for name in (SPEED, SURVIVORS)] == [speed, survivors]


def test_a_disturbed_or_stopped_run_gives_no_answer():
    end = {"type": "end", "finish": "length", "totals": TOTALS, "doubt": "disturbed"}
    with pytest.raises(UserError, match="disturbed"):
        answer_in(SPEED, [end])
    for events in ([{**end, "finish": "stopped"}], []):
        with pytest.raises(UserError, match="was stopped"):
            answer_in(SURVIVORS, events)
    why = answer_in(SURVIVORS, [end]).why
    assert why.startswith("Measured: 1.2 of 4 draft tokens accepted per round, at 1.40× (disturbed)")
