"""What an installed program has with it."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from helpers.on_disk import ON_CPU

from specdemo.pairs import load, sources
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError

ROOT = Path(__file__).parent.parent
ELSEWHERE = """
import specdemo
from specdemo.bench.prompts import shipped_prompts
from specdemo.pairs import load
from specdemo.pairs.sources import Sources
from specdemo.records import recordings
pair = load.assemble_pair(Sources(device="cpu"))
assert pair.draft is not None and pair.feature_draft is not None
assert len(shipped_prompts()) == 48 and len(recordings.listed()) == len(recordings.names()) > 5
print(specdemo.__file__)
"""


def test_every_package_of_the_program_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = {
        str(path.parent.relative_to(ROOT)).replace("/", ".") for path in ROOT.glob("specdemo/**/__init__.py")
    }
    assert set(project["packages"]) == found | {"specdemo.assets"}
    assert (ROOT / project["package-dir"]["specdemo.assets"]).is_dir()


def test_an_embedded_draft_that_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "EMBEDDED_DRAFT", tmp_path / "draft")
    monkeypatch.setattr(sources, "embedded_target", lambda progress: tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"draft is not installed \(/.*draft\); name another draft\.$"):
        load.assemble_pair(Sources(**ON_CPU))


@pytest.mark.slow
def test_a_wheel_brings_all_that_the_embedded_pair_needs(tmp_path):
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
    told = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == str(site / "specdemo" / "__init__.py")
