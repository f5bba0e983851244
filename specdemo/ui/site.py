"""The static copy of the page: a folder with recorded runs that any web server can serve, under any path."""

import json
import math
import re
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
from specdemo.pairs.browser_files import PLAN, write_files
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
LIVE, MODELS, OFFLINE = "live", "specdemo-models", "offline.js"
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


RUNNING_BYTES = 80_000_000  # memory of a visitor's browser besides that of the models
ISOLATION = {"cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp"}
"""The headers without which browsers give a page only one thread."""
SPACE = """---
title: {title}
sdk: static
app_file: index.html
custom_headers:
{headers}---
"""
COMMENTS = re.compile(r"^[ \t]*(?:/\*\*.*?\*/|//[^\n]*)\n", re.MULTILINE | re.DOTALL)
"""Comments on lines of their own, which a visitor need not load."""
RECORDED_LINE = (
    '<p class="sd-copy-line">Every run on this page was recorded earlier. To run your own prompts, start the '
    "live page with the command <code>specdemo serve</code>.</p>"
)


def write_site(folder: Path, live: bool = False) -> None:
    """Write the static copy; if ``live``, with the built-in pair, which then runs in visitors' browsers."""
    if live:
        write_files(folder / MODELS)
        shutil.copytree(STATIC / LIVE, folder / PREFIX / LIVE, ignore=shutil.ignore_patterns("*.html"))
        (folder / PREFIX / LIVE / OFFLINE).rename(folder / OFFLINE)  # it serves the pages of its folder
        headers = "".join(f"  {name}: {value}\n" for name, value in ISOLATION.items())
        (folder / "_headers").write_text(f"/*\n{headers}", encoding="utf-8")  # some hosts read it
        (folder / "README.md").write_text(SPACE.format(title=TITLE, headers=headers), encoding="utf-8")
    files, traces, answers = folder / PREFIX, folder / TRACES, folder / LAB / "run"
    proofs = files / PROOFS
    for part in (files, proofs, traces, answers):
        part.mkdir(parents=True, exist_ok=True)
    modules = module_sources(STATIC, ENTRY)
    (folder / "index.html").write_text(
        _page(modules, _form(folder / MODELS) if live else RECORDED_LINE), encoding="utf-8"
    )
    for name, source in modules.items():
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).write_text(COMMENTS.sub("", source), encoding="utf-8")
    for name in (*(f"{sheet}.css" for sheet in SHEETS), ANSWERS, FAVICON):
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


def _form(models: Path) -> str:
    """Return the form for a visitor's own runs."""
    plan = json.loads((models / PLAN).read_bytes())
    download = plan["tokens"]["bytes"] + sum(piece["bytes"] for piece in plan["pieces"])
    return Template(static_text(f"{LIVE}/live.html")).substitute(
        files=PREFIX,
        models=f"{MODELS}/",
        prompt=escape(recordings.load(stage.ARRIVAL).config.prompt),
        lengths="".join(f"<option>{k}</option>" for k in range(1, plan["max_k"] + 1)),
        megabytes=f"{download / 1e6:.0f}",
        memory=f"{math.ceil((plan['memory'] + RUNNING_BYTES) / 1e7) * 10:.0f}",
    )


def _page(modules: Iterable[str], first: str) -> str:
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
        first=first,
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
