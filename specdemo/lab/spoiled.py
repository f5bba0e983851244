"""A pair made worse or dearer on purpose: what quality and cost of a draft are worth, and verifying at once.

A draft's handicap sits between the model and whoever asks it. What a drafter draws from, and reports as
its q, is therefore the handicapped distribution, and the output stays exactly the target's.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache

import torch
from torch import Tensor

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import VerificationRule
from specdemo.lab.handicap import NONE, Handicap
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.pairs.pair import DRAFT_ROWS, STEPPING, Pair
from specdemo.records.limits import UserError
from specdemo.records.trace import Calibration, RunConfig

MODEL = "draft-model"
NOISE_ROWS = 32
"""Positions with noise of their own; after so many it repeats."""
NOISE_SEED = 0


def spoiled(pair: Pair, handicap: Handicap) -> Pair:
    """``pair`` under ``handicap``; the pair itself where there is none."""
    return pair if handicap == NONE else _SpoiledPair(pair, handicap)


def require_draft_model(pair: Pair, drafter: str) -> None:
    """Refuse what needs a draft model and has none.

    Raises:
        UserError: The pair has no draft model, or ``drafter`` does not ask it.
    """
    if pair.draft is None:
        raise UserError("This pair has no draft model; load one or choose another experiment.")
    if STEPPING.get(drafter) != MODEL:
        raise UserError(f"This is measured on a draft model; choose {MODEL} instead of {drafter}.")


class _SpoiledPair(Pair):
    """Another pair of the same models. The target's costs are measured once, for both."""

    def __init__(self, pair: Pair, handicap: Handicap):
        super().__init__(**{field.name: getattr(pair, field.name) for field in fields(Pair)})
        self.calibrations = {}
        self._pair = pair
        self._handicap = handicap
        if handicap.one_by_one:
            self._verifier = OneByOneRuntime

    def _target_costs(self, capacity: int) -> Calibration:
        costs = self._pair._target_costs(capacity)
        if not self._handicap.one_by_one:
            return costs
        return replace(costs, v=tuple(float(passes) for passes in range(1, len(costs.v) + 1)))

    def _drafter(self, config: RunConfig, target: ModelRuntime, rule: VerificationRule) -> Drafter:
        if config.drafter != MODEL or self.draft is None or not self._handicap.of_draft:
            return super()._drafter(config, target, rule)
        runtime = ModelRuntime(self.draft, id_map=self.id_map)
        runtime.prepare(target.capacity, DRAFT_ROWS)
        return DraftModelDrafter(SpoiledRuntime(runtime, self._handicap))


class OneByOneRuntime(ModelRuntime):
    """A target that cannot check tokens together: every one takes a pass of its own."""

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] in n passes, return logits [n, V]."""
        return torch.cat([ModelRuntime.forward(self, token) for token in ids.split(1)])


class SpoiledRuntime:
    """A draft model's runtime under a handicap; all but :meth:`forward` is the runtime's own."""

    def __init__(self, runtime: Runtime, handicap: Handicap):
        self._runtime = runtime
        self._handicap = handicap
        self.device = runtime.device
        self.id_map = runtime.id_map
        self.max_context = runtime.max_context

    @property
    def length(self) -> int:
        """Positions held in the cache."""
        return self._runtime.length

    def begin(self, capacity: int) -> None:
        """Empty the cache and make room for ``capacity`` positions."""
        self._runtime.begin(capacity)

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n], return the handicapped logits after each [n, H]."""
        start = self.length
        for _ in range(self._handicap.repeats - 1):
            self._runtime.forward(ids)
            self._runtime.rollback(start)
        return spoil(self._runtime.forward(ids), self._handicap, range(start, start + len(ids)))

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] without computing logits."""
        self._runtime.prefill(ids)

    def rollback(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        self._runtime.rollback(length)


def spoil(logits: Tensor, handicap: Handicap, positions: Sequence[int]) -> Tensor:
    """Logits [n, H] after ``positions`` as the handicap has them; untouched where it leaves them alone.

    The noise is normal, depends on the position only, and has the spread of the row it goes into, so
    that the blend is about as sure of itself as the draft was.
    """
    if handicap.noise == NONE.noise and handicap.temperature == NONE.temperature:
        return logits
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)) / handicap.temperature
    if handicap.noise == NONE.noise:
        return scores
    rows = [position % NOISE_ROWS for position in positions]
    noise = _noise(scores.shape[-1], scores.device, scores.dtype)[rows]
    return torch.lerp(scores, noise * scores.std(-1, correction=0, keepdim=True), handicap.noise)


@lru_cache(maxsize=2)
def _noise(width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Standard normal numbers [NOISE_ROWS, width]; kept, since no timed pass should wait for them."""
    generator = torch.Generator().manual_seed(NOISE_SEED)
    return torch.randn(NOISE_ROWS, width, generator=generator, dtype=torch.float64).to(device, dtype)
