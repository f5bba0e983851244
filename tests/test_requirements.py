"""Which versions of torch may be installed: what runs here, and on Spaces nothing that ZeroGPU lacks."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
ZERO_GPU = ["2.8.0", "2.9.1", "2.10.0", "2.11.0"]
"""Of what ZeroGPU supports, each minor version that this program runs with."""


def torch_of(python):
    """The versions of torch that are admitted with a version of Python."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    (torch,) = (
        one.specifier
        for one in wanted
        if one.name == "torch" and one.marker.evaluate({"python_version": python})
    )
    return torch


def python_of_spaces():
    """The version that the README's first lines ask a Space for."""
    return re.search(r'^python_version: "(.*)"$', (ROOT / "README.md").read_text(), re.MULTILINE).group(1)


@pytest.mark.parametrize("version", ZERO_GPU)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_everything_that_zero_gpu_offers_is_admitted(version, python):
    assert version in torch_of(python)


def test_a_space_gets_no_torch_that_zero_gpu_lacks():
    admitted = torch_of(python_of_spaces())
    newer = [f"2.{minor}.{patch}" for minor in range(11, 20) for patch in range(10)][1:]
    assert not [version for version in newer if version in admitted]
    assert "2.13.0" in torch_of("3.11"), "elsewhere newer ones may be there already"
