"""SGLang: an event holds what one pass wrote; at the end come how many passes there were and what they kept.

Every pass drafts the same number of tokens, and the histogram of kept drafts is told, so the events are taken
for the passes where both agree; where they do not (the server put several together) only counts are shown.
Read from SGLang 0.5.23's source, not seen running.
"""

from collections import Counter
from typing import Any

from specdemo.records.trace import Finish
from specdemo.watch import vllm
from specdemo.watch.arrivals import Arrival, pieces_only
from specdemo.watch.steps import (
    NOTHING_SAID,
    Outcome,
    Step,
    check_written,
    checked_step,
    counted_words,
    counts,
    finish_of,
    pieces_of,
    text_of,
    whole,
    with_text,
)
from specdemo.watch.stream import Chunk

FIELDS = {
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_spec_tokens_details": True,
    "logprobs": True,
    "top_logprobs": 5,
}
CONTINUATION_FIELDS = {**FIELDS, "logprobs": 5}
SILENT = vllm.SILENT


class SglangReader:
    """See ``steps.Reader``."""

    def __init__(self, name: str):
        self._name = name
        self._arrivals: list[Arrival] = []
        self._finish: Finish | None = None
        self._written = 0
        self._details: dict[str, Any] = {}

    def take(self, chunk: Chunk) -> list[Step]:
        """See ``steps.Reader``; all steps come with the end."""
        data = chunk.data
        self._finish = finish_of(data) or self._finish
        extension = data.get("sglext")
        if isinstance(extension, dict) and isinstance(extension.get("spec_tokens_details"), dict):
            self._details = extension["spec_tokens_details"]
        told, text = pieces_of(data), text_of(data)
        usage = data.get("usage")
        written = whole(usage.get("completion_tokens")) if isinstance(usage, dict) else None
        count = len(told) or bool(text) if written is None else max(0, written - self._written)
        check_written(self._written + int(count), self._name)
        if count and (told or text):
            self._arrivals.append(Arrival(tuple(with_text(told, int(count), text)), chunk.at))
            self._written += int(count)
        return []

    def end(self) -> Outcome:
        """See ``steps.Reader``."""
        finish, said = self._finish or Finish.LENGTH, self._said()
        passes = self._passes()
        if passes is None:
            return Outcome(pieces_only(self._arrivals), finish, False, said)
        drafted = self._drafted_each()
        first, *others = self._arrivals
        steps, before = [Step(first.tokens, prompt_s=first.at)], first.at
        for arrival, kept in zip(others, passes, strict=True):
            written = len(arrival.tokens)
            steps.append(Step(arrival.tokens, drafted, min(kept, written), arrival.at - before))
            before = arrival.at
        return Outcome([checked_step(step, self._name) for step in steps], finish, True, said)

    def _drafted_each(self) -> int:
        passes = whole(self._details.get("spec_verify_ct"))
        proposed = whole(self._details.get("spec_num_proposed_drafts"))
        return proposed // passes if passes and proposed else 0

    def _passes(self) -> list[int] | None:
        """What each event's pass kept, None where the events cannot be the passes.

        The last one may have kept more than was still wanted.
        """
        histogram = counts(self._details.get("spec_correct_drafts_histogram"))
        if histogram is None or not self._arrivals or len(self._arrivals[0].tokens) != 1:
            return None
        left = Counter({place: count for place, count in enumerate(histogram) if count})
        written = [len(arrival.tokens) for arrival in self._arrivals[1:]]
        left.subtract(tokens - 1 for tokens in written[:-1])
        [*others] = (+left).elements() if left.total() == 1 else []
        if not written or min(left.values()) < 0 or not others or others[0] < written[-1] - 1:
            return None
        return [*[tokens - 1 for tokens in written[:-1]], others[0]]

    def _said(self) -> str:
        passes = whole(self._details.get("spec_verify_ct"))
        correct = whole(self._details.get("spec_num_correct_drafts"))
        proposed = whole(self._details.get("spec_num_proposed_drafts"))
        if not passes or correct is None or not proposed:
            return NOTHING_SAID
        return counted_words(correct, proposed, self._name, passes)
