"""Is the output the target's, token for token? Compare both lanes over a set of prompts.

For the rules whose lanes must agree: greedy, and shared noise at any temperature. Rejection draws
anew and is left to ``distribution``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from specdemo.bench.prompts import Prompt, shipped_prompts
from specdemo.engine.speculate import never
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.proof.bounds import require_prompts
from specdemo.records.figures import Tally
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import Finish, Mode, Rule, RunConfig

TOKENS = 48
"""Length of an audited text: about two seconds on two CPU cores, both lanes together."""


@dataclass(frozen=True)
class AuditRow:
    """One prompt, decoded both ways.

    Attributes:
        id, category, mode, prompt: As in the prompt file.
        tokens: Output tokens compared: as many as both lanes wrote.
        identical: Whether all of them agree.
        divergence: First output position, from 0, that differs; None where none does.
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


@dataclass(frozen=True)
class AuditSummary:
    """What an audit found.

    Attributes:
        prompts: Prompts compared.
        tokens: Tokens compared.
        identical: Prompts on which every token agreed.
        divergences: The rows of the others.
    """

    prompts: int
    tokens: int
    identical: int
    divergences: tuple[AuditRow, ...]


def audit_config(temperature: float) -> RunConfig:
    """Settings to audit with: the greedy rule at temperature 0, shared noise above.

    Raises:
        UserError: The temperature is out of bounds.
    """
    rule = Rule.SHARED_NOISE if temperature > 0 else Rule.GREEDY
    request = {"prompt": "(each in turn)", "temperature": temperature, "rule": rule}
    return parse_config({**request, "max_new_tokens": TOKENS})


def listed_prompts(limit: int) -> list[Prompt]:
    """That many of the prompts that come with the program, spread over their categories.

    Raises:
        UserError: There are none, or none was asked for.
    """
    require_prompts(limit)
    return shipped_prompts(limit)


def audit(pair: Pair, prompts: Iterable[Prompt], config: RunConfig, stop: Stop = never) -> Iterator[AuditRow]:
    """Decode every prompt with both lanes and compare.

    Args:
        prompts: Their text and mode replace those of ``config``.
        config: The greedy or the shared-noise rule; everything else as in a run.
        stop: Asked once a round; a prompt that it cuts short gives no row.

    Raises:
        UserError: The rule is rejection, whose lanes may differ, or a prompt cannot be run.
    """
    if config.rule is Rule.REJECTION:
        raise UserError("Under rejection both lanes are draws of their own; audit greedy or shared-noise.")
    for prompt in prompts:
        row = _audited(pair, prompt, config, stop)
        if row is None:
            return
        yield row


def summarise(rows: Iterable[AuditRow]) -> AuditSummary:
    """The figures of an audit, finished or not."""
    rows = list(rows)
    apart = tuple(row for row in rows if not row.identical)
    return AuditSummary(len(rows), sum(row.tokens for row in rows), len(rows) - len(apart), apart)


def audit_sentence(summary: AuditSummary) -> str:
    """What an audit found, in one plain sentence; where texts differ, how close a call the first was."""
    head = f"{summary.identical} of {summary.prompts} texts identical, {summary.tokens:,} tokens compared"
    if not summary.divergences:
        return f"{head}."
    first = summary.divergences[0]
    assert first.divergence is not None
    gap = "" if first.gap is None else f", where the target's top two are {first.gap:.4f} apart"
    return f"{head}; {first.id} differs from token {first.divergence + 1} on{gap}."


def _audited(pair: Pair, prompt: Prompt, config: RunConfig, stop: Stop) -> AuditRow | None:
    """The row of one prompt; None where it was stopped."""
    config = replace(config, prompt=prompt.prompt, mode=Mode(prompt.mode), baseline=True, draft_alone=False)
    prompt_ids = pair.prompt_ids(config)
    lanes = Lanes(pair)
    tally = Tally(config.rule, lanes.calibrate(config))
    for lane, round_ in lanes.race(config, prompt_ids, stop):
        if round_.finish is Finish.STOPPED:
            return None
        tally.add(lane, round_)
    totals = tally.totals()
    return AuditRow(
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
