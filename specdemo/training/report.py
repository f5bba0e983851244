"""What a training leaves for its reader: the learning curve as a page, and the model card."""

import json
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from specdemo.training.distil import LOG

if TYPE_CHECKING:
    from specdemo.training.pace import Pace
    from specdemo.training.stages import Plan

CURVE = "curve.html"
CARD = Template("""\
---
base_model: $target
library_name: transformers
tags: [speculative-decoding, draft-model]
---

# $title for $target

$what It proposes; the target decides. On its own it is a poor writer.

| | |
|---|---|
| Kind | $kind |
$size\
$begun\
| Text | $tokens tokens that the target wrote itself, $text |
| Time | $minutes minutes |
| Arithmetic | $arithmetic |
| Held-out text of the same pool | $held_out |

Evaluated on $prompts prompts it never saw, greedy, k = 4, up to 64 new tokens, target in $precision
(medians):

| α (compared tokens) | τ | c | speedup | identical to the target alone |
|---|---|---|---|---|
| $alpha | $tau | $c | $speedup× | $identical of $prompts |
$note

Made by `specdemo train --target $source --kind $kind$given $budget --seed $seed`.
The licence is that of the target, $owing.
""")
UNMEASURED = """
There was no time for the self-test after which both lanes' passes agree to the bit, so that outputs may
part where two tokens are nearly equal; in the app they do not.
"""
WHAT = {
    "model": ("Draft model", "A small model cut from the target's own layers and distilled on its own text."),
    "feature": ("Feature draft", "A one-layer head that reads the target's hidden states."),
    "n-gram": ("Table of n-grams", "What most often follows one to four tokens in the target's own text."),
}
POOLED = "half of it greedy, after prompts made from templates"
GIVEN = "of many makes, by `specdemo write`"
LEARNED = """\
| Head | {head:,} tokens, which cover {coverage:.1%} of the target's own output; any other token has q = 0 |
"""
BEGUN = """\
| Start | goes on from the draft in {start} |
"""
COUNTED = """\
| Table | {entries:,} contexts of one to four tokens, those that gain most |
"""
KNOWN = (
    "a guess for {known:.0%} of the tokens, {agreement:.0%} of them right; "
    "a sure one for {sure:.0%}, {sure_agreement:.0%} of them right"
)


def write_curve(work: Path) -> None:
    """Plot loss, agreement and overlap against steps, from the log."""
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
        title="Held-out agreement and overlap, training loss",
        xaxis_title="step",
        yaxis={"title": "share of positions", "rangemode": "tozero"},
        yaxis2={"title": "loss", "overlaying": "y", "side": "right"},
    )
    figure.write_html(work / CURVE, include_plotlyjs="directory")


def write_card(plan: "Plan", pace: "Pace", facts: dict[str, Any], out: Path) -> None:
    """Write ``README.md`` beside the weights."""
    title, what = WHAT[plan.kind]
    counted = "entries" in facts
    budget = f"--minutes {plan.minutes:g}" if plan.steps is None else f"--steps {plan.steps}"
    card = CARD.substitute(
        title=title,
        what=what,
        target=facts["target"],
        source=plan.target,
        kind=plan.kind,
        size=(COUNTED if counted else LEARNED).format(**facts),
        begun="" if plan.start is None else BEGUN.format(start=plan.start),
        held_out=KNOWN.format(**facts) if counted else _held_out(facts),
        owing="who wrote the text" if counted else "whose weights it starts from",
        tokens=f"{facts['tokens']:,}",
        minutes=f"{facts['seconds'] / 60:.0f}",
        alpha=f"{facts['alpha']:.0%}",
        tau=f"{facts['tau']:.2f}",
        c=f"{facts['c']:.3f}",
        speedup=f"{facts['speedup']:.2f}",
        identical=facts["identical"],
        prompts=facts["prompts"],
        arithmetic=pace.sentence,
        precision=pace.writing,
        note="" if pace.calibrated else UNMEASURED,
        budget=budget,
        text=POOLED if plan.text is None else GIVEN,
        given="".join(
            f" --{flag} {folder}" for flag, folder in (("text", plan.text), ("start", plan.start)) if folder
        ),
        seed=plan.seed,
    )
    (out / "README.md").write_text(card, encoding="utf-8")


def _held_out(facts: dict[str, Any]) -> str:
    words = (", ".join(f"{value:.2f}" for value in facts[name]) for name in ("agreement", "overlap"))
    return "argmax agreement {}, overlap {}".format(*words)
