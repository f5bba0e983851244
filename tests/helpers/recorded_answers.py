"""The recorded answers of the quiz, which the static copy of the page shows.

In ``tests``, ``python -m helpers.recorded_answers`` measures them with the built-in models and writes
``quiz-answers.ndjson``. Other work on the machine disturbs the speeds.
"""

from specdemo import load_pair
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import quiz_events
from specdemo.records.trace import dump
from specdemo.ui.component import STATIC
from specdemo.ui.site import ANSWERS


def main() -> None:
    pair = load_pair()
    lines = [
        dump(event) + "\n"
        for number, question in enumerate(QUESTIONS, 1)
        for event in quiz_events(pair, number, question)
        if event["type"] != "progress"
    ]
    (STATIC / ANSWERS).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
