"""The bytes of each token ("pieces"), which show a trace without a tokenizer.

A token may contain only part of a UTF-8 character, so bytes must be joined before they are decoded.
"""

import base64
import codecs
import json
import re
from collections.abc import Iterable
from typing import Any

from specdemo.records.limits import UserError

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)
"""Control characters and marks that reorder or hide text. The page's tokens.js has the same list."""
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_BEFORE, _AFTER = "a", "b"
_SAMPLE = "Hello world, the quickest foxes jump over an unbelievably lazy dog!"


class PieceTable:
    """The bytes of each token of a tokenizer with the interface of ``PreTrainedTokenizerFast``.

    It refuses a tokenizer whose tokens, one by one, do not join to the text that it decodes.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._byte_level = '"ByteLevel"' in _decoder_spec(tokenizer)
        # Most tokenizers write "ab" for these two tokens, but WordPiece, for example, writes "a b".
        self._tail = tokenizer.convert_tokens_to_string([_BEFORE, _AFTER]).removeprefix(_BEFORE)
        self.specials = frozenset(tokenizer.all_special_ids) | frozenset(
            token for token, added in tokenizer.added_tokens_decoder.items() if added.special
        )
        self._check()

    def piece(self, token: int) -> bytes:
        """Return a token's bytes: for a control token its name, for an id without a token none."""
        name = self._tokenizer.convert_ids_to_tokens(token)
        if name is None:
            return b""
        if token in self.specials:
            return name.encode()
        if self._byte_level:
            if all(char in _BYTE_OF for char in name) and not self._is_verbatim(token, name):
                return bytes(_BYTE_OF[char] for char in name)
            return name.encode()
        if match := _BYTE_TOKEN.fullmatch(name):
            return bytes([int(match[1], 16)])
        # Decode the token between two others, because at both ends of a text decoders remove spaces.
        text = self._tokenizer.convert_tokens_to_string([_BEFORE, name, _AFTER])
        return text.removeprefix(_BEFORE).removesuffix(self._tail).encode()

    def encoded(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the bytes of each id in base64, as in ``Run.pieces``."""
        return {token: base64.b64encode(self.piece(token)).decode() for token in sorted(set(ids))}

    def text(self, ids: Iterable[int]) -> str:
        """Decode ids to text; bytes that are not valid UTF-8 become U+FFFD."""
        return b"".join(map(self.piece, ids)).decode(errors="replace")

    def _is_verbatim(self, token: int, name: str) -> bool:
        """Return whether a token was added to a byte-level vocabulary, so that its name is its text."""
        return (
            token in self._tokenizer.added_tokens_decoder
            and self._tokenizer.backend_tokenizer.model.token_to_id(name) is None
        )

    def _check(self) -> None:
        ids = self._tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]
        shown = [token for token in ids if token not in self.specials]
        decoded = self._tokenizer.decode(shown, clean_up_tokenization_spaces=False)
        if self.text(shown).strip() != decoded.strip():
            raise UserError("The target's tokenizer cannot show text token by token; choose another target.")


class StreamDecoder:
    """Decodes tokens' bytes to text, one token at a time. Incomplete characters wait for more bytes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: bytes) -> str:
        """Add the bytes of a token and return all characters that are now complete."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """End the text: return U+FFFD if an incomplete character is left, else nothing."""
        return self._decoder.decode(b"", final=True)


def inside_sentence(text: str) -> str:
    """Replace characters that could hide or reorder the rest of a sentence by their code points (U+…)."""
    return _UNSEEN.sub(lambda mark: f"U+{ord(mark[0]):04X}", text)


def _decoder_spec(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return json.dumps(json.loads(backend.to_str()).get("decoder")) if backend else ""


def _byte_alphabet() -> dict[str, int]:
    # GPT-2's tokenizer writes every byte as a printable character: visible Latin-1 bytes as themselves, the
    # others as the characters from 256 on.
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
