"""Tests of the browser's modules, all in one process of node."""

import subprocess
from pathlib import Path

from helpers.node import node
from helpers.waiting import PATIENCE_S

TESTS = Path(__file__).parent / "js"


def test_the_browser_s_modules_pass_their_own_tests():
    imports = "".join(f"await import({path.as_uri()!r});" for path in sorted(TESTS.glob("*.test.js")))
    command = [node(), "--input-type=module", "-e", imports]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# tests 0" not in done.stdout
