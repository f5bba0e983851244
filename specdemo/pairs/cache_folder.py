"""The folder of what the program downloads, converts and compiles."""

import os
from pathlib import Path

from specdemo.records.limits import UserError


def cache_folder() -> Path:
    """Return ``SPECDEMO_CACHE``, or ``specdemo`` in the user's cache directory."""
    chosen = os.environ.get("SPECDEMO_CACHE")
    try:
        if chosen:
            return Path(chosen).expanduser().resolve()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdemo"
    except RuntimeError as error:  # there is no home folder, or links form a circle
        if chosen:
            raise UserError(
                f"SPECDEMO_CACHE must be the path of a folder, got {chosen}; change this environment "
                "variable."
            ) from error
        raise UserError(
            "This user account has no home folder; set the environment variable SPECDEMO_CACHE to a folder."
        ) from error
