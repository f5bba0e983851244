"""What the files of a folder were when it was made: their sizes and SHA-256, kept in a file beside them.

Sizes are cheap enough to be looked at on every start; hashes take a reading of every byte. Knows no models.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FILE = "manifest.json"
SIZE, HASH = "bytes", "sha256"


def write_manifest(folder: Path) -> None:
    """Take down what the files of ``folder`` are now."""
    files = {
        path.name: {SIZE: path.stat().st_size, HASH: sha256_of(path)} for path in sorted(folder.iterdir())
    }
    (folder / FILE).write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


def of_other_size(folder: Path) -> list[str]:
    """Names of the files that are not there or not as long as they were.

    Where the manifest itself says nothing it is its own name.
    """
    return _differing(folder, SIZE, lambda path: path.stat().st_size)


def of_other_content(folder: Path) -> list[str]:
    """The same for files that are not what they were, byte for byte."""
    return _differing(folder, HASH, sha256_of)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _differing(folder: Path, field: str, found: Callable[[Path], int | str]) -> list[str]:
    try:
        files = json.loads((folder / FILE).read_bytes())
        expected = {name: files[name][field] for name in files}
    except (OSError, ValueError, KeyError, TypeError):
        return [FILE]

    def fits(name: str) -> bool:
        with suppress(OSError):
            return found(folder / name) == expected[name]
        return False

    return [name for name in expected if not fits(name)] if expected else [FILE]
