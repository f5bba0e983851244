"""LM Studio, and any other server of OpenAI's streams: text as it comes, of drafts at most counts at the end.

From LM Studio's documentation, not seen running.
"""

from typing import Any

from specdemo.records.trace import Finish
from specdemo.watch.steps import NOTHING_SAID, Outcome, Piece, Step, counted_words, finish_of, text_of, whole
from specdemo.watch.stream import Chunk

FIELDS = {"stream_options": {"include_usage": True}}
SILENT = (
    "The server does not tell its rounds, so the text is shown in the pieces in which it came.",
    "It tells no probabilities, and times are those of arrival here.",
)
STATS = {
    "drafted": "total_draft_tokens_count",
    "accepted": "accepted_draft_tokens_count",
    "ignored": "ignored_draft_tokens_count",
}


class PlainReader:
    """See ``steps.Reader``."""

    def __init__(self, name: str):
        self._name = name
        self._before: float | None = None
        self._finish: Finish | None = None
        self._stats: dict[str, Any] = {}

    def take(self, chunk: Chunk) -> list[Step]:
        """See ``steps.Reader``."""
        self._finish = finish_of(chunk.data) or self._finish
        for key in ("stats", "usage"):
            told = chunk.data.get(key)
            if isinstance(told, dict) and STATS["drafted"] in told:
                self._stats = told
        if not (text := text_of(chunk.data)):
            return []
        piece = (Piece(text.encode(errors="replace")),)
        before, self._before = self._before, chunk.at
        return [Step(piece, prompt_s=chunk.at) if before is None else Step(piece, seconds=chunk.at - before)]

    def end(self) -> Outcome:
        """See ``steps.Reader``."""
        return Outcome([], self._finish or Finish.LENGTH, False, self._said())

    def _said(self) -> str:
        told = {name: whole(self._stats.get(key)) for name, key in STATS.items()}
        drafted, accepted = told["drafted"], told["accepted"]
        if not drafted or accepted is None:
            return NOTHING_SAID
        ignored = told["ignored"]
        unseen = f" {ignored:,} of them were never looked at." if ignored else ""
        return counted_words(accepted, drafted, self._name) + unseen
