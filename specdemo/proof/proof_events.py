"""A proof as a stream of events, for the page and the API. Each event is a dictionary with a ``type``:

``start``   the kind of ``proof``, its settings, and the ``target``, its ``precision`` and its ``device``
``row``     the result for one prompt (``AuditRow`` or ``LibraryComparison``), and a ``sentence``
            that sums up all rows so far
``sample``  the two samples so far: the figures of ``DistributionProgress``; ``texts``, the most frequent
            continuations as [text, speculative count, baseline count]; ``others``, the number of all other
            continuations with their speculative and baseline counts
``end``     the ``verdict`` (``same``, ``different``, ``caught``, ``missed``, or ``none`` if nothing was
            compared), the verdict in ``words``, a ``sentence``, for a distribution test the figures of
            ``DistributionResult``, and a ``reading``: an explanation of the rule, or of why texts differ
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

import plotly.graph_objects as go

from specdemo.bench.prompts import builtin_prompts
from specdemo.charts.palette import Palette
from specdemo.charts.stage import LANE_NAMES
from specdemo.charts.style import BLANK, Themed, axis_of, filling, frame, themed
from specdemo.pairs.pair import Pair, Stop
from specdemo.proof.audit import AuditRow, audit, audit_sentence
from specdemo.proof.distribution import (
    SIGNIFICANCE,
    DistributionProgress,
    DistributionResult,
    distribution_test,
)
from specdemo.proof.other_libraries import LibraryComparison, compare_as_others, others_sentence
from specdemo.proof.proof_request import Proof, ProofRequest, SampledBy
from specdemo.records.events import Event
from specdemo.records.trace import BASELINE, SPECULATIVE

Row = TypeVar("Row", AuditRow, LibraryComparison)
SHOWN = 8
"""Continuations that are listed; the others are added up."""
STOPPED = "Stopped before anything was compared."
READINGS = {
    SampledBy.TRUE_RULE: (
        "A draft token is accepted with probability min(1, p/q). A rejected draft token is replaced by a "
        "sample of the residual distribution. Both steps together sample exactly p."
    ),
    SampledBy.ACCEPT_EVERYTHING: (
        "Every draft token is accepted, so most of the text is the draft model's. Tokens that the draft "
        "model prefers come too often, and tokens that only the target prefers hardly come at all."
    ),
    SampledBy.NO_RESIDUAL: (
        "A rejected draft token is replaced by a sample of p itself. Tokens that both models prefer were "
        "mostly accepted already, so these tokens come too often. Tokens that mainly the target prefers "
        "come too rarely."
    ),
    SampledBy.BLOCK_COINS: (
        "Block verification as in an early version of vllm-ascend: random numbers are multiplied along the "
        "draft, and the residual distribution has no weight. Drafts of two or more tokens then sample a "
        "different distribution."
    ),
    SampledBy.TYPICAL: (
        "As in Medusa, a draft token is accepted if the target finds the token plausible. Depending on the "
        "text, the acceptance rate rises or falls. In both cases, the text no longer follows the target's "
        "distribution."
    ),
    SampledBy.RAW_Q: (
        "The draft is drawn with temperature and top-k, but verified with q before both, as some parts of "
        "transformers 5 did. That q is too small for the drawn tokens, so they are accepted too often. You "
        "would notice a higher acceptance rate, and texts that lean toward the draft model."
    ),
    SampledBy.MATCHING_GREEDY: (
        "The draft's most likely token is accepted whenever it is also the target's most likely token, even "
        "while sampling. You would notice less varied texts: at such places, the temperature has no effect."
    ),
}
WHY = (
    "In other libraries, the number of tokens in a pass decides the order in which sums are added. So a pass "
    "over several tokens rounds differently from a pass over one. If two logits are nearly equal, rounding "
    "decides which token comes. Such differences are common in bf16 (the recorded test, GPUs) and rare in "
    "fp32 (CPUs here). In the other tests on this page, both passes round alike."
)
VERDICTS = {
    "same": "Accepted: no difference beyond chance.",
    "different": "Rejected: not the target's distribution.",
    "caught": "Caught: not the target's distribution.",
    "missed": "Not caught: the difference could be chance. Choose more draws.",
}


def proof_events(pair: Pair, request: ProofRequest, stop: Stop) -> Iterator[Event]:
    if request.proof is Proof.DISTRIBUTION:
        yield from _distribution_events(pair, request, stop)
    else:
        yield from _text_events(pair, request, stop)


def _text_events(pair: Pair, request: ProofRequest, stop: Stop) -> Iterator[Event]:
    prompts = builtin_prompts(request.prompts)
    config = request.config
    yield {
        "type": "start",
        "proof": request.proof,
        **_models(pair),
        "prompts": len(prompts),
        "temperature": config.temperature,
        "max_new_tokens": config.max_new_tokens,
    }
    if request.proof is Proof.OTHER_LIBRARIES:
        words = "No text differs.", "Texts differ by rounding."
        yield from _row_events(compare_as_others(pair, prompts, config, stop), others_sentence, words, WHY)
    else:
        words = "Identical, token for token.", "Not identical."
        yield from _row_events(audit(pair, prompts, config, stop), audit_sentence, words, "")


def _row_events(
    compared: Iterable[Row], summary: Callable[[Sequence[Row]], str], words: tuple[str, str], reading: str
) -> Iterator[Event]:
    rows: list[Row] = []
    for row in compared:
        rows.append(row)
        yield {"type": "row", "row": asdict(row), "sentence": summary(rows)}
    if not rows:
        yield _nothing()
        return
    same = all(row.identical for row in rows)
    yield {
        "type": "end",
        "verdict": "same" if same else "different",
        "words": words[0] if same else words[1],
        "sentence": summary(rows),
        "reading": reading,
    }


def _distribution_events(pair: Pair, request: ProofRequest, stop: Stop) -> Iterator[Event]:
    config = request.config
    yield {
        "type": "start",
        "proof": request.proof,
        **_models(pair),
        "draws": request.draws,
        "significance": SIGNIFICANCE,
        "rule": request.rule,
        "prompt": config.prompt,
        "temperature": config.temperature,
        "top_k": config.top_k,
        "max_new_tokens": config.max_new_tokens,
    }
    state = None
    for state in distribution_test(pair, config, request.draws, request.rule.control, stop):
        yield {"type": "sample", **_figures(pair, state)}
    if not isinstance(state, DistributionResult):
        yield _nothing()
        return
    verdict = _verdict(state)
    yield {
        "type": "end",
        **_figures(pair, state),
        "verdict": verdict,
        "words": VERDICTS[verdict],
        "sentence": f"The test compared {state.settings}. {state.caveat}".rstrip(),
        "reading": READINGS[request.rule],
    }


def _models(pair: Pair) -> Event:
    return {"target": pair.target_name, "precision": pair.precision, "device": pair.place}


def _nothing() -> Event:
    return {"type": "end", "verdict": "none", "words": "", "sentence": STOPPED}


def _figures(pair: Pair, state: DistributionProgress) -> Event:
    figures = dict(vars(state))
    found = figures.pop("continuations")
    rest = found[SHOWN:]
    others = [len(rest), sum(one.speculative for one in rest), sum(one.baseline for one in rest)]
    texts = [[pair.pieces.text(one.ids), one.speculative, one.baseline] for one in found[:SHOWN]]
    return {**figures, "texts": texts, "others": others}


def _verdict(result: DistributionResult) -> str:
    if result.control is None:
        return "different" if result.rejected else "same"
    return "caught" if result.rejected else "missed"


def distribution_chart() -> Themed:
    """Return an empty bar chart, which the browser fills with counts, ranks and texts."""
    return themed(_distribution)


def _distribution(colours: Palette) -> go.Figure:
    fills = {SPECULATIVE: filling(colours.accepted), BASELINE: filling(colours.muted, "/")}
    bars = [
        go.Bar(
            BLANK,
            uid=lane,
            name=LANE_NAMES[lane],
            orientation="h",
            marker=marker,
            hovertemplate=f"%{{customdata}}<br>{LANE_NAMES[lane]}: %{{x:,}}<extra></extra>",
        )
        for lane, marker in fills.items()
    ]
    figure = go.Figure(bars)
    figure.update_layout(frame("How often each continuation was drawn", colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="group", bargap=0.28, bargroupgap=0.06)
    figure.update_xaxes(axis_of("draws", colours), rangemode="tozero", tickformat=",d")
    figure.update_yaxes(axis_of("", colours), autorange="reversed", showgrid=False, tickmode="array")
    return figure
