"""Token ids to the bytes they stand for, so that a trace shows its text with no tokeniser.

A token may be part of a UTF-8 character; pieces therefore stay bytes, and whoever displays them
joins neighbours before decoding. No torch.
"""

import base64
import codecs
import json
import re
from collections.abc import Iterable
from typing import Any

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)
"""Control characters and the marks that reorder or hide text; the page's tokens.js knows the same."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class PieceTable:
    """Bytes of each token of one tokeniser (a ``PreTrainedTokenizerFast``-like object)."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._byte_level = '"ByteLevel"' in _decoder_spec(tokenizer)
        self.specials = frozenset(tokenizer.all_special_ids) | frozenset(
            token for token, added in tokenizer.added_tokens_decoder.items() if added.special
        )

    def piece(self, token: int) -> bytes:
        """The bytes of one token; a control token gives its name, a padding row of the head nothing."""
        name = self._tokenizer.convert_ids_to_tokens(token)
        if name is None:
            return b""
        if token in self.specials:
            return name.encode()
        if self._byte_level:
            if all(char in _BYTE_OF for char in name):
                return bytes(_BYTE_OF[char] for char in name)
            return name.encode()
        if match := _BYTE_TOKEN.fullmatch(name):
            return bytes([int(match[1], 16)])
        return name.replace("▁", " ").encode()

    def encoded(self, ids: Iterable[int]) -> dict[int, str]:
        """``pieces`` of a trace: id -> base64 of its bytes."""
        return {token: base64.b64encode(self.piece(token)).decode() for token in sorted(set(ids))}

    def text(self, ids: Iterable[int]) -> str:
        """Readable text; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.piece, ids)).decode(errors="replace")


class StreamDecoder:
    """Feed pieces one by one, get text as soon as its characters are whole."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: bytes) -> str:
        """Text completed by ``piece``."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What an unfinished character at the end shows as."""
        return self._decoder.decode(b"", final=True)


def inside_sentence(text: str) -> str:
    """``text`` to be quoted: what would reorder or hide the words around it is named instead."""
    return _UNSEEN.sub(lambda mark: f"U+{ord(mark[0]):04X}", text)


def _decoder_spec(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.dumps(json.loads(backend.to_str()).get("decoder")) if backend else ""


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: visible Latin-1 bytes stay, the others move to 256 and up."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
