"""Short continuations of one prompt, drawn with drafts and without, and what there is to show of them.

Each draw is a run of the decoder itself, with a seed of its own; only the models' passes are looked up
where the same prefix was computed before (``memo``). What the samples say is ``distribution``'s.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.other_device import draft_on_device
from specdemo.engine.rules import rule_for
from specdemo.engine.speculate import autoregress, speculate
from specdemo.models.runtime import Runtime
from specdemo.proof.bounds import Control
from specdemo.proof.memo import MemoRuntime, threads
from specdemo.proof.statistics import permutation_noise, total_variation
from specdemo.proof.wrong_rules import wrong_rule_for
from specdemo.records.figures import LaneTally
from specdemo.records.trace import Round, RunConfig


@dataclass(frozen=True)
class Continuation:
    """One text that was drawn: its ids, and how often each way drew it."""

    ids: tuple[int, ...]
    speculative: int
    baseline: int


@dataclass(frozen=True)
class DistributionProgress:
    """The two samples so far.

    Attributes:
        drawn, draws: Continuations drawn each way, and how many it will be.
        continuations: What was drawn, the most frequent first.
        total_variation: Distance between the samples, 0 to 1.
        noise_mean, noise_high: Mean and 99th percentile of the distance that chance alone makes.
        alpha: Accepted ÷ compared drafted tokens.
        seconds: Time spent drawing.
        passes, passes_saved: Passes both models made, and those a look-up replaced.
    """

    drawn: int
    draws: int
    continuations: tuple[Continuation, ...]
    total_variation: float
    noise_mean: float
    noise_high: float
    alpha: float | None
    seconds: float
    passes: int
    passes_saved: int


class MemoisedLanes:
    """Decoders for short draws from one prompt, as many as one likes.

    Args:
        target, draft: The models; they belong to this object from now on.
        config: Prompt apart, the settings of every draw; its seed is replaced.
        control: Makes the speculative lane wrong.
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
        """One draw with drafts."""
        config, device = replace(self.config, seed=seed), self._target.device
        control = self.control
        rule = rule_for(config, device) if control is None else wrong_rule_for(control, config, device)
        drafter = draft_on_device(
            lambda _rule: DraftModelDrafter(self._draft), rule, self._draft.device, device
        )
        return speculate(self._target, drafter, self._prompt_ids, config, self._eos_ids, rule=rule)

    def baseline(self, seed: int) -> Iterator[Round]:
        """One draw of the target alone."""
        return autoregress(self._target, self._prompt_ids, replace(self.config, seed=seed), self._eos_ids)

    @property
    def passes(self) -> int:
        """Passes the models made."""
        return self._target.passes + self._draft.passes

    @property
    def passes_saved(self) -> int:
        """Passes the decoders asked for without the models having to make them."""
        return self._target.asked + self._draft.asked - self.passes


class Samples:
    """Two growing samples."""

    def __init__(self, lanes: MemoisedLanes, draws: int):
        self.seconds = 0.0
        self._lanes, self._draws = lanes, draws
        self._speculative: Counter[tuple[int, ...]] = Counter()
        self._baseline: Counter[tuple[int, ...]] = Counter()
        self._tally = LaneTally()

    @property
    def drawn(self) -> int:
        """Continuations drawn each way."""
        return self._speculative.total()

    def draw(self, speculative_seed: int, baseline_seed: int) -> None:
        """One more of each."""
        with threads(1):
            rounds = list(self._lanes.speculative(speculative_seed))
            alone = list(self._lanes.baseline(baseline_seed))
        for round_ in rounds:
            self._tally.add(round_, None)
        self._speculative[_ids(rounds)] += 1
        self._baseline[_ids(alone)] += 1

    def progress(self, permutations: int = 100) -> DistributionProgress:
        """What there is so far; at least one draw. ``permutations`` say how well the noise is known."""
        drawn, other = self._speculative, self._baseline
        ordered = sorted(drawn.keys() | other.keys(), key=lambda ids: (-drawn[ids] - other[ids], ids))
        found = tuple(Continuation(ids, drawn[ids], other[ids]) for ids in ordered)
        counts = counts_of(found)
        with threads(1):
            noise = permutation_noise(*counts, permutations, self._lanes.config.seed)
        return DistributionProgress(
            drawn=self.drawn,
            draws=self._draws,
            continuations=found,
            total_variation=total_variation(*counts),
            noise_mean=noise.mean,
            noise_high=noise.high,
            alpha=self._tally.accepted / self._tally.compared if self._tally.compared else None,
            seconds=self.seconds,
            passes=self._lanes.passes,
            passes_saved=self._lanes.passes_saved,
        )


def counts_of(found: Iterable[Continuation]) -> tuple[list[int], list[int]]:
    """The speculative and the baseline counts, in order."""
    found = list(found)
    return [item.speculative for item in found], [item.baseline for item in found]


def _ids(rounds: Iterable[Round]) -> tuple[int, ...]:
    return tuple(token for round_ in rounds for token in round_.emitted)
