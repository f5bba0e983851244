"""The two-sample statistics against scipy, against their definitions, and against chance."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from specdemo.proof.statistics import (
    MIN_EXPECTED,
    chi_square,
    merged_cells,
    permutation_noise,
    total_variation,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def sample(shares: torch.Tensor, size: int, generator: torch.Generator) -> list[int]:
    drawn = torch.multinomial(shares, size, replacement=True, generator=generator)
    return torch.bincount(drawn, minlength=len(shares)).tolist()


def counts_of(seed: int) -> tuple[list[int], list[int]]:
    generator = torch.Generator().manual_seed(seed)
    left = torch.randint(20, 400, (2 + 7 * seed,), generator=generator)
    return left.tolist(), (left + torch.randint(0, 1 + 3 * seed, left.shape, generator=generator)).tolist()


LARGE = [([400 + n, 400 - n, 200], [400 - n, 400 + n, 900]) for n in (20, 60, 120, 200)]


@pytest.mark.parametrize(("left", "right"), [*map(counts_of, range(20)), *LARGE, ([50], [70])])
def test_p_value_equals_scipys(left, right):
    found, wanted = chi_square(left, right), chi2_contingency([left, right], correction=False)
    assert found.degrees == wanted.dof == len(left) - 1
    assert found.statistic == pytest.approx(wanted.statistic, rel=1e-9)
    assert found.p_value == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-300)


counts = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=30)


@given(counts.filter(lambda cells: all(sum(side) for side in zip(*cells, strict=True))))
def test_merging_keeps_every_draw_and_leaves_no_rare_cells(cells):
    left, right = zip(*cells, strict=True)
    merged = merged_cells(left, right)
    assert [sum(side) for side in zip(*merged, strict=True)] == [sum(left), sum(right)]
    share = min(sum(left), sum(right)) / (sum(left) + sum(right))
    assert len(merged) == 1 or all(sum(cell) * share >= MIN_EXPECTED for cell in merged)
    common = [cell for cell in cells if sum(cell) * share >= MIN_EXPECTED]
    assert len(merged) >= len(common), "a cell that is common enough stays"


def test_p_values_of_one_distribution_are_uniform():
    generator = torch.Generator().manual_seed(5)
    shares = torch.rand(60, generator=generator) ** 4
    values = [
        chi_square(sample(shares, 800, generator), sample(shares, 500, generator)).p_value for _ in range(600)
    ]
    for level in (0.05, 0.25, 0.5, 0.75):
        below = sum(value < level for value in values) / len(values)
        assert below == pytest.approx(level, abs=4 * (level * (1 - level) / len(values)) ** 0.5)


def test_total_variation_by_hand():
    pairs = ([10, 0], [0, 5]), ([2, 4, 6], [1, 2, 3]), ([6, 4], [3, 7])
    assert [total_variation(*pair) for pair in pairs] == pytest.approx([1, 0, 0.3])


def test_samples_of_one_distribution_exceed_the_noise_about_once_in_a_hundred():
    generator = torch.Generator().manual_seed(3)
    shares = torch.rand(25, generator=generator)
    over, distances, means = 0, [], []
    for trial in range(80):
        left, right = sample(shares, 150, generator), sample(shares, 100, generator)
        noise = permutation_noise(left, right, 200, seed=trial)
        distances.append(total_variation(left, right))
        means.append(noise.mean)
        over += distances[-1] > noise.high
    assert over <= 4 and sum(distances) == pytest.approx(sum(means), rel=0.08)
