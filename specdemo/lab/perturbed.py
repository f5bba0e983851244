"""A pair made worse or dearer on purpose: what quality and cost of a draft are worth, and verifying at once.

A draft's handicap sits between the model and whoever asks it. What a drafter draws from, and reports as
its q, is therefore the handicapped distribution, and the output stays exactly the target's.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from specdemo.lab.handicap import NONE, Handicap
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.records.drafter_kinds import DRAFT, DRAFT_MODEL, KINDS
from specdemo.records.limits import UserError
from specdemo.records.trace import Calibration

NOISE_ROWS = 32
"""Positions with noise of their own; after so many it repeats."""
NOISE_SEED = 0


def perturbed(pair: Pair, handicap: Handicap) -> Lanes:
    """The lanes of ``pair`` under ``handicap``; the plain ones where there is none."""
    return Lanes(
        pair,
        wrap_draft=(lambda runtime: PerturbedRuntime(runtime, handicap)) if handicap.of_draft else None,
        verifier=OneByOneRuntime if handicap.one_by_one else ModelRuntime,
        verifier_costs=_one_by_one if handicap.one_by_one else None,
    )


def require_draft_model(pair: Pair, drafter: str) -> None:
    """Refuse what needs a draft model and has none.

    Raises:
        UserError: The pair has no draft model, or ``drafter`` does not ask it.
    """
    if pair.draft is None:
        raise UserError("This pair has no draft model; load one or choose another experiment.")
    if KINDS[drafter].required != DRAFT:
        raise UserError(f"This is measured on a draft model; choose {DRAFT_MODEL} instead of {drafter}.")


def _one_by_one(costs: Calibration) -> Calibration:
    """The costs of a target that takes a pass for every token."""
    return replace(costs, v=tuple(float(passes) for passes in range(1, len(costs.v) + 1)))


class OneByOneRuntime(ModelRuntime):
    """A target that cannot check tokens together: every one takes a pass of its own."""

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] in n passes, return logits [n, V]."""
        return torch.cat([ModelRuntime.forward(self, token) for token in ids.split(1)])


class PerturbedRuntime:
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
        return perturb(self._runtime.forward(ids), self._handicap, range(start, start + len(ids)))

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] without computing logits."""
        self._runtime.prefill(ids)

    def rollback(self, length: int) -> None:
        """Forget every position from ``length`` on."""
        self._runtime.rollback(length)


def perturb(logits: Tensor, handicap: Handicap, positions: Sequence[int]) -> Tensor:
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
