"""Which versions of torch may be installed: what runs here, and on Spaces nothing that ZeroGPU lacks."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
ZERO_GPU = ["2.8.0", "2.9.1", "2.10.0", "2.11.0"]
"""Of what ZeroGPU supports, each minor version that this program runs with."""


def torch_of(name):
    """The versions of torch that a file of requirements admits."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    (torch,) = (one.specifier for one in wanted if one.name == "torch")
    return torch


@pytest.mark.parametrize("version", ZERO_GPU)
def test_everything_that_zero_gpu_offers_is_admitted(version):
    assert version in torch_of("requirements.txt") and version in torch_of("pre-requirements.txt")


def test_spaces_install_first_a_torch_that_zero_gpu_has_and_that_stays():
    first = torch_of("pre-requirements.txt")
    newer = [f"2.{minor}.{patch}" for minor in range(11, 20) for patch in range(10)][1:]
    assert not [version for version in newer if version in first]
    assert "2.13.0" in torch_of("requirements.txt"), "elsewhere newer ones may be there already"
