"""llama.cpp's server: every token comes by itself with cumulative counts, so rounds are known as they happen.

All tokens of a round share ``predicted_ms``, ``draft_n`` and ``draft_n_accepted``; ``predicted_n`` counts up.
Text that ends inside a character, and the token that ends the text, come with a later event or none, which
shows in ``predicted_n``. Measured on the wheel xllamacpp 2026.10.11549.
"""

from typing import Any, NamedTuple

from specdemo.records.trace import Finish
from specdemo.watch.steps import (
    END,
    Outcome,
    Piece,
    Step,
    check_written,
    checked_step,
    counted_words,
    finish_of,
    lie,
    text_of,
    whole,
)
from specdemo.watch.stream import Chunk

FIELDS = {"timings_per_token": True, "cache_prompt": False, "stream_options": {"include_usage": True}}
SILENT = (
    "Refused tokens (▢), probabilities of drafted rounds, and how a round's time was spent are not told.",
)


Counts = dict[str, int]
COUNTS: tuple[str, ...] = ("predicted_n", "draft_n", "draft_n_accepted")


class _Round(NamedTuple):
    """A round that has begun: what it drafted and kept, and its seconds."""

    drafted: int
    accepted: int
    seconds: float
    prompt_s: float

    @property
    def size(self) -> int:
        """Tokens that it writes."""
        return self.accepted + 1


class LlamaServerReader:
    """See ``steps.Reader``."""

    def __init__(self, name: str):
        self._name = name
        self._counts: Counts = {key: 0 for key in COUNTS}
        self._ms = -1.0
        self._rounds: list[_Round] = []
        """Those that have begun and are not told yet, in order."""
        self._tokens: list[Piece] = []
        """Of those rounds, as far as they came."""
        self._text = ""
        self._finish: Finish | None = None

    def take(self, chunk: Chunk) -> list[Step]:
        """See ``steps.Reader``."""
        self._finish = finish_of(chunk.data) or self._finish
        self._text += text_of(chunk.data)
        timings = chunk.data.get("timings")
        if not isinstance(timings, dict):
            return []
        before = self._counts
        now = {key: self._count(timings, key) for key in COUNTS}
        check_written(now["predicted_n"], self._name)
        if now["predicted_n"] == before["predicted_n"]:
            return []
        ms = _number(timings, "predicted_ms")
        if ms is None or ms < self._ms:
            raise lie(self._name, "a time that runs backwards")
        if ms > self._ms:
            self._settle_surplus()
            self._rounds.append(self._begun(before, now, timings, ms))
        self._tokens += self._pieces(now["predicted_n"] - before["predicted_n"])
        self._counts, self._ms, self._text = now, ms, ""
        return self._told(len(self._rounds) - 1)

    def end(self) -> Outcome:
        """See ``steps.Reader``."""
        self._settle_surplus()
        steps = self._told(len(self._rounds) - 1)
        if len(self._rounds) > 1 or bool(self._rounds) != bool(self._tokens):
            raise lie(self._name, "more accepted than written")
        for last in self._rounds[:]:
            # The run ended inside what was accepted, or with all that was.
            kept = min(last.accepted, len(self._tokens))
            steps.append(self._step(last, kept, len(self._tokens)))
        accepted, drafted = self._counts["draft_n_accepted"], self._counts["draft_n"]
        said = counted_words(accepted, drafted, self._name) if drafted else ""
        return Outcome(steps, self._finish or Finish.LENGTH, said=said)

    def _begun(
        self, before: dict[str, int], now: dict[str, int], timings: dict[str, Any], ms: float
    ) -> _Round:
        drafted, accepted = (now[key] - before[key] for key in ("draft_n", "draft_n_accepted"))
        if accepted > drafted:
            raise lie(self._name, f"{accepted} accepted of {drafted} drafted")
        first = self._ms < 0
        prompt_ms = _number(timings, "prompt_ms") if first else 0.0
        return _Round(drafted, accepted, (ms if first else ms - self._ms) / 1000, (prompt_ms or 0.0) / 1000)

    def _pieces(self, count: int) -> list[Piece]:
        """The tokens of one event: the last one says its text, unless it is the end of the whole."""
        ends = self._finish is Finish.EOS and not self._text
        return [*[Piece(b"")] * (count - 1), END if ends else Piece(self._text.encode(errors="replace"))]

    def _count(self, timings: dict[str, Any], key: str) -> int:
        value, before = whole(timings.get(key, 0)), self._counts[key]
        if value is None or value < before:
            raise lie(self._name, f"{key} of {str(timings.get(key))[:40]} after {before}")
        return value

    def _settle_surplus(self) -> None:
        """More tokens than the rounds can have written: several rounds in one event.

        How many of their drafts were accepted is told, in which of them not; one is taken to have had all.
        """
        if self._rounds and (surplus := len(self._tokens) - sum(one.size for one in self._rounds)) > 0:
            last = self._rounds.pop()
            seconds = last.seconds / (surplus + 1)
            singles = [_Round(0, 0, seconds, 0.0) for _ in range(surplus)]
            whole_of = _Round(last.drafted, last.accepted, seconds, 0.0)
            first, *others = [*singles, whole_of]
            self._rounds += [first._replace(prompt_s=last.prompt_s), *others]

    def _told(self, rounds: int) -> list[Step]:
        """Steps of the first ``rounds``, as far as their tokens came: some come with a later round's."""
        steps = []
        for _ in range(rounds):
            if len(self._tokens) < self._rounds[0].size:
                break
            steps.append(self._step(self._rounds[0], self._rounds[0].accepted, self._rounds[0].size))
        return steps

    def _step(self, round_: _Round, accepted: int, size: int) -> Step:
        """The first round's step, taken off what waits."""
        self._rounds.pop(0)
        tokens, self._tokens = tuple(self._tokens[:size]), self._tokens[size:]
        return checked_step(
            Step(tokens, round_.drafted, accepted, round_.seconds, round_.prompt_s), self._name
        )


def _number(timings: dict[str, Any], key: str) -> float | None:
    value = timings.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else None
