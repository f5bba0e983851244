"""What the numbers of another program's run mean. Symbols are as in ``records.theory``."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdemo.doctor.reading import AFTER_REJECTION, PER_SLOT, Reading
from specdemo.records.sentences import share
from specdemo.records.theory import (
    RoundShape,
    best_length,
    break_even_alpha,
    expected_tokens,
    is_slower,
    ratio,
)

LONGEST = 16  # draft tokens in the search for the best draft length
LONG_CONTEXT = 8_000
"""Prompt tokens from which attention counts as a cause."""
POOR, WEAK = 0.15, 0.5
"""Acceptance rates below which the draft does not fit the target, or predicts the text badly."""
SEVERAL = 0.3
"""The part of a target pass from which a cost of a round counts as a cause."""
WORTH = 1.1
"""The factor by which a different draft length must be faster to be suggested."""
DIFFERENT = 0.1
"""Two acceptance rates of the same models and prompt that are further apart differ for a reason."""


@dataclass(frozen=True)
class Cause:
    name: str
    reason: str
    measure: str  # the one measurement that would confirm or exclude this cause


@dataclass(frozen=True)
class Finding:
    """The conclusions from a reading; None if they are unknown. Times are milliseconds per round."""

    alpha_drafted: float | None
    alpha_compared: float | None
    is_estimate: bool  # ``alpha_compared`` follows from τ, as if all tokens were equally hard to predict
    tau: float | None
    k: float | None  # the mean draft length
    speedup: float | None
    cost: float | None  # of a round, in target passes
    round_ms: float | None
    pass_ms: float | None
    draft_ms: float | None
    rest_ms: float | None  # all of a round except one target pass and, if it is known, drafting
    s_theory: float | None  # if a verification took as long as a pass over one token, without overhead
    break_even_alpha: float | None
    best_k: int | None  # 0 if no draft length pays; both assume that costs grow evenly with k
    causes: tuple[Cause, ...] = ()  # the likeliest first
    sentences: tuple[str, ...] = ()


def explain(reading: Reading) -> Finding:
    """Return what follows from the numbers; nothing is assumed for those that are missing."""
    tau = _tau(reading)
    k = _mean_length(reading, tau)
    drafted, compared, is_estimate = _rates(reading, tau, k)
    speedup = ratio(reading.rate, reading.plain_rate)
    cost = ratio(tau, speedup)
    users_ms = 1_000 * (reading.users or 1.0)
    pass_ms = ratio(users_ms, reading.plain_rate)
    round_ms = None if tau is None else ratio(users_ms * tau, reading.rate)
    step_ms = reading.draft_ms or ratio(1_000.0, reading.draft_rate)
    draft_ms = None if k is None or step_ms is None else k * step_ms
    rest_ms = s_theory = even = best = None
    if tau is not None and pass_ms is not None and draft_ms is not None:
        s_theory = tau / (1 + draft_ms / pass_ms)
    if round_ms is not None and pass_ms is not None:
        rest_ms = max(0.0, round_ms - pass_ms - (draft_ms or 0.0))
    if cost is not None and k:
        even = break_even_alpha(RoundShape(k, 0.0, cost)) if cost > 1 else 0.0
        if compared is not None:
            best = best_length(compared, max(0.0, cost - 1) / k, [1.0] * (LONGEST + 1))
    rates = (drafted, compared, is_estimate, tau, k, speedup, cost)
    found = Finding(*rates, round_ms, pass_ms, draft_ms, rest_ms, s_theory, even, best)
    causes = tuple(_contradictions(reading, found)) or (*_conditions(reading, found), *_costs(reading, found))
    return replace(found, causes=causes, sentences=tuple(_sentences(reading, found)))


def _tau(reading: Reading) -> float | None:
    if reading.tokens is not None and reading.accepted is not None:
        return reading.tokens / (reading.tokens - reading.accepted)  # each pass adds one token of its own
    if reading.rounds and reading.accepted is not None:
        return 1 + reading.accepted / reading.rounds
    if reading.tau is not None or not reading.positions:
        rate = _rate_per_drafted(reading)
        return reading.tau or (None if rate is None or reading.k is None else 1 + rate * reading.k)
    return 1 + sum(reading.positions)


def _rate_per_drafted(reading: Reading) -> float | None:
    if reading.alpha is not None and reading.alpha_kind not in (PER_SLOT, AFTER_REJECTION):
        return reading.alpha
    return ratio(reading.accepted, reading.drafted)


def _mean_length(reading: Reading, tau: float | None) -> float | None:
    rate = _rate_per_drafted(reading)
    if tau is not None and rate and tau > 1:
        return (tau - 1) / rate
    return float(len(reading.positions)) or reading.k


def _rates(reading: Reading, tau: float | None, k: float | None) -> tuple[float | None, float | None, bool]:
    """Return the rates per drafted and per compared token, and whether the latter is an estimate."""
    drafted, shares = _rate_per_drafted(reading), reading.positions
    if drafted is None and tau is not None and k:
        drafted = min(1.0, (tau - 1) / k)
    if reading.compared and reading.accepted is not None:
        return drafted, reading.accepted / reading.compared, False
    if k is not None and abs(k - len(shares)) < 0.02 * k:  # all drafts have the same length
        return drafted, sum(shares) / (1 + sum(shares[:-1])), False
    if tau is None or not k or tau > k + 1:
        return drafted, None, False
    return drafted, break_even_alpha(RoundShape(k, 0.0, tau)), True  # the α with E[τ] = τ


def _contradictions(reading: Reading, found: Finding) -> Iterator[Cause]:
    """Yield the causes that leave nothing to explain about acceptance or time."""
    if reading.drafted == 0:
        measure = "Lower the drafter's minimum length and minimum probability, until it drafts."
        yield Cause("nothing was drafted", "The program counts no draft tokens.", measure)
    elif found.speedup is not None and found.tau is not None and found.speedup > 1.02 * found.tau:
        yield Cause(
            "the two speeds do not belong together",
            f"A speedup of {found.speedup:.2f}× is impossible with {found.tau:.2f} tokens per target pass.",
            "Measure both speeds with the same prompt, without prompt processing and other work.",
        )


def _conditions(reading: Reading, found: Finding) -> Iterator[Cause]:
    alpha, users, context = found.alpha_compared, reading.users or 1.0, reading.context or 0.0
    if reading.elsewhere is not None and found.alpha_drafted is not None:
        here, gained = share(found.alpha_drafted), ""
        if found.cost is not None and found.k is not None:
            there = (1 + reading.elsewhere * found.k) / found.cost
            gained = f" With {share(reading.elsewhere)}, the speedup would be about {there:.2f}×."
        if abs(reading.elsewhere - found.alpha_drafted) > DIFFERENT:
            yield Cause(
                "a fault in one of the two setups",
                f"{share(reading.elsewhere)} are accepted elsewhere and {here} here; speed, batch and "
                f"overhead hardly change this rate.{gained}",
                "Repeat one prompt at temperature 0 in both, with the same draft length, minimum "
                "probability, quantization and chat template; if the rates still differ, report a bug with "
                "both outputs.",
            )
    if alpha is not None and alpha < POOR:
        yield Cause(
            "the draft does not fit the target",
            f"Only {share(alpha)} of the compared draft tokens are accepted; working drafts reach more.",
            "Run the same files at temperature 0 with a different backend or program: a low rate points to "
            "the file, its quantization, vocabulary or chat template, a high one to a defect here.",
        )
    if users > 1 and (is_slower(found.speedup) if found.cost is None else found.cost > 1 + SEVERAL):
        yield Cause(
            "batch",
            f"With {users:.0f} users, a verification computes {users:.0f} × (k + 1) tokens, which may take "
            f"far longer than a pass over {users:.0f} tokens.",
            "Measure both speeds again with one user.",
        )
    if context >= LONG_CONTEXT:
        yield Cause(
            "context",
            f"At {context:,.0f} tokens, attention slows down drafting and verification, and many drafts "
            "predict worse.",
            "Measure both speeds and the acceptance rate again with a prompt of 500 tokens.",
        )
    if alpha is not None and POOR <= alpha < WEAK:
        yield Cause(
            "the draft predicts this text badly",
            f"{share(alpha)} of the compared draft tokens are accepted.",
            "Let the model copy a text from its prompt at temperature 0: if the rate stays below 80%, the "
            "draft or its chat template does not fit; if it is higher, the text is hard to predict.",
        )


def _costs(reading: Reading, found: Finding) -> Iterator[Cause]:
    """Yield the causes that the time of a round shows, the largest first."""
    cost, k, pass_ms, rest_ms, draft_ms = found.cost, found.k, found.pass_ms, found.rest_ms, found.draft_ms
    if cost is None or pass_ms is None or rest_ms is None or not k:
        return
    causes: list[tuple[float, Cause]] = []
    if draft_ms is not None and draft_ms > SEVERAL * pass_ms:
        about = "" if reading.draft_ms else "about "  # follows from the speed of the draft alone
        reason = (
            f"Drafting takes {about}{draft_ms:.1f} ms per round, {draft_ms / pass_ms:.1f} times a target pass"
        )
        if loses := is_slower(found.s_theory):
            reason += (
                f". Even with free verification and no overhead, the speedup would be {found.s_theory:.2f}×"
            )
        elif found.tau is not None:
            reason += (
                f"; with free drafts, the speedup would be {found.tau / (cost - draft_ms / pass_ms):.2f}×"
            )
        measure = "Measure the speed with a draft that is several times faster"
        measure += ", or with k = 1." if found.best_k else "."
        causes.append((math.inf if loses else draft_ms, Cause("draft too slow", f"{reason}.", measure)))
    if rest_ms > SEVERAL * pass_ms:
        # A verification costs at most k + 1 passes. A draft step rarely costs more than one.
        sure = rest_ms - k * pass_ms * (1 if draft_ms is not None else 2)
        name = "verification or overhead" if draft_ms is not None else "drafting, verification or overhead"
        reason = f"Besides one target pass, {name.replace(' or ', ' and ')} take {rest_ms:.1f} ms per round."
        if sure > SEVERAL * pass_ms:
            name = "overhead of the program"
            reason = f"At least {sure:.1f} ms per round are neither drafting nor verification."
        causes.append((rest_ms, Cause(name, reason, _verification_measure(reading, found, round(k) + 1))))
    yield from (cause for _, cause in sorted(causes, key=lambda one: -one[0]))
    if found.best_k and found.alpha_compared is not None and found.best_k < k - 0.5:
        gained = _speedup_at(found, found.best_k)
        if found.speedup is not None and gained > WORTH * found.speedup:
            reason = f"k = {found.best_k} gives about {gained:.2f}×, if the cost grows evenly with k."
            yield Cause("k too long", reason, f"Measure the speed with k = {found.best_k}.")


def _speedup_at(found: Finding, k: int) -> float:
    """Return the speedup at another draft length, if costs grow evenly with it."""
    assert found.alpha_compared is not None and found.cost is not None and found.k
    return expected_tokens(found.alpha_compared, k) / (1 + (found.cost - 1) / found.k * k)


def _verification_measure(reading: Reading, found: Finding, n: int) -> str:
    """Say how to find what a verification of ``n`` tokens costs, and what the result means."""
    assert found.pass_ms is not None and found.rest_ms is not None
    measure = f"Measure the target's tokens/s over {n} tokens at once (llama-bench -p {n} -n 0)"
    if reading.users is not None and reading.users > 1:
        rest = "drafting and overhead" if found.draft_ms is None else "overhead"
        return f"{measure}; what remains of a round is {rest}."
    free, dear = (1_000 * n / ms for ms in (found.pass_ms, found.pass_ms + found.rest_ms))
    rest = "nothing remains for drafting and overhead" if found.draft_ms is None else "there is no overhead"
    return f"{measure}: about {free:.0f} means that verification costs nothing, about {dear:.0f} that {rest}."


def _sentences(reading: Reading, found: Finding) -> Iterator[str]:
    k, tau, speedup = found.k, found.tau, found.speedup
    # 1. Acceptance
    if reading.alpha is not None and reading.alpha_kind == PER_SLOT:
        yield (
            f"The printed rate of {share(reading.alpha)} is tokens per target pass ÷ (k + 1), which counts "
            "the target's own token; it is no acceptance rate."
        )
    if reading.alpha is not None and reading.alpha_kind == AFTER_REJECTION:
        yield (
            f"The printed rate of {share(reading.alpha)} counts agreeing tokens after a rejected one, which "
            "are never used. “System efficiency” is tokens per target pass ÷ (k + 1)."
        )
    if found.alpha_drafted is not None:
        yield f"Accepted ÷ drafted tokens: {share(found.alpha_drafted)}; this rate falls as k grows."
    if found.alpha_compared is not None:
        estimate = ", estimated as if all tokens were equally hard to predict" if found.is_estimate else ""
        yield f"Acceptance rate α, accepted ÷ compared tokens: {share(found.alpha_compared)}{estimate}."
    if tau is not None:
        length = "" if k is None else f", of at most {k + 1:.1f} with {k:.1f} draft tokens"
        yield f"Tokens per target pass: {tau:.2f}{length}."
    # 2. Time
    if speedup is not None:
        slower = " (slower)" if is_slower(speedup) else ""
        limit = "" if tau is None else f" It would be {tau:.2f}× if only the target pass took time"
        theory = "" if found.s_theory is None else f", {found.s_theory:.2f}× if only it and drafting did"
        yield f"Speedup: {speedup:.2f}×{slower}.{limit}{theory}{'.' if limit else ''}"
    known = {"one target pass": found.pass_ms, "drafting": found.draft_ms}
    known_ms = {part: ms for part, ms in known.items() if ms is not None}
    if found.round_ms is not None and k is not None and known_ms:
        parts = "".join(f"{part} {ms:.1f} ms, " for part, ms in known_ms.items())
        rest = [*(part for part in known if part not in known_ms), "verification of the other tokens"]
        ms = max(0.0, found.round_ms - sum(known_ms.values()))
        yield f"A round takes {found.round_ms:.1f} ms: {parts}{', '.join(rest)} and overhead {ms:.1f} ms."
    if found.cost is not None:
        even = found.break_even_alpha
        reached = "no α reaches that" if even is None else f"the break-even α is {share(even)}"
        cost = f"{found.cost:.2f}"
        yield f"A round costs {cost} target passes and pays if it writes more than {cost} tokens; {reached}."
    elif tau is None and speedup is not None and reading.k:
        low, high = 1 / speedup, (reading.k + 1) / speedup
        yield f"A round costs {low:.1f} target passes if nothing is accepted, {high:.1f} if everything is."
    if found.best_k is not None:
        best = (
            f"{found.best_k}, with about {_speedup_at(found, found.best_k):.2f}×"
            if found.best_k
            else "none pays"
        )
        yield f"Best draft length: {best}, if costs grow evenly with k; fixed overhead favors longer drafts."
    # 3. What is missing
    if tau is None:
        yield "Unknown: tokens per target pass. Paste the counts of accepted and drafted tokens."
    for rate, name in ((reading.plain_rate, "without drafts"), (reading.rate, "with drafts")):
        if rate is None:
            yield f"Unknown: the speed {name}. Measure it with the same prompt and settings."
    if found.draft_ms is None and found.cost is not None:
        yield "Unknown: the time of drafting. Give the tokens/s of the draft model alone."
