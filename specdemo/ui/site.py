"""The static copy of the page: a folder with recorded runs that any web server can serve, under any path."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from specdemo.charts.palette import css_variables
from specdemo.engine.race import replay_lines
from specdemo.lab.answers import run_answer
from specdemo.proof.proof_events import distribution_chart
from specdemo.records import recordings
from specdemo.records.trace import dump
from specdemo.ui import stage
from specdemo.ui.component import CLAIM, DRESS, PREFIX, STATIC, inline_json, static_text
from specdemo.ui.http.offline import module_sources
from specdemo.ui.http.own_routes import LAB, TRACES
from specdemo.ui.http.sharing import FAVICON
from specdemo.ui.page import HEADER, TITLE, TOOLS
from specdemo.ui.tabs import lab, proof, quiz

ENTRY = "site/site.js"
ANSWERS = "learn/quiz-answers.ndjson"
PROOFS = "proof/recorded"
SHEETS = (
    "common/page",
    *stage.STAGE_SHEETS,
    "learn/learn",
    "learn/quiz",
    "proof/proof",
    "lab/lab",
    "site/site",
)


def write_site(folder: Path) -> None:
    files, traces, answers = folder / PREFIX, folder / TRACES, folder / LAB / "run"
    proofs = files / PROOFS
    for part in (files, proofs, traces, answers):
        part.mkdir(parents=True, exist_ok=True)
    modules = module_sources(STATIC, ENTRY)
    (folder / "index.html").write_text(_page(modules), encoding="utf-8")
    for name in (*modules, *(f"{sheet}.css" for sheet in SHEETS), ANSWERS, FAVICON):
        (files / name).parent.mkdir(exist_ok=True)
        shutil.copy(STATIC / name, files / name)
    shutil.copy(stage.PLOTLY_JS, files)
    for path in (STATIC / PROOFS).iterdir():
        shutil.copy(path, proofs)
    listed = recordings.listed()
    (traces / "index.json").write_text(dump([asdict(recording) for recording in listed]), encoding="utf-8")
    for name in (recording.name for recording in listed):
        run = recordings.load(name)
        (traces / f"{name}.ndjson").write_text(_shortened(replay_lines(run)), encoding="utf-8")
        (answers / f"{name}.json").write_text(_shortened(dump(run_answer(run))), encoding="utf-8")


def _page(modules: Iterable[str]) -> str:
    settings = {
        "stage": stage.settings(),
        "quiz": {"questions": quiz.shown_questions()},
        "proof": {"figures": distribution_chart()},
        "lab": lab.settings([]),
    }
    return Template(static_text("site/site.html")).substitute(
        title=TITLE,
        claim=escape(CLAIM),
        palette=css_variables(),
        sheets="\n".join(f'<link rel="stylesheet" href="{PREFIX}/{name}.css">' for name in SHEETS),
        modules="\n".join(f'<link rel="modulepreload" href="{PREFIX}/{name}">' for name in modules),
        files=PREFIX,
        icon=FAVICON,
        dress=DRESS,
        header=HEADER,
        tools=TOOLS,
        recordings="\n".join(map(_recording_button, recordings.listed())),
        lessons=static_text("learn/lessons.html"),
        questions=static_text("learn/quiz-questions.html"),
        results=static_text("learn/quiz-results.html"),
        proof_claim=proof.CLAIM,
        proof=static_text("proof/proof.html"),
        lab=static_text("lab/lab.html"),
        stage=static_text("stage/stage.html"),
        footer=static_text("common/footer.html"),
        settings=inline_json(settings),
    )


def _recording_button(recording: recordings.Recording) -> str:
    about, title = escape(recording.about), escape(recording.title)
    return f'<button type="button" data-recording-name="{recording.name}" title="{about}">{title}</button>'


def _shortened(lines: str) -> str:
    """Return NDJSON with six significant digits per number, which saves a fifth of its size."""

    def short(number: str) -> float:
        return float(f"{float(number):.6g}")

    values: list[Any] = [json.loads(line, parse_float=short) for line in lines.splitlines()]
    return "".join(f"{dump(value)}\n" for value in values)
