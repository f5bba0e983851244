"""The quiz of the tab "Learn" (questions, two buttons, results), and the API endpoint ``quiz``."""

from typing import Any

import gradio as gr

from specdemo.quiz.questions import QUESTIONS
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs
from specdemo.ui.component import PREFIX, component
from specdemo.ui.streams import Stops, streamed

# The browser names the question when it sends the request: a value that it sets in a component while the page
# is still loading can get lost.
VALUES = f"""async () => {{
    const module = await import(new URL('{PREFIX}/learn/quiz.js', document.baseURI));
    return module.askedQuestion();
}}"""


def build_quiz(service: RunService, pair: gr.Dropdown) -> Stops:
    """Add the quiz to the page that is being built; return the stop requests of its jobs."""
    stops = Stops()
    with gr.Column(elem_id="quiz"):
        settings = {"questions": shown_questions()}
        label = "Question number, from 1"
        asked = component("quiz-questions", "learn/quiz.js", "mountQuestions", settings, label)
        with gr.Row(elem_id="quiz-buttons"):
            run = gr.Button("Run it", variant="primary", scale=0, min_width=130, elem_id="quiz-run")
            stop = gr.Button("Stop", interactive=False, scale=0, min_width=90, elem_id="quiz-stop")
        results = component("quiz-results", "learn/quiz.js", "mountResults")
    endpoint = streamed(service, stops, JobKind.QUIZ, quiz)
    jobs.wire(stops, endpoint, [(run, [asked, pair])], results, stop, VALUES)
    return stops


def shown_questions() -> list[dict[str, Any]]:
    """Return the parts of each question that the browser shows; only a run reveals the answer."""
    return [
        {
            "name": question.name,
            "text": question.text,
            "setup": question.setup,
            "options": [option.text for option in question.options],
        }
        for question in QUESTIONS
    ]


def quiz(question: int, pair: str, request: gr.Request) -> dict[str, Any]:
    """Measure the answer to a question of the quiz; yield the events as growing NDJSON.

    ``question`` is the number of the question, from 1. The last event, ``verdict``, has the ``option``
    (from 0) that the measured figures support, or null if they are too close. ``pair`` is the name of the
    models, if there are several.
    """
    return {"question": question}
