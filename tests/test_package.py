"""The installed program: its packages, its files, and the versions of torch that it accepts."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import gradio
import pytest
from helpers.on_disk import ON_CPU
from packaging.requirements import Requirement

from specdemo import __version__
from specdemo.pairs import load, sources
from specdemo.pairs.hardware import versions
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.ui.http.gradio_internals import TESTED, untested_version

ROOT = Path(__file__).parent.parent
NOT_THE_PAGE = {"bench", "training", "cluster"}
IMPORTED_BY_TRANSFORMERS = {"accelerate"}
ZERO_GPU = ["2.8.0", "2.9.1", "2.10.0", "2.11.0"]
"""The latest patch of each minor version that ZeroGPU supports and this program runs with."""
ELSEWHERE = """
import specdemo
from specdemo.bench.prompts import builtin_prompts
from specdemo.pairs import load
from specdemo.pairs.sources import Sources
from specdemo.records import recordings
pair = load.assemble_pair(Sources(device="cpu"))
assert pair.draft is not None and pair.feature_draft is not None
assert len(builtin_prompts()) == 48 and len(recordings.listed()) == len(recordings.names()) > 5
print(specdemo.__file__)
"""


def test_every_package_of_the_program_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = {
        str(path.parent.relative_to(ROOT)).replace("/", ".") for path in ROOT.glob("specdemo/**/__init__.py")
    }
    assert set(project["packages"]) == found | {"specdemo.assets"}
    assert (ROOT / project["package-dir"]["specdemo.assets"]).is_dir()


def test_a_run_knows_the_version_also_of_a_program_that_is_not_installed(monkeypatch):
    assert metadata.version("specdemo") == __version__

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata.Distribution, "from_name", absent)
    assert versions()["specdemo"] == __version__


def test_a_builtin_draft_that_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "BUILT_IN_DRAFT", tmp_path / "draft")
    monkeypatch.setattr(sources, "builtin_target", lambda progress: tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"draft model is missing \(/.*draft\); reinstall"):
        load.assemble_pair(Sources(**ON_CPU))


@pytest.mark.slow
def test_a_wheel_has_all_files_of_the_builtin_pair(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    copied = shutil.ignore_patterns("__pycache__", "screenshots", "benchmarks")
    for name in ("specdemo", "assets"):
        shutil.copytree(ROOT / name, source / name, ignore=copied)
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", ELSEWHERE]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(site / "specdemo" / "__init__.py")


def requirements():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def torch_of(python):
    found = [one for one in requirements() if one.name == "torch"]
    (torch,) = (one.specifier for one in found if one.marker.evaluate({"python_version": python}))
    return torch


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_a_space_installs_only_packages_that_the_page_imports():
    modules = [
        path for path in ROOT.glob("specdemo/**/*.py") if not NOT_THE_PAGE & {*path.relative_to(ROOT).parts}
    ]
    imported = {package for path in modules for package in imported_packages(path)}
    installed = {one.name.replace("-", "_") for one in requirements()}
    assert installed - imported == IMPORTED_BY_TRANSFORMERS
    assert {"gradio", "torch"} <= imported


def of_the_readme(name):
    # The README's first lines configure a Space.
    return re.search(
        rf'^{name}: "?(.*?)"?$', (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    ).group(1)


def test_a_space_has_a_tested_version_of_gradio_and_an_untested_one_is_named(monkeypatch):
    (allowed,) = (one.specifier for one in requirements() if one.name == "gradio")
    assert allowed == TESTED and of_the_readme("sdk_version") in allowed
    assert untested_version() is None
    monkeypatch.setattr(gradio, "__version__", "6.99.0")
    assert re.search(rf"^Gradio 6\.99\.0 is .* pip install 'gradio{TESTED}'\.$", untested_version())


def test_every_torch_of_zero_gpu_is_allowed_and_a_space_gets_no_other():
    for python in ("3.11", "3.12", "3.13"):
        assert not [version for version in ZERO_GPU if version not in torch_of(python)]
    newer = [f"2.{minor}.{patch}" for minor in range(11, 20) for patch in range(10)][1:]
    allowed = torch_of(of_the_readme("python_version"))
    assert not [version for version in newer if version in allowed]
    assert "2.13.0" in torch_of("3.11"), "newer ones are allowed elsewhere"
