"""A test that speculation samples the target's distribution: many short continuations from each lane.

Each draw runs the real decoder with a different seed; ``memo`` only replaces passes that ran before.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.other_device import draft_on_device
from specdemo.engine.rules import rule_for
from specdemo.engine.speculate import autoregress, never, speculate
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.proof.memo import MemoRuntime, threads
from specdemo.proof.proof_request import DRAWS, MAX_DRAWS, Control
from specdemo.proof.statistics import chi_square, permutation_noise, total_variation
from specdemo.proof.wrong_rules import wrong_rule_for
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.figures import LaneTally
from specdemo.records.limits import MAX_SEED, UserError, integer
from specdemo.records.sentences import count, share
from specdemo.records.trace import AUTO, Round, Rule, RunConfig

MAX_PREFIXES = 1_024
"""Texts whose logits are kept for each model: 100 MB for a vocabulary of 50,000 in bf16."""
PERMUTATIONS = 1_000
PROGRESS_S = 0.2
SIGNIFICANCE = 1e-4
"""Chance alone causes a lower p-value once in 10,000 tests."""
MIN_PROBABILITY = 1e-99
"""Smaller p-values are shown as "< 1e-99", because the computation underflows soon below it."""
MIN_ALPHA, MAX_ALPHA = 0.3, 0.8
"""Outside this range nearly all tokens are rejected or nearly all accepted, so a wrong rule hardly shows."""


@dataclass(frozen=True)
class Continuation:
    """A drawn continuation: its token ids, and how often each lane drew it."""

    ids: tuple[int, ...]
    speculative: int
    baseline: int


@dataclass(frozen=True)
class DistributionProgress:
    """The two samples so far."""

    drawn: int  # continuations of each lane
    draws: int  # the requested number
    continuations: tuple[Continuation, ...]  # most frequent first
    total_variation: float
    noise_mean: float  # of the total variation that chance alone causes
    noise_high: float  # its 99th percentile
    alpha: float | None  # None if no draft token was compared
    seconds: float
    passes: int
    passes_saved: int


@dataclass(frozen=True)
class DistributionResult(DistributionProgress):
    """The finished test."""

    control: Control | None  # None for the correct rule
    chi_square: float
    degrees: int
    p_value: float
    rejected: bool  # the p-value is below ``SIGNIFICANCE``
    settings: str  # number and length of the draws, temperature, top-k and top-p, as a phrase
    alpha_in_range: bool  # α is from ``MIN_ALPHA`` to ``MAX_ALPHA``
    caveat: str  # a sentence if the test found no difference but proves little


class MemoisedLanes:
    """The two lanes of the test. All draws are from one prompt, and they share the computed logits.

    Nothing else may use the models while draws are made. ``prompt_ids`` replaces the prompt of ``config``,
    and the seed of each draw is derived from its seed. ``control`` is a wrong rule for the speculative lane.
    """

    def __init__(
        self,
        target: Runtime,
        draft: Runtime,
        prompt_ids: list[int],
        config: RunConfig,
        eos_ids: frozenset[int] = frozenset(),
        control: Control | None = None,
    ):
        self.config = config
        self.control = control
        self._target, self._draft = MemoRuntime(target), MemoRuntime(draft)
        self._prompt_ids = prompt_ids
        self._eos_ids = eos_ids

    def speculative(self, seed: int) -> Iterator[Round]:
        config, device = replace(self.config, seed=seed), self._target.device
        control = self.control
        rule = rule_for(config, device) if control is None else wrong_rule_for(control, config, device)
        drafter = draft_on_device(DraftModelDrafter(self._draft), self._draft.device, device)
        return speculate(self._target, drafter, self._prompt_ids, config, self._eos_ids, rule=rule)

    def baseline(self, seed: int) -> Iterator[Round]:
        return autoregress(self._target, self._prompt_ids, replace(self.config, seed=seed), self._eos_ids)

    @property
    def passes(self) -> int:
        """The number of passes that the models ran."""
        return self._target.passes + self._draft.passes

    @property
    def passes_saved(self) -> int:
        """The number of passes that look-ups replaced."""
        return self._target.asked + self._draft.asked - self.passes


class Samples:
    """The samples that both lanes have drawn so far; each draw adds one continuation to each."""

    def __init__(self, lanes: MemoisedLanes, draws: int):
        self.seconds = 0.0
        self._lanes, self._draws = lanes, draws
        self._speculative: Counter[tuple[int, ...]] = Counter()
        self._baseline: Counter[tuple[int, ...]] = Counter()
        self._tally = LaneTally()

    @property
    def drawn(self) -> int:
        return self._speculative.total()

    def draw(self, speculative_seed: int, baseline_seed: int) -> None:
        with threads(1):
            rounds = list(self._lanes.speculative(speculative_seed))
            alone = list(self._lanes.baseline(baseline_seed))
        for round_ in rounds:
            self._tally.add(round_, None)
        self._speculative[_ids(rounds)] += 1
        self._baseline[_ids(alone)] += 1

    def progress(self, permutations: int = 100) -> DistributionProgress:
        """Return the figures so far; more ``permutations`` estimate the noise more precisely."""
        both = self._speculative + self._baseline
        ordered = sorted(both, key=lambda ids: (-both[ids], ids))
        counts = [self._speculative[ids] for ids in ordered], [self._baseline[ids] for ids in ordered]
        with threads(1):
            noise = permutation_noise(*counts, permutations, self._lanes.config.seed)
        return DistributionProgress(
            drawn=self.drawn,
            draws=self._draws,
            continuations=tuple(map(Continuation, ordered, *counts)),
            total_variation=total_variation(*counts),
            noise_mean=noise.mean,
            noise_high=noise.high,
            alpha=self._tally.alpha,
            seconds=self.seconds,
            passes=self._lanes.passes,
            passes_saved=self._lanes.passes_saved,
        )

    def result(self) -> DistributionResult:
        found = self.progress(PERMUTATIONS)
        test = chi_square(
            [one.speculative for one in found.continuations], [one.baseline for one in found.continuations]
        )
        rejected = test.p_value < SIGNIFICANCE
        return DistributionResult(
            **vars(found),
            control=self._lanes.control,
            chi_square=test.statistic,
            degrees=test.degrees,
            p_value=test.p_value,
            rejected=rejected,
            settings=_settings(found.drawn, self._lanes.config),
            alpha_in_range=found.alpha is not None and MIN_ALPHA <= found.alpha <= MAX_ALPHA,
            caveat="" if rejected else _caveat(found.alpha, test.degrees),
        )


def _ids(rounds: list[Round]) -> tuple[int, ...]:
    return tuple(token for round_ in rounds for token in round_.emitted)


def distribution_test(
    pair: Pair, config: RunConfig, draws: int = DRAWS, control: Control | None = None, stop: Stop = never
) -> Iterator[DistributionProgress | DistributionResult]:
    """Draw continuations with and without drafts, ``draws`` of each, and compare the two samples.

    Yields progress about five times a second, then the result; without any draw, there is no result.
    ``max_new_tokens`` is the length of a continuation. Speculative draw i has the seed ``seed`` + i, baseline
    draw i has ``seed`` + ``draws`` + i. ``stop`` is called before every draw.
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
    """Do the same as :func:`distribution_test`, with lanes that the caller has created."""
    samples, first = Samples(lanes, draws), lanes.config.seed
    since = time.perf_counter()
    for index in range(draws):
        if stop():
            break
        samples.draw(*(number % (MAX_SEED + 1) for number in (first + index, first + draws + index)))
        passed = time.perf_counter() - since
        if passed >= PROGRESS_S:
            samples.seconds += passed
            yield samples.progress()
            since = time.perf_counter()
    samples.seconds += time.perf_counter() - since
    if samples.drawn:
        yield samples.result()


def distribution_sentence(result: DistributionResult) -> str:
    distance = (
        f"total variation {result.total_variation:.3f}, by chance about {result.noise_mean:.3f}, "
        f"rarely over {result.noise_high:.3f}; χ² p {_probability(result.p_value)}"
    )
    if result.rejected:
        return f"The output does not have the target's distribution ({result.settings}): {distance}."
    found = f"No difference from the target's distribution was found ({result.settings})"
    return f"{found}: {distance}. {result.caveat}".rstrip()


def _settings(drawn: int, config: RunConfig) -> str:
    top_k = f", top-k {config.top_k}" if config.top_k else ""
    top_p = f", top-p {config.top_p:g}" if config.top_p < 1 else ""
    draws = f"{count(drawn, 'draw')} of {count(config.max_new_tokens, 'token')} per sample"
    return f"{draws} at temperature {config.temperature:g}{top_k}{top_p}"


def _probability(value: float) -> str:
    return f"= {value:.2g}" if value >= MIN_PROBABILITY else f"< {MIN_PROBABILITY:g}"


def _caveat(alpha: float | None, degrees: int) -> str:
    if alpha is None:
        return "The test shows nothing: no draft token was compared."
    if degrees == 0:
        return "The test shows nothing: no continuation was drawn often enough; choose more draws."
    if MIN_ALPHA <= alpha <= MAX_ALPHA:
        return ""
    return (
        f"The test shows little: {share(alpha)} of the compared draft tokens were accepted. "
        f"A wrong rule stands out only from {MIN_ALPHA:.0%} to {MAX_ALPHA:.0%}."
    )


def _require_suitable(pair: Pair, config: RunConfig, draws: int, control: Control | None) -> None:
    """Raise ``UserError`` for settings that have too many prefixes to look up, or that make no valid test."""
    if config.rule is Rule.GREEDY:
        raise UserError("The distribution test needs sampling; set the temperature above 0.")
    if control is not None and config.rule is not Rule.REJECTION:
        raise UserError(
            "A control replaces rejection sampling with a wrong rule, so it needs the rejection rule; "
            "choose that rule or leave out the control."
        )
    if config.drafter != DRAFT_MODEL or pair.draft is None:
        raise UserError(
            f"The distribution test needs the drafter {DRAFT_MODEL}; "
            "choose this drafter, and a pair with a draft model."
        )
    if config.k == AUTO:
        raise UserError("The distribution test needs a fixed draft length; choose a number for k.")
    integer({"draws": draws}, "draws", DRAWS, 1, MAX_DRAWS)
    if config.max_new_tokens < 2:
        raise UserError(
            "The number of new tokens must be at least 2, because one token leaves nothing to draft."
        )
    # Up to 2 · top-k tokens can come next: the top k of the target and the top k of the draft.
    prefixes = (2 * config.top_k) ** (config.max_new_tokens - 1)
    if not 0 < prefixes <= MAX_PREFIXES:
        raise UserError(
            "Too many continuations are possible; "
            "set top-k to 1 to 8 and the number of new tokens to at most 3."
        )
