"""The stage's modules under node's own test runner."""

import subprocess
from pathlib import Path

from helpers.node import node
from helpers.waiting import PATIENCE_S

TESTS = Path(__file__).parent / "js"


def test_the_stage_s_modules_pass_their_own_tests():
    files = sorted(map(str, TESTS.glob("*.test.js")))
    done = subprocess.run([node(), "--test", *files], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
