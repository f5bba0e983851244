"""Statistics of two samples: their distance, its noise, and a test of homogeneity. Counts in, numbers out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

MIN_EXPECTED = 5.0
"""Cells expected to hold fewer in either sample are merged (Cochran 1954, "Some methods for
strengthening the common χ² tests", Biometrics 10)."""


@dataclass(frozen=True)
class ChiSquare:
    """A chi-square test of homogeneity.

    Attributes:
        statistic: X², the sum over all cells of (observed − expected)² ÷ expected.
        degrees: Degrees of freedom, cells − 1; 0 if merging left nothing to compare.
        p_value: Probability of such a statistic or a larger one under one common distribution.
    """

    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True)
class Noise:
    """Total variation distance that chance alone puts between the two samples.

    Attributes:
        mean, high: Its mean and its 99th percentile over random splits of the pooled sample.
    """

    mean: float
    high: float


def total_variation(left: Sequence[int], right: Sequence[int]) -> float:
    """Return ½ Σ |share in one sample − share in the other| over the same cells: 0 (equal) to 1."""
    left_size, right_size = sum(left), sum(right)
    return sum(abs(a / left_size - b / right_size) for a, b in zip(left, right, strict=True)) / 2


def chi_square(left: Sequence[int], right: Sequence[int]) -> ChiSquare:
    """Run Pearson's test of homogeneity on a table of two samples by cells.

    A cell's expected count is its total × the sample's size ÷ both sizes. Over cells − 1 = d degrees of
    freedom the tail of X² is Q(d/2, X²/2), the regularised upper incomplete gamma function (Pearson
    1900; Press et al., "Numerical Recipes", 3rd ed., section 14.3).

    Args:
        left, right: Counts of each sample over the same cells, both with at least one draw.
    """
    cells = merged_cells(left, right)
    sizes = (sum(left), sum(right))
    statistic = 0.0
    for cell in cells:
        for observed, size in zip(cell, sizes, strict=True):
            expected = sum(cell) * size / sum(sizes)
            statistic += (observed - expected) ** 2 / expected
    degrees = len(cells) - 1
    if degrees == 0:
        return ChiSquare(statistic, degrees, 1.0)
    halves = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return ChiSquare(statistic, degrees, torch.special.gammaincc(halves[0], halves[1]).item())


def merged_cells(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]]:
    """Merge the rare cells into one, and that one with the least frequent other cell if it is still rare.

    The choice depends only on the cells' totals, which do not show where the samples differ.
    """
    share = min(sum(left), sum(right)) / (sum(left) + sum(right))
    ordered = sorted(zip(left, right, strict=True), key=sum, reverse=True)
    cells = [cell for cell in ordered if sum(cell) * share >= MIN_EXPECTED]
    rest = (sum(a for a, _ in ordered[len(cells) :]), sum(b for _, b in ordered[len(cells) :]))
    if cells and 0 < sum(rest) * share < MIN_EXPECTED:
        last = cells.pop()
        rest = (last[0] + rest[0], last[1] + rest[1])
    return [*cells, rest] if sum(rest) else cells


def permutation_noise(left: Sequence[int], right: Sequence[int], permutations: int, seed: int) -> Noise:
    """Split the pooled sample at random many times and measure the distance each time.

    If both samples come from one distribution, they are one such split, and their distance exceeds
    ``high`` about once in a hundred times.
    """
    pooled = torch.tensor([a + b for a, b in zip(left, right, strict=True)])
    draws = torch.arange(len(pooled)).repeat_interleave(pooled)
    size, other = sum(left), sum(right)
    generator = torch.Generator().manual_seed(seed)
    distances = torch.empty(permutations, dtype=torch.float64)
    for index in range(permutations):
        chosen = torch.randperm(len(draws), generator=generator)[:size]
        counts = torch.bincount(draws[chosen], minlength=len(pooled))
        distances[index] = (counts.double() / size - (pooled - counts).double() / other).abs().sum() / 2
    return Noise(distances.mean().item(), distances.quantile(0.99).item())
