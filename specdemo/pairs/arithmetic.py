"""Which arithmetic the models run in: the fastest here at which the target stays the same model.

bf16, fp32 and fp16-packed weights all hold a bf16 model's stored numbers exactly (``packed_linear``); which
of them is fast depends on the processor, and so does what a pass over several tokens costs in it, which
decides what drafts are worth. So it is measured. int8 and int4 round the target and are only used when
they are asked for. A draft may be rounded: that costs acceptance, never correctness.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from specdemo.models.packed_linear import DTYPES, EXACT_PRECISIONS
from specdemo.records.limits import UserError
from specdemo.records.theory import RoundShape, best_length, theoretical_speedup
from specdemo.records.trace import Calibration

AUTO_PRECISION = "auto"
PRECISIONS = (AUTO_PRECISION, *DTYPES)
NOMINAL_ALPHA = 0.5
"""Acceptance rate that ways to compute are compared at; the embedded drafts' is near it."""
NOMINAL_DRAFT = 0.05
"""Cost of a draft step in the fastest single-token pass of all, where targets are compared."""
DRAFT_LOSS = {"int4": 0.02}
"""Acceptance that a draft loses by rounding, as measured on the embedded pair (48 prompts, k = 4)."""
MOST_K = 8
HOPELESS = 1.6
"""A precision this many times slower than the best at first sight is not measured further."""


@dataclass(frozen=True)
class Arithmetic:
    """What a pair computes in, and why.

    Attributes:
        precision: Of the target.
        draft: Of the drafts that ``specdemo train`` made.
        reason: One sentence for whoever reads a run.
    """

    precision: str
    draft: str
    reason: str


def expected_rate(costs: Calibration, alpha: float = NOMINAL_ALPHA) -> float:
    """Tokens per second with drafts of the best length at an acceptance rate (``theory``)."""
    k = best_length(alpha, costs.c, costs.v[: MOST_K + 1])
    return theoretical_speedup(alpha, RoundShape.of(k, costs)) / costs.step_s


def expected_rate_of_draft(costs: Calibration, packing: str) -> float:
    """:func:`expected_rate` with the acceptance that a draft in ``packing`` has left."""
    return expected_rate(costs, NOMINAL_ALPHA - DRAFT_LOSS.get(packing, 0.0))


def fastest_target(costs: Mapping[str, Calibration]) -> tuple[str, dict[str, float]]:
    """The precision with the most expected tokens per second, and those of all, at equal drafts."""
    draft_s = NOMINAL_DRAFT * min(found.step_s for found in costs.values())
    rates = {
        name: expected_rate(Calibration(found.step_s, draft_s / found.step_s, found.v, found.row_floor))
        for name, found in costs.items()
    }
    return max(rates, key=rates.__getitem__), rates


def promising(names: Iterable[str], glance: Callable[[str], float | None]) -> list[str]:
    """Those whose passes at first sight are not far slower than the best, the best first.

    ``glance`` gives seconds, or None for what does not work here.
    """
    seen = {name: seconds for name in names if (seconds := glance(name)) is not None}
    best = min(seen.values(), default=0.0)
    return sorted((name for name in seen if seen[name] <= HOPELESS * best), key=seen.__getitem__)


def chosen_sentence(precision: str, draft: str, rates: Mapping[str, float]) -> str:
    """Why ``precision`` was chosen, from the expected tokens per second of all that were measured."""
    others = sorted(((rate, name) for name, rate in rates.items() if name != precision), reverse=True)
    beside = ", ".join(f"{name} {rate:.0f}" for rate, name in others)
    return (
        f"{precision} was chosen by measurement: of the ways to compute with the target's stored numbers it "
        f"is the fastest with drafts here, about {rates[precision]:.0f} tokens/s"
        + (f" ({beside})" if beside else "")
        + f"; drafts run in {draft}."
    )


def asked_sentence(precision: str, draft: str) -> str:
    """What to say of a precision that was asked for by name."""
    exact = precision in EXACT_PRECISIONS
    kind = "it keeps the target's stored numbers" if exact else "it rounds the target, and its baseline alike"
    return f"{precision} was asked for: {kind}; drafts run in {draft}."


def unmeasured_sentence(precision: str, draft: str) -> str:
    """What to say of a precision that was taken without measuring."""
    return f"{precision} was taken for what this device offers, without measuring; drafts run in {draft}."


def require_precision(name: str) -> None:
    """Refuse a precision there is not.

    Raises:
        UserError: Naming those there are.
    """
    if name not in PRECISIONS:
        raise UserError(f"Unknown precision {name!r}; choose one of: {', '.join(PRECISIONS)}.")
