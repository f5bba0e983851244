"""The teacher's pages: values, names of recordings, lessons, buttons and answers are those of the program."""

import base64
import json
import re
from pathlib import Path
from statistics import median_low

import pytest

from specdemo.asset_paths import RECORDINGS
from specdemo.quiz.questions import QUESTIONS
from specdemo.records import recordings
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.theory import expected_tokens, is_slower
from specdemo.records.trace import SPECULATIVE
from specdemo.ui.component import STATIC, static_text
from specdemo.ui.site import ANSWERS

BENCHMARKS = Path(__file__).parents[2] / "assets" / "benchmarks"
MACHINES = ("zen5", "zen5-avx2", "h100")
WORKSHEET, PLAN = (static_text(f"class/{name}.html") for name in ("worksheet", "lesson-plan"))
LESSONS = static_text("learn/lessons.html")


@pytest.fixture(autouse=True)
def _shipped_recordings(monkeypatch):
    """Read the recordings of the program, even while other tests of this process serve their own."""
    monkeypatch.setattr(recordings, "FOLDER", RECORDINGS)


def facts(name):
    """Return the values that the page shows of a recording."""
    run = recordings.load(name)
    totals, rounds = run.totals, run.lanes[SPECULATIVE].rounds
    first = rounds[0]
    alpha = round(totals["alpha_compared"], 2)
    drafted = [token for round_ in rounds for token in round_.drafted]

    def words(tokens):
        return b"".join(base64.b64decode(run.pieces[token.id]) for token in tokens).decode().strip()

    return {
        "k": run.config.k,
        "tokens": totals["tokens"],
        "passes": totals["passes"],
        "tau": f"{totals['tau']:.2f}",
        "alpha": f"{alpha:.0%}",
        "speedup": f"{totals['speedup'] or 0:.2f}×",
        "verdict": "slower" if is_slower(totals["speedup"]) else "faster",
        "same": "yes" if totals["identical"] else "no",
        "rate": f"{totals['tokens_per_s']:.0f}",
        "drafted": len(drafted),
        "accepted": sum(round_.accepted for round_ in rounds),
        "expected": f"{expected_tokens(alpha, run.config.k):.2f}" if run.config.k != "auto" else None,
        "baseline_tokens": totals["baseline_tokens"],
        "baseline_passes": totals["baseline_passes"],
        "baseline_rate": f"{totals['baseline_tokens_per_s']:.0f}",
        "draft_rate": f"{totals['draft_alone_tokens_per_s'] or 0:.0f}",
        "difference": totals["draft_divergence"] is not None and totals["draft_divergence"] + 1,
        "first_drafted": len(first.drafted),
        "first_accepted": first.accepted,
        "first_compared": first.compared,
        "first_emitted": len(first.emitted),
        "accepted_words": words(first.drafted[: first.accepted]),
        "rejected_words": words(first.drafted[first.accepted : first.compared]),
        "later_words": words(first.drafted[first.compared :]),
        "own_word": words([first.emission]),
    }


def overlap_example():
    """Return the answers about the figure of p and q, from the numbers in its module."""
    source = (STATIC / "stage" / "overlap.js").read_text(encoding="utf-8")
    rows = {
        name: (float(q), float(p))
        for name, q, p in re.findall(r'name: "(\w+)", q: ([\d.]+), p: ([\d.]+)', source)
    }
    u = float(re.search(r"EXAMPLE_U = ([\d.]+)", source)[1])
    assert all(abs(sum(one) - 1) < 1e-9 for one in zip(*rows.values(), strict=True))
    (q, p), common = rows["the"], sum(map(min, rows.values()))
    residual = {name: f"{max(0, p - q) / (1 - common):.0%}" for name, (q, p) in rows.items()}
    verdict = "rejected" if u > p / q else "accepted"
    return {"accept": f"{min(1, p / q):.2f}", "verdict": verdict, "common": f"{common:.0%}", **residual}


def benchmarked():
    """Return the median speedup of each machine with the draft model, and the speedups of all prompts."""
    rows = [
        json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["rows"] for name in MACHINES
    ]
    speedups = [[row["speedup"] for row in part if row["drafter"] == DRAFT_MODEL] for part in rows]
    return [median_low(part) for part in speedups], [speedup for part in speedups for speedup in part]


def test_the_values_of_the_answer_key_are_those_of_the_recordings():
    shown = re.findall(r'data-value="([\w-]+)\.(\w+)">(.*?)<', WORKSHEET)
    assert len(shown) > 40
    known = {
        name: facts(name) for name in {name for name, _, _ in shown} - {"formula", "benchmarks", "overlap"}
    }
    medians, speedups = benchmarked()
    known["benchmarks"] = {
        "lowest": f"{min(medians):.2f}×",
        "highest": f"{max(medians):.2f}×",
        "slowest": f"{min(speedups):.2f}×",
        "fastest": f"{max(speedups):.2f}×",
    }
    known["overlap"] = overlap_example()
    known["formula"] = {str(alpha): f"{expected_tokens(alpha / 100, 4):.2f}" for alpha in (30, 90)}
    expected = [(name, fact, str(known[name][fact])) for name, fact, _ in shown]
    assert shown == expected


def test_lesson_4_has_the_figure_and_the_answers_of_the_worksheet():
    facts = overlap_example()
    assert f"the common part is {facts['common']}" in LESSONS
    assert f"“an” ({facts['an']}) or “a” ({facts['a']})" in LESSONS
    assert "“the” is rejected" in LESSONS and facts["verdict"] == "rejected"


def test_the_answers_to_questions_of_the_quiz_are_the_recorded_ones():
    events = [json.loads(line) for line in static_text(ANSWERS).splitlines()]
    recorded = {event["question"]: event["option"] for event in events if event["type"] == "verdict"}
    shown = re.findall(r"<tr><td>(\d)\..*?<b data-answer>(.*?)<", WORKSHEET)
    expected = [(number, QUESTIONS[int(number) - 1].options[recorded[int(number)]].text) for number in "146"]
    assert shown == expected


def test_named_recordings_lessons_and_buttons_exist():
    titles = {recording.title.replace("'", "’") for recording in recordings.listed()}
    assert set(re.findall(r"“([^”]{9,})”", WORKSHEET)) <= titles
    lessons = re.findall(r"<h2>(.*?)</h2>", LESSONS)
    assert re.findall(r"<h2>\d\. (.*?)</h2>", WORKSHEET)[:6] == lessons[:6]
    assert set(re.findall(r"[Ll]esson “(.*?)”", PLAN)) == set(lessons[:6])
    assert all(
        (Path(__file__).parents[2] / name).is_file()
        for name in re.findall(r"<code>(assets/.*?)</code>", PLAN)
    )
    buttons = set(re.findall(r'"press">([^›→]{5,}?)</b>', PLAN))
    texts = "".join(
        path.read_text(encoding="utf-8") for path in STATIC.rglob("*.*") if path.suffix in (".html", ".js")
    )
    assert [name for name in buttons if f">{name}<" not in texts and f'"{name}"' not in texts] == []
