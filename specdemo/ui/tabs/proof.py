"""The tab "Is it the same?": three proofs, each with its settings, button and results."""

from typing import Any

import gradio as gr

from specdemo.proof.proof_events import distribution_chart
from specdemo.proof.proof_request import (
    DRAWS,
    EXAMPLE,
    MAX_DRAWS,
    MAX_PROMPTS,
    PROMPTS,
    TEMPERATURE,
    Proof,
    SampledBy,
)
from specdemo.records.limits import GREEDY_BELOW, MAX_TEMPERATURE
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs
from specdemo.ui.component import component
from specdemo.ui.streams import Stops, streamed

CLAIM = "<p>Drafts change the speed, not the text: it stays <b>the target's own</b>. Check it here.</p>"
CARDS = {
    Proof.GREEDY: (
        "Token by token, greedy",
        "Write texts with and without drafts, at temperature 0. Here every token must agree.",
    ),
    Proof.SHARED_NOISE: (
        "Token by token, sampled",
        "Write sampled texts with and without drafts from the same noise. Every token must agree.",
    ),
    Proof.DISTRIBUTION: (
        "Same distribution",
        "Draw thousands of short texts with and without drafts, and compare their frequencies. "
        "The test must catch every wrong rule.",
    ),
}
VERIFY = [("Like this page", str(Proof.GREEDY)), ("Like other libraries", str(Proof.OTHER_LIBRARIES))]
RULES = [
    ("True rule", str(SampledBy.TRUE_RULE)),
    ("Accept everything (wrong)", str(SampledBy.ACCEPT_EVERYTHING)),
    ("No residual (wrong)", str(SampledBy.NO_RESIDUAL)),
    ("Block verification, wrong random numbers", str(SampledBy.BLOCK_COINS)),
    ("Typical acceptance (lossy)", str(SampledBy.TYPICAL)),
    ("A q from before top-k (wrong)", str(SampledBy.RAW_Q)),
    ("Matching greedy drafts (wrong)", str(SampledBy.MATCHING_GREEDY)),
]


def build_proof(service: RunService, pair: gr.Dropdown) -> Stops:
    """Add the tab to the page that is being built; return the stop requests of its jobs."""
    stops = Stops()
    _constant(CLAIM, "proof-claim")
    with gr.Row(elem_id="proofs", equal_height=True):
        with _card(Proof.GREEDY):
            verify = _choice(VERIFY, "Verify", "proof-verify")
            with gr.Row():
                greedy_prompts = _number("Prompts", PROMPTS, 1, MAX_PROMPTS)
                greedy = _start("Compare", Proof.GREEDY)
        with _card(Proof.SHARED_NOISE), gr.Row():
            sampled_prompts = _number("Prompts", PROMPTS, 1, MAX_PROMPTS)
            temperature = _number("Temperature", TEMPERATURE, GREEDY_BELOW, MAX_TEMPERATURE)
            sampled = _start("Compare", Proof.SHARED_NOISE)
        with _card(Proof.DISTRIBUTION):
            rule = _choice(RULES, "Rule to test", "proof-rule")
            with gr.Row():
                prompt = gr.Textbox(
                    str(EXAMPLE["prompt"]),
                    label="Text to continue",
                    max_lines=1,
                    scale=3,
                    min_width=150,
                    elem_id="proof-prompt",
                )
                draws = _number("Draws per sample", DRAWS, 1, MAX_DRAWS)
                drawn = _start("Draw and compare", Proof.DISTRIBUTION)
    with gr.Column(elem_id="proof-results"):
        stop = gr.Button("Stop", interactive=False, scale=0, min_width=90, elem_id="proof-stop")
        shown = component("proof", "proof/proof.js", "mountProof", {"figures": distribution_chart()})

    def fixed(proof: Proof) -> gr.Radio:
        return gr.Radio(list(map(str, Proof)), value=str(proof), label="Proof", visible=False)

    shared = temperature, draws, rule, prompt, pair
    starts = [
        (drawn, [fixed(Proof.DISTRIBUTION), greedy_prompts, *shared]),
        (greedy, [verify, greedy_prompts, *shared]),
        (sampled, [fixed(Proof.SHARED_NOISE), sampled_prompts, *shared]),
    ]
    jobs.wire(stops, streamed(service, stops, JobKind.PROVE, prove), starts, shown, stop)
    return stops


def prove(
    proof: str,
    prompts: int,
    temperature: float,
    draws: int,
    rule: str,
    prompt: str,
    pair: str,
    request: gr.Request,
) -> dict[str, Any]:
    """Check that speculative output is the target's own; yield the events as growing NDJSON.

    ``proof`` is "greedy", "shared-noise", "other-libraries" or "distribution". The first three decode
    ``prompts`` (a number) built-in prompts with and without drafts, and compare the texts token by token.
    "greedy" decodes at temperature 0, and "shared-noise" samples at ``temperature``. "other-libraries"
    decodes at temperature 0 with a growing cache and torch's own kernels, as other libraries do, so that
    texts may differ. "distribution" compares two samples of ``draws`` short continuations of ``prompt``,
    one with and one without drafts. ``rule`` is the verification rule of the sample with drafts:
    "true-rule", or one of the deliberately wrong rules "accept-everything", "no-residual", "block-coins",
    "typical", "raw-q" and "matching-greedy". A proof ignores the settings that it does not need. ``pair``
    is the name of the models, if there are several.
    """
    sampling = {"temperature": temperature, "draws": draws, "rule": rule}
    return {"proof": proof, "prompts": prompts, "prompt": prompt, **sampling}


def _card(proof: Proof) -> gr.Column:
    title, about = CARDS[proof]
    with gr.Column(min_width=260, elem_classes="sd-proof-card") as card:
        _constant(f"<h2>{title}</h2><p>{about}</p>", f"about-{proof}")
    return card


def _choice(choices: list[tuple[str, str]], label: str, name: str) -> gr.Radio:
    return gr.Radio(
        choices,
        value=choices[0][1],
        label=label,
        container=False,
        elem_id=name,
        elem_classes="sd-proof-choice",
    )


def _number(label: str, value: float, minimum: float, maximum: float) -> gr.Number:
    precision, step = (0, 1) if isinstance(value, int) else (None, 0.1)
    return gr.Number(
        value, label=label, minimum=minimum, maximum=maximum, precision=precision, step=step, min_width=60
    )


def _start(label: str, proof: Proof) -> gr.Button:
    return gr.Button(label, variant="primary", min_width=90, elem_id=f"prove-{proof}")


def _constant(markup: str, name: str) -> None:
    gr.HTML(markup, js_on_load=None, apply_default_css=False, elem_id=name, elem_classes="sd-proof-words")
