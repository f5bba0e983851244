"""The text of a trace, read from its pieces."""

import base64
from collections.abc import Iterable, Mapping


def decode_pieces(pieces: Mapping[int, str], ids: Iterable[int]) -> str:
    """Text of ``ids`` from a trace's ``pieces``."""
    return b"".join(base64.b64decode(pieces[token]) for token in ids).decode(errors="replace")
