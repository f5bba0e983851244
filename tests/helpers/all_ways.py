"""Every path that a run's uniform numbers can take, each with its exact probability: no samples, no seeds."""

# The effect of a number from [0, 1) changes only at a few known points: at p / q for a coin, at the running
# sums of the weights for a draw. One run per cell between them, weighted by the cells' widths, gives the
# distribution of the output to the last bits of a double.

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from specdemo.engine.drafter import Pick
from specdemo.engine.rules import RejectionRule
from specdemo.engine.sampling import probabilities
from specdemo.records.trace import RunConfig

T = TypeVar("T")
AT = (1e-9, 0.5, 1 - 1e-9)
"""Places in a cell, as shares of its width; the first stands for 0 itself in a cell that begins there."""


class Walk:
    """The cells of one run's numbers: those of ``path`` first, then the first cell of each number."""

    def __init__(self, path: tuple[int, ...], at: float):
        self._path, self._at = path, at
        self._taken: tuple[int, ...] = ()
        self.chance = 1.0  # the probability of all choices so far
        self.untried: list[tuple[int, ...]] = []  # paths to the other cells of the numbers after ``path``

    def choose(self, points: Sequence[float]) -> float:
        """Return a number from the next cell of [0, 1), divided at ``points``."""
        edges = [0.0, *sorted({point for point in points if 0 < point < 1}), 1.0]
        cells = list(itertools.pairwise(edges))
        index = 0
        if len(self._taken) < len(self._path):
            index = self._path[len(self._taken)]
        else:
            self.untried += [(*self._taken, other) for other in range(1, len(cells))]
        self._taken += (index,)
        low, high = cells[index]
        self.chance *= high - low
        return 0.0 if low == 0 and self._at == AT[0] else low + (high - low) * self._at


class EveryWay:
    """A mix-in for rejection rules: the numbers come from a :class:`Walk` instead of a generator."""

    walk: Walk

    def uniforms(self, count: int) -> Tensor:
        # Placeholders: each pick chooses its number, because only then its weights are known.
        return torch.full((count,), float("nan"), dtype=torch.float64)

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        assert uniform is not None and uniform.shape == (1,)
        number = self.walk.choose(_running_sums(probabilities(self.warped(logits))))
        return super().pick(logits, where, torch.tensor([number], dtype=torch.float64), id_map)

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        self._weights, mass = super().residual_distribution(p, q)
        return self._weights, mass

    def block_residual(self, weight: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        self._weights, mass = super().block_residual(weight, p, q)
        return self._weights, mass

    def _acceptance_uniforms(self, acceptance: Tensor) -> Tensor:
        return torch.tensor([self.walk.choose([bound]) for bound in acceptance.tolist()], dtype=torch.float64)

    def _drawn(self, count: int) -> Tensor:
        assert count == 1
        return torch.tensor([self.walk.choose(_running_sums(self._weights))], dtype=torch.float64)


def every_way(
    config: RunConfig, run: Callable[[RejectionRule], T], at: float, base: type[RejectionRule] = RejectionRule
) -> Iterator[tuple[float, T]]:
    """Yield the probability and the result of each path of ``run`` with a fresh rule."""
    kind = type(f"EveryWayOf{base.__name__}", (EveryWay, base), {})
    paths: list[tuple[int, ...]] = [()]
    while paths:
        rule = kind(config, torch.device("cpu"))
        rule.walk = Walk(paths.pop(), at)
        found = run(rule)
        paths += rule.walk.untried
        yield rule.walk.chance, found


def _running_sums(weights: Tensor) -> list[float]:
    sums = weights.double().cumsum(0)
    return (sums / sums[-1]).tolist()
