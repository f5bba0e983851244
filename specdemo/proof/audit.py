"""A token-by-token comparison of the speculative output with the target's, over a set of prompts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from specdemo.bench.measuring import measure, suited
from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import never
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.limits import UserError
from specdemo.records.sentences import Doubt, doubt
from specdemo.records.spread import spread
from specdemo.records.trace import Mode, RunConfig


@dataclass(frozen=True)
class ComparedText:
    """Two outputs for one prompt, compared token by token up to the length of the shorter one."""

    id: str
    category: str
    mode: str
    prompt: str
    tokens: int
    identical: bool
    divergence: int | None  # first output position, from 0, at which the outputs differ


@dataclass(frozen=True)
class AuditRow(ComparedText):
    """The result of decoding one prompt with both lanes."""

    gap: float | None  # between the target's two highest probabilities at ``divergence``
    speedup: float | None
    doubt: Doubt | None  # about the speedup


def audit(pair: Pair, prompts: Iterable[Prompt], config: RunConfig, stop: Stop = never) -> Iterator[AuditRow]:
    """Decode every prompt with both lanes and yield a row for each.

    If ``stop`` returns True, the audit ends without a row for the current prompt.

    Each prompt's text and mode replace those of ``config``, whose rule is greedy or shared noise.
    """
    if not config.rule.same_text:
        raise UserError(
            f"Under the rule {config.rule}, the texts with and without drafts are independent samples; "
            "choose the rule greedy or shared-noise."
        )
    for prompt in suited(pair, prompts):
        own = replace(config, prompt=prompt.prompt, mode=Mode(prompt.mode))
        runs = measure(Lanes(pair), [own], stop)
        if runs is None:
            return
        totals = runs[0].totals
        yield AuditRow(
            **vars(prompt),
            tokens=min(totals.tokens, totals.baseline_tokens),
            identical=totals.divergence is None,
            divergence=totals.divergence,
            gap=totals.divergence_gap,
            speedup=totals.speedup,
            doubt=doubt(totals, spread(runs[0].rounds)),
        )


def audit_sentence(rows: Sequence[AuditRow]) -> str:
    apart = [row for row in rows if row.divergence is not None]
    tokens = sum(row.tokens for row in rows)
    head = f"{len(rows) - len(apart)} of {len(rows)} texts identical, {tokens:,} tokens compared"
    if not apart:
        return f"{head}."
    first = apart[0]
    gap = "" if first.gap is None else f", where the target's top two are {first.gap:.4f} apart"
    return f"{head}; {first.id} differs from token {(first.divergence or 0) + 1} on{gap}."
