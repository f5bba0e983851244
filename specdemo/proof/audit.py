"""A comparison of speculative output with the target's, token by token, over a set of prompts.

Only for rules under which both lanes must agree: greedy, and shared noise at any temperature.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from specdemo.bench.measuring import measure
from specdemo.bench.prompts import Prompt
from specdemo.engine.speculate import never
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.limits import UserError
from specdemo.records.trace import Mode, Rule, RunConfig


@dataclass(frozen=True)
class AuditRow:
    """One prompt, decoded both ways.

    Attributes:
        id, category, mode, prompt: As in the prompt file.
        tokens: The number of output tokens compared, that is, of the shorter lane.
        identical: Whether all of them agree.
        divergence: The first output position, from 0, that differs, if any.
        gap: The target's top-two probability gap there (``figures.Totals.divergence_gap``).
        speedup: Decode speedup of the speculative lane.
    """

    id: str
    category: str
    mode: str
    prompt: str
    tokens: int
    identical: bool
    divergence: int | None
    gap: float | None
    speedup: float | None


def audit(pair: Pair, prompts: Iterable[Prompt], config: RunConfig, stop: Stop = never) -> Iterator[AuditRow]:
    """Decode every prompt with both lanes and compare.

    Args:
        prompts: Their text and mode replace those of ``config``.
        config: The greedy or the shared-noise rule; everything else as in a run.
        stop: Called once a round; the prompt that it interrupts gives no row.

    Raises:
        UserError: The rule is rejection, whose lanes may differ, or a prompt cannot be run.
    """
    if config.rule is Rule.REJECTION:
        raise UserError("Under rejection the lanes are independent samples; audit greedy or shared-noise.")
    for prompt in prompts:
        own = replace(config, prompt=prompt.prompt, mode=Mode(prompt.mode))
        runs = measure(Lanes(pair), [own], stop)
        if runs is None:
            return
        totals = runs[0].totals
        yield AuditRow(
            id=prompt.id,
            category=prompt.category,
            mode=prompt.mode,
            prompt=prompt.prompt,
            tokens=min(totals.tokens, totals.baseline_tokens),
            identical=totals.divergence is None,
            divergence=totals.divergence,
            gap=totals.divergence_gap,
            speedup=totals.speedup,
        )


def audit_sentence(rows: Sequence[AuditRow]) -> str:
    """Return the result of an audit as a sentence, with the probability gap at the first divergence."""
    apart = [row for row in rows if row.divergence is not None]
    tokens = sum(row.tokens for row in rows)
    head = f"{len(rows) - len(apart)} of {len(rows)} texts identical, {tokens:,} tokens compared"
    if not apart:
        return f"{head}."
    first = apart[0]
    gap = "" if first.gap is None else f", where the target's top two are {first.gap:.4f} apart"
    return f"{head}; {first.id} differs from token {(first.divergence or 0) + 1} on{gap}."
