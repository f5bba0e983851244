"""The recorded runs, proofs and quiz answers that the program contains, made again with the built-in models.

In ``tests``, ``python -m helpers.record_again runs`` repeats each recording with its own settings; ``proofs``
and ``answers`` do the same for the tests and the quiz. Other work on the machine disturbs the speeds.
Recordings of a GPU are left as they are, unless this machine has one.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from specdemo import load_pair
from specdemo.engine.speculate import never
from specdemo.pairs.pair import Pair
from specdemo.pairs.traced_run import TracedRun
from specdemo.proof.proof_events import proof_events
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import quiz_events
from specdemo.records import recordings, trace_file
from specdemo.records.events import Event
from specdemo.records.trace import dump
from specdemo.ui.component import STATIC
from specdemo.ui.site import ANSWERS, PROOFS

ATTEMPTS = 10
PROOF_SETTINGS = ("proof", "prompts", "draws", "rule", "prompt")


def record_runs(pair: Pair) -> None:
    for name in recordings.names():
        path = recordings.FOLDER / f"{name}.json"
        recorded = trace_file.load(path.read_text("utf-8"))
        if ("threads" in pair.place) != ("threads" in recorded.device):
            continue
        traced = TracedRun(pair, recorded.config)
        for _ in traced.events():
            pass
        path.write_text(traced.run.to_json() + "\n", encoding="utf-8")
        print(f"{name}: {traced.run.totals['speedup']:.2f}×, before {recorded.totals['speedup']:.2f}×")


def record_proofs(pair: Pair) -> None:
    for path in sorted((STATIC / PROOFS).glob("*.ndjson")):
        start = json.loads(path.read_text("utf-8").splitlines()[0])
        request = parse_proof({name: start[name] for name in PROOF_SETTINGS if name in start})
        is_same = start["precision"] == pair.precision
        used = pair if is_same else load_pair(precision=start["precision"])
        write(path, proof_events(used, request, never))


def record_answers(pair: Pair) -> None:
    events = (event for number in range(1, len(QUESTIONS) + 1) for event in answered(pair, number))
    write(STATIC / ANSWERS, events)


def answered(pair: Pair, number: int) -> list[Event]:
    """Measure a question until it has a verdict, which other work on the machine may prevent."""
    for _ in range(ATTEMPTS):
        events = list(quiz_events(pair, number, QUESTIONS[number - 1]))
        if events[-1]["option"] is not None:
            return events
    raise RuntimeError(f"question {number} had no verdict in {ATTEMPTS} attempts")


def write(path: Path, events: Iterable[Event]) -> None:
    lines = [dump(event) + "\n" for event in events if event["type"] not in ("progress", "sample")]
    path.write_text("".join(lines), encoding="utf-8")
    print(path.name)


def main() -> None:
    kinds = {"runs": record_runs, "proofs": record_proofs, "answers": record_answers}
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=kinds)
    kinds[parser.parse_args().kind](load_pair())


if __name__ == "__main__":
    main()
