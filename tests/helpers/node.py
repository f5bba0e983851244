"""Node, in which the page's modules are tested without a browser."""

import os
import shutil

import pytest


def node() -> str:
    """Return the path of node; without node skip the test, or fail under CI."""
    path = shutil.which("node")
    if path is None:
        sentence = "no node on this machine; install it (Debian: apt-get install nodejs)"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    return path
