"""Greedy texts with and without drafts, decoded as other libraries do. The two texts may differ by rounding.

There, a pass over k + 1 tokens may add its sums in another order than k + 1 passes over one token, because
the order depends on the number of tokens and on the length of the KV cache.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import Tensor

from specdemo.bench.measuring import suited
from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import autoregress, never, run_capacity
from specdemo.models.execution import PlainExecution, WholeModel
from specdemo.models.fused_execution import FusedExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.proof.audit import ComparedText
from specdemo.records.figures import first_difference
from specdemo.records.trace import Finish, Mode, RunConfig

BEST = 8
"""Logits that are kept for each position. In bf16, several tokens often have the same logit."""


class GrowingRuntime(ModelRuntime):
    """A runtime as in other libraries: its cache grows with the text, and its passes are not padded."""

    def __init__(self, model: WholeModel):
        super().__init__(model)
        # Kernels and compiled passes need a cache of fixed length.
        self.execution: Any = (
            FusedExecution(model) if isinstance(model, FusedLlama) else PlainExecution(cast(Any, model))
        )
        # The ids and logits of the ``BEST`` best next tokens after each position of the text, best first.
        self.best: dict[int, dict[int, float]] = {}

    def forward(self, ids: Tensor) -> Tensor:
        logits = super().forward(ids)
        values, tokens = logits.float().topk(BEST)
        rows = zip(tokens.tolist(), values.tolist(), strict=True)
        for position, (best, scores) in enumerate(rows, self.length - len(ids)):
            self.best[position] = dict(zip(best, scores, strict=True))
        return logits

    def _run(self, ids: Tensor, rows: int) -> Tensor:
        cache = self.execution.cut(self.cache, self.length + len(ids))
        return self.execution.run(ids, self.length, cache, rows, ())[0]


def as_in_transformers(model: WholeModel) -> Any:
    """Return a model whose passes run as in transformers; a compiled one gets its torch modules again."""
    restored = getattr(model, "restored", None)
    return model if restored is None else restored()


@dataclass(frozen=True)
class Candidate:
    """A token that one of the two outputs has at their divergence."""

    text: str
    alone: float | None  # its logit when the target decodes alone; None if it was not among the best
    verified: float | None  # its logit when the target verifies drafts; None if it was not among the best


@dataclass(frozen=True)
class LibraryComparison(ComparedText):
    """The result of decoding one prompt in both ways."""

    # Between the logits of both ``candidates`` when the target decodes alone (a lower bound if one of them
    # was not among the best); without a divergence, the smallest difference between the two best logits.
    gap: float
    shift: float  # maximum difference of one token's logit after the same text between both ways
    candidates: tuple[Candidate, ...]  # at a divergence: the token of the target alone, then that with drafts


def compare_as_others(
    pair: Pair, prompts: Iterable[Prompt], config: RunConfig, stop: Stop = never
) -> Iterator[LibraryComparison]:
    """Decode every prompt in both ways and yield a row for each; ``stop`` drops the current prompt."""
    lanes, target = Lanes(pair), as_in_transformers(pair.target)
    for prompt in suited(pair, prompts):
        own = replace(config, prompt=prompt.prompt, mode=Mode(prompt.mode))
        prompt_ids = pair.prompt_ids(own)
        alone, verifying = GrowingRuntime(target), GrowingRuntime(target)
        verifying.begin(run_capacity(len(prompt_ids), own.max_new_tokens))
        ways = (
            autoregress(alone, prompt_ids, own, pair.eos_ids, stop),
            lanes.speculative(own, prompt_ids, stop, verifying),
        )
        texts: list[list[int]] = []
        for way in ways:
            rounds = list(way)
            if not rounds or rounds[-1].finish is Finish.STOPPED:
                return
            texts.append([token for round_ in rounds for token in round_.emitted])
        start = len(prompt_ids) - 1  # the position after which the first output token comes
        yield _row(pair, prompt, texts[0], texts[1], _from(start, alone), _from(start, verifying))


def _from(start: int, runtime: GrowingRuntime) -> list[dict[int, float]]:
    """Return the best tokens at each output position."""
    return [runtime.best[position] for position in sorted(runtime.best) if position >= start]


def _row(
    pair: Pair,
    prompt: Prompt,
    text: list[int],
    other: list[int],
    alone: Sequence[dict[int, float]],
    verified: Sequence[dict[int, float]],
) -> LibraryComparison:
    """Return the row of one prompt from both outputs and the best tokens at each of their positions."""
    tokens, divergence = min(len(text), len(other)), first_difference(text, other)
    alike = tokens if divergence is None else divergence + 1  # positions that follow the same text
    shifts = [
        abs(one[token] - two[token])
        for one, two in zip(alone[:alike], verified[:alike], strict=True)
        for token in one.keys() & two.keys()
    ]
    candidates = ()
    if divergence is None:
        gap = min(first - second for first, second, *_ in (best.values() for best in alone[:alike]))
    else:
        candidates = tuple(
            Candidate(
                pair.pieces.text([token]), alone[divergence].get(token), verified[divergence].get(token)
            )
            for token in (text[divergence], other[divergence])
        )
        logits = alone[divergence]
        # If the other token is not among the best, its logit is at most the smallest of these.
        gap = logits[text[divergence]] - logits.get(other[divergence], min(logits.values()))
    return LibraryComparison(
        **vars(prompt),
        tokens=tokens,
        identical=divergence is None,
        divergence=divergence,
        gap=gap,
        shift=max(shifts, default=0.0),
        candidates=candidates,
    )


def others_sentence(rows: Sequence[LibraryComparison]) -> str:
    apart = [row.gap for row in rows if not row.identical]
    tokens = sum(row.tokens for row in rows)
    gaps = f"at most {max(apart):.2g}" if apart else f"at least {min(row.gap for row in rows):.2g}"
    whose = (
        "At the first difference, the logits of both tokens are" if apart else "The two highest logits are"
    )
    return (
        f"{len(apart)} of {len(rows)} texts differ, {tokens:,} tokens compared. "
        f"{whose} {gaps} apart; "
        f"rounding moved a logit by up to {max(row.shift for row in rows):.2g}."
    )
