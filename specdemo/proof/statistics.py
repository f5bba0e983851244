"""Statistics of two samples, computed from counts: their distance, its noise, and a test of homogeneity."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

MIN_EXPECTED = 5.0
"""Cells whose expected count in either sample is smaller are merged (Cochran 1954, "Some methods for
strengthening the common χ² tests", Biometrics 10)."""


@dataclass(frozen=True)
class ChiSquare:
    """A chi-square test of homogeneity."""

    statistic: float  # X², the sum over all cells of (observed − expected)² ÷ expected
    degrees: int  # degrees of freedom, cells − 1; 0 if merging left nothing to compare
    p_value: float


@dataclass(frozen=True)
class Noise:
    """The total variation distance that chance alone causes, over random splits of the pooled sample."""

    mean: float
    high: float  # 99th percentile


def total_variation(left: Sequence[int], right: Sequence[int]) -> float:
    """Return ½ Σ |share in ``left`` − share in ``right``| over all cells, from 0 (equal) to 1 (disjoint)."""
    left_size, right_size = sum(left), sum(right)
    return sum(abs(a / left_size - b / right_size) for a, b in zip(left, right, strict=True)) / 2


def chi_square(left: Sequence[int], right: Sequence[int]) -> ChiSquare:
    """Run Pearson's test of homogeneity on the counts of two samples over the same cells.

    The expected count of a cell in a sample is the cell's total × the sample's size ÷ the sum of both sizes.
    With d = cells − 1 degrees of freedom, the p-value of X² is Q(d/2, X²/2), the regularized upper incomplete
    gamma function (Pearson 1900; Press et al., "Numerical Recipes", 3rd ed., section 14.3).
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
    """Merge all rare cells into one cell; if that cell is still rare, merge it with the next rarest cell.

    Only the totals of both samples decide which cells are merged, so the choice does not bias the test. Empty
    cells are dropped.
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
    """Pool both samples, split them at random ``permutations`` times, and measure the distance of each split.

    If both samples have the same distribution, their own distance exceeds the returned ``high`` only about
    once in a hundred tests.
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
