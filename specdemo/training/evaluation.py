"""Evaluation of a finished draft on prompts that it was not trained on; its model card and learning curve."""

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from specdemo.pairs.load import assemble_pair
from specdemo.pairs.sources import NONE, Sources
from specdemo.pairs.traced_run import TracedRun
from specdemo.records.drafter_kinds import DRAFT_MODEL, FEATURE_DRAFT, KINDS, N_GRAM
from specdemo.records.limits import parse_config
from specdemo.training.budget import StageClock, TrainingPlan
from specdemo.training.distil import LOG
from specdemo.training.training_prompts import PoolPrompt, mode_for

K = 4
NEW_TOKENS = 64
MIN_ROUNDS = 8  # rounds of the first prompt that run even after the time limit, so that there are figures
DRAFTER_OF = {"model": DRAFT_MODEL, "feature": FEATURE_DRAFT, "n-gram": N_GRAM}
FIGURES = {"alpha": "alpha_compared", "tau": "tau", "speedup": "speedup"}
CURVE = "curve.html"
TITLES = {
    "model": ("Draft model", "A small Llama made of the target's own parts."),
    "feature": ("Feature draft", "A one-layer head that reads the target's hidden states."),
    "n-gram": ("Table of n-grams", "The most frequent token after one to four tokens of the target's text."),
}


def evaluate_draft(
    target: str,
    kind: str,
    folder: Path,
    prompts: Sequence[PoolPrompt],
    device: str | None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run the draft and the baseline on ``prompts`` with greedy decoding, and return the median figures.

    ``seconds`` includes loading. A prompt that it interrupts is not counted unless it is the first one.
    """
    clock = StageClock("evaluation", seconds, total=len(prompts))
    draft = {"draft": NONE, KINDS[DRAFTER_OF[kind]].needs: str(folder)}
    pair = assemble_pair(Sources(target, device=device, **draft))
    found: list[dict[str, Any]] = []
    for prompt in prompts:
        mode = mode_for(pair.tokenizer, prompt)
        request = {"prompt": prompt.prompt, "mode": mode, "k": K, "max_new_tokens": NEW_TOKENS}
        rounds = itertools.count(0 if found else -MIN_ROUNDS)
        config = parse_config({**request, "drafter": DRAFTER_OF[kind]})
        traced = TracedRun(pair, config, lambda rounds=rounds: next(rounds) >= 0 and clock.expired)
        for _ in traced.events():
            pass
        if found and clock.expired:
            break
        totals, calibration = traced.run.totals, traced.run.calibration
        assert calibration is not None
        figures = {name: totals[key] for name, key in FIGURES.items()}
        found.append({**figures, "c": calibration.c, "identical": totals["identical"] is True})
        clock.advance(totals["tokens"], 1)
    clock.close()
    medians = {}
    for name in ("alpha", "tau", "speedup", "c"):
        known = [item[name] for item in found if item[name] is not None]
        medians[name] = statistics.median_low(known) if known else 0.0
    identical = sum(item["identical"] for item in found)
    names = {"target": pair.target_name, "precision": pair.precision}
    return {**names, **medians, "identical": identical, "prompts": len(found)}


def write_card(plan: TrainingPlan, facts: dict[str, Any], out: Path) -> None:
    """Write the model card, ``README.md``, next to the weights."""
    title, description = TITLES[plan.kind]
    if "entries" in facts:
        rows = [("Table", f"{facts['entries']:,} contexts of one to four tokens, those that gain most")]
        held_out = (
            f"a draft token for {facts['known']:.0%} of the tokens, {facts['agreement']:.0%} of them right; "
            f"a confident one for {facts['sure']:.0%}, {facts['sure_agreement']:.0%} of them right"
        )
        origin = "which wrote the text"
    else:
        covered = f"cover {facts['coverage']:.1%} of the target's own output; all other tokens have q = 0"
        rows = [("Head", f"{facts['head']:,} tokens, which {covered}")]
        agreement, overlap = (
            ", ".join(f"{value:.2f}" for value in facts[name]) for name in ("agreement", "overlap")
        )
        held_out = f"argmax agreement {agreement}, overlap {overlap}"
        origin = "whose weights the draft was made of"
    if plan.start is not None:
        rows.append(("Start", f"continues from the draft in {plan.start}"))
    source = "answers to template prompts, half of them greedy"
    if plan.text is not None:
        source = "text of several kinds by `specdemo write`"
    rows += [
        ("Text", f"{facts['tokens']:,} tokens that the target wrote itself: {source}"),
        ("Time", f"{facts['seconds'] / 60:.0f} minutes"),
        ("Precision of the training", facts["training_precision"]),
        ("Held-out text", held_out),
    ]
    folders = {"text": plan.text, "start": plan.start}
    given = "".join(f" --{flag} {path}" for flag, path in folders.items() if path)
    limit = f"--minutes {plan.minutes:g}" if plan.steps is None else f"--steps {plan.steps}"
    command = f"specdemo train --target {plan.target} --kind {plan.kind}{given} {limit} --seed {plan.seed}"
    table = "\n".join(f"| {name} | {value} |" for name, value in [("Kind", plan.kind), *rows])
    card = f"""\
---
base_model: {facts["target"]}
library_name: transformers
tags: [speculative-decoding, draft-model]
---

# {title} for {facts["target"]}

{description} It drafts tokens for the target to verify; by itself it is a poor language model.

| | |
|---|---|
{table}

Evaluated on {facts["prompts"]} prompts that are in no training text: greedy, k = {K}, up to
{NEW_TOKENS} new tokens, target in {facts["precision"]}. The figures are medians.

| α (compared tokens) | τ | c | speedup | identical to the baseline |
|---|---|---|---|---|
| {facts["alpha"]:.0%} | {facts["tau"]:.2f} | {facts["c"]:.3f} | {facts["speedup"]:.2f}× \
| {facts["identical"]} of {facts["prompts"]} |

Made by `{command}`.
The licence is that of the target, {origin}.
"""
    (out / "README.md").write_text(card, encoding="utf-8")


def write_curve(work: Path) -> None:
    """Plot the logged loss, agreement and overlap against the training step, and save the plot as HTML."""
    entries = [json.loads(line) for line in (work / LOG).read_text(encoding="utf-8").splitlines()]
    figure = go.Figure()
    losses = [entry for entry in entries if "loss" in entry]
    steps, values = [entry["step"] for entry in losses], [entry["loss"] for entry in losses]
    figure.add_scatter(name="loss", x=steps, y=values, yaxis="y2")
    checks = [entry for entry in entries if "agreement" in entry]
    for name in ("agreement", "overlap"):
        for index in range(len(checks[0][name])):
            label = f"{name}, drafted step {index + 1}"
            x, y = [entry["step"] for entry in checks], [entry[name][index] for entry in checks]
            figure.add_scatter(name=label, x=x, y=y, mode="lines+markers")
    figure.update_layout(
        title="Training loss, and agreement and overlap with the target on held-out text",
        xaxis_title="step",
        yaxis={"title": "share of positions", "rangemode": "tozero"},
        yaxis2={"title": "loss", "overlaying": "y", "side": "right"},
    )
    figure.write_html(work / CURVE, include_plotlyjs="directory")
