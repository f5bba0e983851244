"""The functions of the buttons Run and Recalibrate; the one of Run is also the API endpoint ``run``."""

from collections.abc import Iterator
from html import escape
from typing import Any

import gradio as gr

from specdemo.records import limits
from specdemo.records.limits import UserError
from specdemo.records.trace import AUTO
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs
from specdemo.ui.http.visitors import visitor_of


def run(
    prompt: str,
    mode: str,
    drafter: str,
    k: int,
    auto: bool,
    temperature: float,
    rule: str,
    max_new_tokens: int,
    seed: int,
    top_k: int,
    top_p: float,
    baseline: bool,
    draft_alone: bool,
    repeats: int,
    pair: str,
    request: gr.Request,
) -> dict[str, Any]:
    """Decode a prompt with and without drafts; yield the run's events as growing NDJSON.

    If ``auto`` is true, the decoder chooses the length of each draft and ignores ``k``. ``baseline`` also
    runs the target alone, for comparison, and ``draft_alone`` the draft model alone. With ``repeats``
    above 1, the rounds arrive after all runs have ended: those of the run with the median speedup.
    ``pair`` is the name of the models, if there are several.
    """
    return {
        "prompt": prompt,
        "mode": mode,
        "drafter": drafter,
        "k": AUTO if limits.flag({"auto": auto}, "auto", False) else k,
        "temperature": temperature,
        "rule": rule,
        "max_new_tokens": max_new_tokens,
        "seed": seed,
        "top_k": top_k,
        "top_p": top_p,
        "baseline": baseline,
        "draft_alone": draft_alone,
        "repeats": repeats,
    }


def wire_recalibration(
    service: RunService, button: gr.Button, shown: gr.HTML, pair_choice: gr.Dropdown
) -> None:
    """Make ``button`` measure the pass costs of the chosen pair again and show the result in ``shown``."""

    def recalibrate(pair: str, request: gr.Request) -> Iterator[str]:
        try:
            for event in service.events(JobKind.CALIBRATE, {}, lambda: False, pair, visitor_of(request)):
                yield escape(event.get("sentence") or event.get("text") or "")
        except UserError as error:
            yield escape(str(error))

    button.click(
        recalibrate,
        pair_choice,
        shown,
        preprocess=False,
        concurrency_limit=None,
        concurrency_id=jobs.DEVICE,
        show_progress="hidden",
        api_visibility="private",
    )
