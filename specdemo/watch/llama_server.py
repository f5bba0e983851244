"""Reader for the streams of llama.cpp's server, whose counts show the rounds while they arrive."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from specdemo.records.trace import Finish
from specdemo.watch.reader import (
    END,
    Reader,
    ServerRound,
    ServerToken,
    StreamEnd,
    as_dict,
    check_draft,
    check_written,
    finish_of,
    inconsistent_counts_error,
    is_count,
    text_of,
    totals_sentence,
)

SHARES = "For some rounds it reported only sums; they are shown in equal shares and do not count for α."


class LlamaServerReader(Reader):
    """Reader for llama.cpp's server, which sends each token with cumulative counts (xllamacpp 2026.10.11549).

    ``predicted_ms``, ``draft_n`` and ``draft_n_accepted`` are the same in all events of a round. A token that
    ends inside a character has no event of its own, nor has the token that ends the text; the next event then
    raises ``predicted_n``, the number of tokens, by more than one. If text arrives before any counts, the
    server does not report its rounds.
    """

    title = "llama.cpp's server"
    fields: ClassVar = {"timings_per_token": True, "cache_prompt": False, **Reader.fields}
    completion_fields: ClassVar = fields
    silent = (
        "The server reports neither rejected tokens (▢), nor probabilities in rounds with a draft, nor the "
        "times of drafting and verification.",
    )
    has_rounds = True

    def __init__(self, name: str):
        super().__init__(name)
        self._counts = {"predicted_n": 0, "draft_n": 0, "draft_n_accepted": 0}
        self._ms = -1.0
        self._rounds: list[ServerRound] = []  # rounds that have begun, whose tokens are still in ``_tokens``
        self._tokens: list[ServerToken] = []
        self._text = b""
        self._has_shares = False

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        text, timings = text_of(data), data.get("timings")
        if text and self._ms < 0 and "predicted_n" not in as_dict(timings):
            self.has_rounds, self.silent = False, Reader.silent
        if not self.has_rounds:
            return super().read(data, at)
        self.has_text = self.has_text or text != b""
        self._finish = finish_of(data) or self._finish
        self._summary = totals_sentence(data, self._name) or self._summary
        self._text += text
        if not isinstance(timings, dict):
            return []
        counts = {key: self._count(timings, key) for key in self._counts}
        predicted, drafted, accepted = (counts[key] - before for key, before in self._counts.items())
        check_written(counts["predicted_n"], self._name)
        if not predicted:
            return []
        ms = timings.get("predicted_ms")
        if not isinstance(ms, int | float) or not max(self._ms, 0) <= ms < 1e12:
            raise inconsistent_counts_error(self._name, "a time that runs backwards")
        if ms > self._ms:
            self._split_last_round()
            prompt_ms = timings.get("prompt_ms") if self._ms < 0 else 0
            if not isinstance(prompt_ms, int | float) or not 0 <= prompt_ms < 1e12:
                prompt_ms = 0
            seconds = (ms - max(self._ms, 0)) / 1000
            self._rounds.append(ServerRound((), drafted, accepted, seconds, prompt_ms / 1000))
        last = END if self._finish is Finish.EOS and not self._text else ServerToken(self._text)
        self._tokens += [*[ServerToken(b"")] * (predicted - 1), last]
        self._counts, self._ms, self._text = counts, ms, b""
        return self._complete_rounds()

    def end(self) -> StreamEnd:
        if not self.has_rounds:
            return super().end()
        if self._text and self._tokens:  # text without counts after the last ones
            self._tokens[-1] = ServerToken(self._tokens[-1].text + self._text)
        self._split_last_round()
        rounds = self._complete_rounds()
        if len(self._rounds) > 1 or bool(self._rounds) != bool(self._tokens):
            raise inconsistent_counts_error(self._name, "more accepted than written")
        for last in self._rounds:  # at most one; the run may have ended inside the round's accepted draft
            accepted = min(last.accepted, len(self._tokens))
            rounds.append(replace(last, tokens=tuple(self._tokens), accepted=accepted))
        summary = f"{self._summary} {SHARES}" if self._has_shares else self._summary
        return StreamEnd(rounds, self._finish or Finish.LENGTH, True, summary)

    def _count(self, timings: Mapping[str, Any], key: str) -> int:
        value, before = timings.get(key, 0), self._counts[key]
        if not is_count(value) or value < before:
            raise inconsistent_counts_error(self._name, f"{key} of {str(value)[:40]} after {before}")
        return value

    def _split_last_round(self) -> None:
        # A last round with more tokens than one round can write is several rounds that the server reported in
        # one event, with the sums of their counts. Which of them drafted and accepted what is unknown.
        if not self._rounds:
            return
        last = self._rounds.pop()
        count = max(1, len(self._tokens) - sum(one.accepted + 1 for one in self._rounds) - last.accepted)
        for index in range(count):
            share = ServerRound(
                (),
                drafted=last.drafted // count + (index < last.drafted % count),
                accepted=last.accepted // count + (index < last.accepted % count),
                seconds=last.seconds / count,
                prompt_s=0.0 if index else last.prompt_s,
                is_share=count > 1 and last.drafted > 0,
            )
            check_draft(share.drafted, share.accepted, self._name)
            self._rounds.append(share)
        self._has_shares = self._has_shares or self._rounds[-1].is_share

    def _complete_rounds(self) -> list[ServerRound]:
        """Remove and return the rounds that have all their tokens, but never the last round."""
        complete = []
        while len(self._rounds) > 1 and len(self._tokens) > self._rounds[0].accepted:
            one = self._rounds.pop(0)
            size = one.accepted + 1
            complete.append(replace(one, tokens=tuple(self._tokens[:size])))
            self._tokens = self._tokens[size:]
        return complete
