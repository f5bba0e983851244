"""A proof as a stream of events, for the page and the API alike.

Each event is a plain dictionary with a ``type``:

``start``   which ``proof``, and its settings
``row``     one audited prompt (``AuditRow``), and the ``sentence`` that sums up all rows so far
``sample``  the two samples so far: figures (``DistributionProgress``), the most frequent ``texts`` as
            [text, speculative, baseline], and under ``others`` how many there are beside and both counts
``end``     the ``verdict`` (``same``, ``different``, ``caught``, ``missed``, or ``none`` where there is
            nothing to judge), ``words`` that say it, a ``sentence``, and of a distribution test the
            figures of ``DistributionResult`` and the ``reading`` of its rule
"""

from collections.abc import Iterator
from dataclasses import asdict

from specdemo.pairs.pair import Pair, Stop
from specdemo.proof.audit import audit, audit_sentence, listed_prompts, summarise
from specdemo.proof.distribution import SIGNIFICANCE, DistributionResult, distribution_test
from specdemo.proof.draws import DistributionProgress
from specdemo.proof.request import Proof, ProofRequest, SampledBy
from specdemo.records.events import Event

SHOWN = 8
"""Most frequent continuations that are told apart on the page."""
STOPPED = "Stopped before there was anything to compare."
READINGS = {
    SampledBy.TRUE_RULE: (
        "A guess stays with probability min(1, p/q); what replaces a refused one comes from the residual. "
        "The two together give out exactly p."
    ),
    SampledBy.ACCEPT_EVERYTHING: (
        "Every guess stays, so the text is mostly the draft's own: "
        "what the draft likes comes too often, what only the target likes hardly at all."
    ),
    SampledBy.NO_RESIDUAL: (
        "What replaces a refused guess is drawn from p itself. Accepted guesses have already given out what "
        "both models like, so that comes too often, and what the target likes far more than the draft "
        "too seldom."
    ),
}
VERDICTS = {
    "same": "Accepted: no difference beyond chance.",
    "different": "Refused: not the target's distribution.",
    "caught": "Caught: not the target's distribution.",
    "missed": "Not caught: so far the difference is no larger than chance makes it.",
}


def proof_events(pair: Pair, request: ProofRequest, stop: Stop) -> Iterator[Event]:
    """Carry out what was asked for.

    Raises:
        UserError: The pair does not suit the proof.
    """
    if request.proof is Proof.DISTRIBUTION:
        yield from _distribution_events(pair, request, stop)
    else:
        yield from _audit_events(pair, request, stop)


def _audit_events(pair: Pair, request: ProofRequest, stop: Stop) -> Iterator[Event]:
    prompts = listed_prompts(request.prompts)
    config = request.config
    yield {
        "type": "start",
        "proof": request.proof,
        "prompts": len(prompts),
        "temperature": config.temperature,
        "max_new_tokens": config.max_new_tokens,
    }
    rows = []
    for row in audit(pair, prompts, config, stop):
        rows.append(row)
        yield {"type": "row", "row": asdict(row), "sentence": audit_sentence(summarise(rows))}
    if not rows:
        yield _nothing()
        return
    summary = summarise(rows)
    verdict = "different" if summary.divergences else "same"
    words = "Not identical." if summary.divergences else "Identical, token for token."
    yield {"type": "end", "verdict": verdict, "words": words, "sentence": audit_sentence(summary)}


def _distribution_events(pair: Pair, request: ProofRequest, stop: Stop) -> Iterator[Event]:
    config = request.config
    yield {
        "type": "start",
        "proof": request.proof,
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
        "sentence": state.caveat,
        "reading": READINGS[request.rule],
    }


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
