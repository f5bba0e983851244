"""The stage's modules under node's own test runner."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "js"


def test_the_stage_s_modules_pass_their_own_tests():
    node = shutil.which("node")
    if node is None:
        sentence = "no node on this machine; install it (Debian: apt-get install nodejs)"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    files = sorted(map(str, TESTS.glob("*.test.js")))
    done = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
