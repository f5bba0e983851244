"""The lanes of a pair under an ablation, which is a worse or slower draft, or verification token by token.

Noise and temperature change the draft's logits before q is computed, so the output stays exact.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from specdemo.lab.conditions import NONE, Ablation
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.records.drafter_kinds import DRAFT, DRAFT_MODEL, KINDS, parts_of
from specdemo.records.limits import UserError
from specdemo.records.trace import Calibration

NOISE_ROWS = 32
"""Positions with different noise; after that the noise repeats."""
NOISE_SEED = 0


def ablated_lanes(pair: Pair, ablation: Ablation) -> Lanes:
    return Lanes(
        pair,
        wrap_draft=(lambda runtime: AblatedRuntime(runtime, ablation)) if ablation.of_draft else None,
        verifier=OneByOneRuntime if ablation.one_by_one else ModelRuntime,
        verifier_costs=_one_by_one_costs if ablation.one_by_one else None,
    )


def require_draft_model(pair: Pair, drafter: str = DRAFT_MODEL) -> None:
    """Raise ``UserError`` unless the pair has a draft model and ``drafter`` uses it."""
    if pair.draft is None:
        raise UserError(
            "This pair has no draft model; choose a pair with a draft model, or another experiment."
        )
    if KINDS[drafter].drafting_kind(parts_of(pair)).needs != DRAFT:
        raise UserError(
            f"This experiment needs the drafter {DRAFT_MODEL}, got {drafter}; choose {DRAFT_MODEL}."
        )


def _one_by_one_costs(costs: Calibration) -> Calibration:
    return replace(costs, v=tuple(float(passes) for passes in range(1, len(costs.v) + 1)))


class OneByOneRuntime(ModelRuntime):
    """A target that takes a separate pass for each token that it verifies."""

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        return torch.cat([ModelRuntime.forward(self, token) for token in ids.split(1)])


class AblatedRuntime:
    """A draft model's runtime under an ablation; only :meth:`forward` differs from the given runtime."""

    def __init__(self, runtime: Runtime, ablation: Ablation):
        self._runtime = runtime
        self._ablation = ablation
        self.device = runtime.device
        self.id_map = runtime.id_map
        self.max_context = runtime.max_context
        self.begin = runtime.begin
        self.prefill = runtime.prefill
        self.rollback = runtime.rollback

    @property
    def length(self) -> int:
        return self._runtime.length

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        start = self.length
        for _ in range(self._ablation.repeats - 1):
            self._runtime.forward(ids)
            self._runtime.rollback(start)
        return ablate(self._runtime.forward(ids), self._ablation, range(start, start + len(ids)))


def ablate(logits: Tensor, ablation: Ablation, positions: Sequence[int]) -> Tensor:
    """Return ``logits`` [n, H] with the ablation's temperature and noise, one row for each of ``positions``.

    The noise is normally distributed and depends only on the position. It has the standard deviation of the
    row that it is mixed into, so that the result is about as confident as the draft was.
    """
    if ablation.noise == NONE.noise and ablation.temperature == NONE.temperature:
        return logits
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)) / ablation.temperature
    if ablation.noise == NONE.noise:
        return scores
    rows = [position % NOISE_ROWS for position in positions]
    noise = _noise(scores.shape[-1], scores.device, scores.dtype)[rows]
    return torch.lerp(scores, noise * scores.std(-1, correction=0, keepdim=True), ablation.noise)


@lru_cache(maxsize=2)
def _noise(width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return standard normal numbers [NOISE_ROWS, width], cached so that they do not slow timed passes."""
    generator = torch.Generator().manual_seed(NOISE_SEED)
    return torch.randn(NOISE_ROWS, width, generator=generator, dtype=torch.float64).to(device, dtype)
