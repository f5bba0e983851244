"""The passes for browsers: the files are built from this program's functions, and give its bits."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.node import node

from specdemo.models.compiled.openmp import missing
from specdemo.models.compiled.wasm import FOUR_LANES, IS_X86, KINDS, VERSIONS, installed_versions
from specdemo.ui.component import STATIC
from specdemo.ui.site import LIVE

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "helpers" / "browser_pass.mjs"
MODULES = STATIC / LIVE


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rounded"), [("relaxed", "once"), ("strict", "twice")])
def test_a_pass_in_the_browsers_code_gives_the_bits_of_this_programs_pass(kind, rounded, tmp_path):
    program = node()
    if (reason := missing()) is not None:
        pytest.skip(f"passes cannot be compiled here: {reason}")
    environment = os.environ | FOUR_LANES
    command = [sys.executable, "-m", "helpers.browser_pass", str(tmp_path), rounded]
    subprocess.run(command, cwd=TESTS, env=environment, check=True, timeout=500)
    command = [program, str(SCRIPT), MODULES.as_uri(), str(MODULES / f"{kind}.wasm"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr


@pytest.mark.slow
def test_the_files_are_built_from_the_functions_of_this_program(tmp_path):
    if not IS_X86:
        pytest.skip(f"numba has no portable code with four lanes on {platform.machine()}")
    if (found := installed_versions()) != VERSIONS:
        pytest.skip(f"the files were built with {VERSIONS}, and here are {found}")
    command = [sys.executable, "-m", "specdemo.models.compiled.wasm", str(tmp_path)]
    subprocess.run(command, check=True, timeout=500)
    for kind in KINDS:
        name = f"{kind}.wasm"
        built = (tmp_path / name).read_bytes()
        assert built == (MODULES / name).read_bytes(), f"build again: {' '.join(command[1:3])} {MODULES}"
