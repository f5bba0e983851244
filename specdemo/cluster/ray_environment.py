"""What has to be settled before Ray is imported: ``link`` imports this, which all ways to Ray begin with."""

import os
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
if (Path.home() / ".ray" / "auth_token").is_file():
    # ``ray start`` asks for a token where there is one; who joins has to be told to bring it.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
