"""Does speculation draw from the target's distribution? Two samples compared as samples.

No token has to agree: many short continuations are drawn each way (``draws``), and the test asks
whether one distribution gives both.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from specdemo.engine.speculate import never
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.proof.bounds import DRAWS, Control, require_draws
from specdemo.proof.draws import DistributionProgress, MemoisedLanes, Samples, counts_of
from specdemo.proof.statistics import chi_square
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_SEED, UserError
from specdemo.records.trace import AUTO, Rule, RunConfig

MOST_PREFIXES = 1_024
"""Most texts whose logits are kept, per model: 100 MB at 50,000 tokens in bf16."""
PERMUTATIONS = 1_000
PROGRESS_S = 0.2
SIGNIFICANCE = 1e-4
"""p-values under this say that the distributions differ; by chance, one in ten thousand tests does."""
LEAST_PROBABILITY = 1e-99
"""Smaller p-values are not told apart in words; the tail itself underflows soon after."""
LEAST_ALPHA, MOST_ALPHA = 0.3, 0.8
"""Outside, nearly every draft is refused or kept, and a wrong way of doing either hardly shows."""

EXAMPLE = MappingProxyType(
    {
        "prompt": "A dog is",
        "mode": "raw",
        "temperature": 1.0,
        "top_k": 4,
        "max_new_tokens": 3,
    }
)
"""A request for the embedded pair, whose models like the same words here but not equally well.

Measured at 2,000 draws each way, in bf16 on two CPU cores shared with other work:

========================  ====  ===============  ==========================  ======  =======
rule                      α     total variation  noise, mean and 99th perc.  p       seconds
========================  ====  ===============  ==========================  ======  =======
the true one              0.58  0.066            0.070, 0.093                0.45    11
accept everything         1.00  0.734            0.085, 0.106                <1e-99  10
no residual               0.60  0.260            0.067, 0.091                9e-69   11
========================  ====  ===============  ==========================  ======  =======
"""


@dataclass(frozen=True)
class DistributionResult(DistributionProgress):
    """The finished test.

    Attributes:
        control: The wrong rule that drew the speculative sample; None for the true one.
        chi_square, degrees, p_value: The test of homogeneity.
        rejected: Whether the samples come from different distributions: p under ``SIGNIFICANCE``.
        alpha_in_range: Whether α lies where agreement of the samples means something.
        caveat: A sentence where the samples agree but hardly could have differed; empty otherwise.
    """

    control: Control | None
    chi_square: float
    degrees: int
    p_value: float
    rejected: bool
    alpha_in_range: bool
    caveat: str


def distribution_test(
    pair: Pair, config: RunConfig, draws: int = DRAWS, control: Control | None = None, stop: Stop = never
) -> Iterator[DistributionProgress | DistributionResult]:
    """Draw ``draws`` continuations with and without drafts and compare the two samples.

    Args:
        config: Rejection or shared noise, a fixed k, top-k on; ``max_new_tokens`` is the length of a
            continuation. ``EXAMPLE`` goes through ``limits.parse_config``. Draw i has the seed
            ``seed`` + i, the i-th of the baseline ``seed`` + ``draws`` + i.
        control: Draw the speculative sample by this wrong rule, which the test should notice.
        stop: Asked before every draw; True ends the test with what was drawn until then.

    Yields:
        The samples so far, about five times a second, and the result last, unless nothing was drawn.

    Raises:
        UserError: The settings do not suit the test.
    """
    _require_suitable(pair, config, draws, control)
    assert pair.draft is not None
    prompt_ids = pair.prompt_ids(config)
    rows = Lanes(pair).calibrate(config).rows
    lanes = MemoisedLanes(
        ModelRuntime(pair.target, rows),
        ModelRuntime(pair.draft, id_map=pair.id_map),
        prompt_ids,
        config,
        pair.eos_ids,
        control,
    )
    yield from compare_draws(lanes, draws, stop)


def compare_draws(
    lanes: MemoisedLanes, draws: int, stop: Stop = never
) -> Iterator[DistributionProgress | DistributionResult]:
    """:func:`distribution_test` on lanes that are there already."""
    samples, first = Samples(lanes, draws), lanes.config.seed
    since = time.perf_counter()
    for index in range(draws):
        if stop():
            break
        samples.draw(_seed(first + index), _seed(first + draws + index))
        passed = time.perf_counter() - since
        if passed >= PROGRESS_S:
            samples.seconds += passed
            yield samples.progress()
            since = time.perf_counter()
    samples.seconds += time.perf_counter() - since
    if samples.drawn:
        yield _result(samples, lanes)


def distribution_sentence(result: DistributionResult) -> str:
    """What the test found, in one plain sentence, and its caveat."""
    distance = (
        f"total variation {result.total_variation:.3f}, by chance {result.noise_mean:.3f} "
        f"and seldom over {result.noise_high:.3f}; χ² p {_probability(result.p_value)}"
    )
    if result.rejected:
        return f"Not the target's distribution: {distance}."
    return f"No difference in {result.drawn:,} draws each way: {distance}. {result.caveat}".rstrip()


def _result(samples: Samples, lanes: MemoisedLanes) -> DistributionResult:
    found = samples.progress(PERMUTATIONS)
    test = chi_square(*counts_of(found.continuations))
    rejected = test.p_value < SIGNIFICANCE
    in_range = found.alpha is not None and LEAST_ALPHA <= found.alpha <= MOST_ALPHA
    return DistributionResult(
        **vars(found),
        control=lanes.control,
        chi_square=test.statistic,
        degrees=test.degrees,
        p_value=test.p_value,
        rejected=rejected,
        alpha_in_range=in_range,
        caveat="" if rejected else _caveat(found.alpha, test.degrees),
    )


def _probability(value: float) -> str:
    return f"= {value:.2g}" if value >= LEAST_PROBABILITY else f"< {LEAST_PROBABILITY:g}"


def _caveat(alpha: float | None, degrees: int) -> str:
    if alpha is None:
        return "That shows nothing: no guess was compared."
    if degrees == 0:
        return "That shows nothing: no continuation came often enough to be compared; draw more."
    if LEAST_ALPHA <= alpha <= MOST_ALPHA:
        return ""
    return (
        f"That shows little: {alpha:.0%} of the compared guesses were accepted, and only from "
        f"{LEAST_ALPHA:.0%} to {MOST_ALPHA:.0%} would a wrong rule stand out."
    )


def _require_suitable(pair: Pair, config: RunConfig, draws: int, control: Control | None) -> None:
    """Refuse what cannot be memoised, would not be a test, or takes too long."""
    if config.rule is Rule.GREEDY:
        raise UserError("Greedy decoding draws nothing; raise the temperature.")
    if control is not None and config.rule is not Rule.REJECTION:
        raise UserError("The controls break rejection sampling; choose the rejection rule.")
    if config.drafter != DRAFT_MODEL or pair.draft is None:
        raise UserError("The distribution test needs a draft model as its drafter; choose a pair with one.")
    if config.k == AUTO:
        raise UserError("The distribution test needs a fixed draft length; choose a number for k.")
    require_draws(draws)
    if config.max_new_tokens < 2:
        raise UserError("A continuation of one token leaves nothing to draft; ask for at least 2.")
    # A prefix ends in tokens that either model allows.
    prefixes = (2 * config.top_k) ** (config.max_new_tokens - 1)
    if not 0 < prefixes <= MOST_PREFIXES:
        raise UserError("Too many continuations to tell apart; set top-k to 8 and the length to 3, or less.")


def _seed(number: int) -> int:
    return number % (MAX_SEED + 1)
