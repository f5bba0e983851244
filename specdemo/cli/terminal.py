"""A view of a run in a terminal: the color and text style of each token show its status."""

import base64
import os
from typing import Any, TextIO

from specdemo.records.events import Event
from specdemo.records.limits import DIRECTION_MARKS
from specdemo.records.pieces import StreamDecoder
from specdemo.records.trace import DRAFT, SPECULATIVE, Status

_REJECTED = "rejected"  # in a trace such a token is discarded, and compared
_STYLE: dict[str, str] = {
    Status.ACCEPTED: "32;4",
    _REJECTED: "35;9",
    Status.DISCARDED: "2;9",
    Status.CORRECTED: "1;33;4",
    Status.BONUS: "1;36;4",
}
_MARK: dict[str, str] = {Status.CORRECTED: "▸", Status.BONUS: "+"}
_DIVERGED = "33"  # the draft model's own text after the divergence
_DIVERGENCE = "⟨≠⟩"
_RESET = "\x1b[0m"
# C1 control characters, which a terminal may obey, and marks that reverse text.
_UNNAMED = (*range(0x80, 0xA0), *map(ord, DIRECTION_MARKS))
_VISIBLE_CONTROLS = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
    | {127: "\u2421"}
    | {code: f"⟨U+{code:04X}⟩" for code in _UNNAMED}
)


def wants_color(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


class TerminalView:
    """A printer of speculative rounds as they arrive, then of the summary and the draft model's own text."""

    def __init__(self, out: TextIO):
        self._out = out
        self._color = wants_color(out)
        self._pieces: dict[int, bytes] = {}
        self._decoder = StreamDecoder()
        self._alone: list[int] = []
        self._arithmetic = self._progress = ""

    def show(self, event: Event) -> None:
        self._pieces |= {int(i): base64.b64decode(piece) for i, piece in event.get("pieces", {}).items()}
        if event["type"] == "progress" and event["text"] != self._progress:
            self._progress = event["text"]
            self._write(f"{self._progress}\n")
        elif event["type"] == "start":
            self._arithmetic = event["run"]["arithmetic"]
            self._legend()
        elif event["type"] == "round" and event["lane"] == SPECULATIVE:
            self._round(event["round"])
        elif event["type"] == "round" and event["lane"] == DRAFT:
            self._alone.append(event["round"]["emission"]["id"])
        elif event["type"] == "end":
            self._end(event)

    def _legend(self) -> None:
        if self._color:
            self._write("  ".join(self._styled(name, name) for name in _STYLE) + "\n\n")

    def _round(self, round_: dict[str, Any]) -> None:
        lost = {_REJECTED: b"", Status.DISCARDED: b""}
        for token in round_["drafted"]:
            if token["status"] == Status.ACCEPTED:
                self._write(self._styled(self._text(token["id"]), Status.ACCEPTED))
            else:
                lost[_REJECTED if token["compared"] else Status.DISCARDED] += self._pieces[token["id"]]
        if self._color:
            # Decode these tokens separately: the stream decoder is only for the text that is kept.
            for status, text in lost.items():
                shown = _printable(text.decode(errors="replace")).replace("\n", "⏎")
                self._write(self._styled(shown, status))
        if round_["emission"]:
            emission = round_["emission"]
            text = self._text(emission["id"])
            # A round without a draft has no bonus token, so its token has no style.
            self._write(self._styled(text, emission["status"]) if round_["drafted"] else text)

    def _end(self, event: Event) -> None:
        self._write(self._decoder.flush() + "\n\n" + event["sentence"] + "\n")
        if event["remarks"]:
            self._write(event["remarks"] + "\n")
        if event["badge"]:
            self._write(event["badge"]["text"] + "\n")
        if self._arithmetic:
            self._write(self._arithmetic + "\n")
        if event["draft_divergence"]:
            self._write(f"{event['draft_divergence']}\n\n{self._draft_alone(event['totals'])}\n")

    def _draft_alone(self, totals: dict[str, Any]) -> str:
        decoder = StreamDecoder()
        texts = [_printable(decoder.feed(self._pieces[token])) for token in self._alone]
        texts.append(decoder.flush())
        draft_divergence = totals["draft_divergence"]
        if draft_divergence is None:
            return "".join(texts)
        return "".join(texts[:draft_divergence]) + self._paint(
            _DIVERGENCE + "".join(texts[draft_divergence:]), _DIVERGED
        )

    def _text(self, token: int) -> str:
        return _printable(self._decoder.feed(self._pieces[token]))

    def _styled(self, text: str, status: str) -> str:
        return self._paint(_MARK.get(status, "") + text if self._color and text else text, _STYLE[status])

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}{_RESET}" if self._color and text else text

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _printable(text: str) -> str:
    return text.translate(_VISIBLE_CONTROLS)
