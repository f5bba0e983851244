"""Show a run's events in a terminal: tokens coloured by status, with a cue that needs no colour.

Control characters in model text are shown as symbols, never sent.
"""

import base64
import os
from typing import Any, TextIO

from specdemo.records.events import Event
from specdemo.records.pieces import StreamDecoder
from specdemo.records.trace import DRAFT, SPECULATIVE, Status

_STYLE = {
    Status.ACCEPTED: "32",
    Status.CORRECTED: "1;33;4",
    Status.BONUS: "36;4",
    Status.DISCARDED: "2;31;9",
}
_DIVERGED = "33"
"""The style of the draft model's own text after its divergence from the target's."""
_DIVERGENCE = "⟨≠⟩"
_RESET = "\x1b[0m"
_VISIBLE_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {
    127: "\u2421"
}


def wants_colour(stream: TextIO) -> bool:
    """Return whether to use colours: in a terminal unless NO_COLOR is set, else only with FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


class TerminalView:
    """Prints the speculative lane as it is decided, then the closing sentence and the badge.

    The draft model's own text, if the run has one, comes last.
    """

    def __init__(self, out: TextIO):
        self._out = out
        self._colour = wants_colour(out)
        self._pieces: dict[int, bytes] = {}
        self._decoder = StreamDecoder()
        self._alone: list[int] = []
        self._arithmetic = ""

    def show(self, event: Event) -> None:
        """Print one event."""
        self._pieces |= {int(i): base64.b64decode(piece) for i, piece in event.get("pieces", {}).items()}
        if event["type"] == "start":
            self._arithmetic = event["run"]["arithmetic"]
            self._legend()
        elif event["type"] == "round" and event["lane"] == SPECULATIVE:
            self._round(event["round"])
        elif event["type"] == "round" and event["lane"] == DRAFT:
            self._alone.append(event["round"]["emission"]["id"])
        elif event["type"] == "end":
            self._end(event)

    def _legend(self) -> None:
        if self._colour:
            names = (Status.ACCEPTED, Status.CORRECTED, Status.DISCARDED, Status.BONUS)
            self._write("  ".join(self._styled(name, name) for name in names) + "\n\n")

    def _round(self, round_: dict[str, Any]) -> None:
        discarded = []
        for token in round_["drafted"]:
            if token["status"] == Status.ACCEPTED:
                self._write(self._styled(self._text(token["id"]), Status.ACCEPTED))
            else:
                discarded.append(token["id"])
        if discarded and self._colour:
            # Discarded bytes must not reach the decoder of the text that stays.
            lost = b"".join(self._pieces[token] for token in discarded).decode(errors="replace")
            self._write(self._styled(_printable(lost).replace("\n", "⏎"), Status.DISCARDED))
        if round_["emission"]:
            emission = round_["emission"]
            text = self._text(emission["id"])
            # A token of a round without a draft is no bonus.
            self._write(self._styled(text, emission["status"]) if round_["drafted"] else text)

    def _end(self, event: Event) -> None:
        self._write(self._decoder.flush() + "\n\n" + event["sentence"] + "\n")
        if event["badge"]:
            self._write(event["badge"]["text"] + "\n")
        if self._arithmetic:
            self._write(self._arithmetic + "\n")
        if event["departure"]:
            self._write(f"{event['departure']}\n\n{self._draft_alone(event['totals'])}\n")

    def _draft_alone(self, totals: dict[str, Any]) -> str:
        """Return the draft model's own text, with a mark where it diverges from the target's."""
        decoder = StreamDecoder()
        texts = [_printable(decoder.feed(self._pieces[token])) for token in self._alone]
        texts.append(decoder.flush())
        departs = totals["draft_alone_departs"]
        if departs is None:
            return "".join(texts)
        return "".join(texts[:departs]) + self._paint(_DIVERGENCE + "".join(texts[departs:]), _DIVERGED)

    def _text(self, token: int) -> str:
        return _printable(self._decoder.feed(self._pieces[token]))

    def _styled(self, text: str, status: str) -> str:
        return self._paint(text, _STYLE[Status(status)])

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}{_RESET}" if self._colour and text else text

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _printable(text: str) -> str:
    return text.translate(_VISIBLE_CONTROLS)
