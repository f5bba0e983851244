"""Readers for the streams of vLLM, whose last event lists its drafts, and of Ray Serve LLM."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

from specdemo.records.trace import Finish
from specdemo.watch.reader import (
    END,
    Reader,
    ServerRound,
    ServerToken,
    StreamEnd,
    are_counts,
    as_dict,
    as_list,
    check_draft,
    check_written,
    choice_of,
    counts_sentence,
    finish_of,
    text_of,
)

MIN_LOGPROB = -1_000.0  # its probability is 0 in floating point


class VllmReader(Reader):
    """Reader for vLLM, which sends one event per target pass.

    With ``--per-request-spec-decode-metrics detailed`` (vLLM 0.32, experimental), its last event lists the
    numbers of drafted and accepted tokens of each pass that had a draft.
    """

    title = "vLLM"
    fields: ClassVar = {**Reader.fields, "return_token_ids": True, "logprobs": True, "top_logprobs": 5}
    completion_fields: ClassVar = {**Reader.fields, "return_token_ids": True, "logprobs": 5}
    silent = (
        "The server reports neither rejected tokens (▢) nor probabilities of the draft model; times are "
        "arrival times.",
        "The server reports its rounds after the run, so the page shows the run then, at its original speed.",
    )
    has_rounds = None
    not_detailed: ClassVar = (
        "The server does not report its rounds; its host can start it with "
        "--per-request-spec-decode-metrics detailed."
    )

    def __init__(self, name: str):
        super().__init__(name)
        self._arrivals: list[tuple[list[ServerToken], float]] = []
        self._written = 0
        self._metrics: Mapping[str, Any] = {}

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        self._finish = finish_of(data) or self._finish
        self._metrics = as_dict(as_dict(data.get("metrics")).get("speculative_decoding")) or self._metrics
        tokens = self._event_tokens(data)
        self._written += len(tokens)
        check_written(self._written, self._name)
        if tokens:
            self._arrivals.append((tokens, at))
        elif self._arrivals:  # text without a token belongs to the last one
            last = self._arrivals[-1][0]
            last[-1] = last[-1]._replace(text=last[-1].text + text_of(data))
        return []

    def end(self) -> StreamEnd:
        drafts = self._drafts()
        rounds: list[ServerRound] = []
        last_at = 0.0
        for index, (tokens, at) in enumerate(self._arrivals):
            seconds, prompt_s = (at - last_at, 0.0) if index else (0.0, at)
            if drafts is not None:
                rounds.append(ServerRound(tuple(tokens), *drafts[index], seconds, prompt_s))
            else:
                share = seconds / len(tokens)
                rounds.append(ServerRound((tokens[0],), seconds=share, prompt_s=prompt_s))
                rounds += [ServerRound((token,), seconds=share) for token in tokens[1:]]
            last_at = at
        summary = "" if drafts is not None else self.not_detailed
        keys = ("num_accepted_draft_tokens", "num_draft_tokens", "num_spec_steps")
        totals: Any = [self._metrics.get(key) for key in keys]
        if are_counts(totals) and totals[1] and totals[2]:
            summary = counts_sentence(totals[0], totals[1], self._name, passes=totals[2])
        return StreamEnd(rounds, self._finish or Finish.LENGTH, drafts is not None, summary)

    def _event_tokens(self, data: Mapping[str, Any]) -> list[ServerToken]:
        tokens, text, ids = _logprob_tokens(data), text_of(data), choice_of(data).get("token_ids")
        count = len(ids) if are_counts(ids) else len(tokens) or bool(text)
        if len(tokens) != count:
            tokens = [ServerToken(b"")] * count
        written = [token.text for token in tokens]
        if not tokens or b"".join(written) == text:
            return tokens
        if self._finish is Finish.EOS and written[-1] and b"".join(written[:-1]) == text:
            return [*tokens[:-1], END]
        # The strings of tokens may be ids, names of bytes, or lack spaces.
        return [*(token._replace(text=b"") for token in tokens[:-1]), tokens[-1]._replace(text=text)]

    def _drafts(self) -> list[tuple[int, int]] | None:
        """Return the numbers of drafted and accepted tokens for each event; None if unknown."""
        drafted, accepted = self._metrics.get("per_step_drafted"), self._metrics.get("per_step_accepted")
        if not (are_counts(drafted) and are_counts(accepted) and len(drafted) == len(accepted)):
            return None
        drafts = list(zip(drafted, accepted, strict=True))
        for pair in drafts:
            check_draft(*pair, self._name)
        sizes = [len(tokens) for tokens, _ in self._arrivals]
        if sizes[:1] != [1]:  # the first pass processes the prompt and writes one token
            return None
        found = assign_drafts(sizes[1:], drafts)
        return None if found is None else [(0, 0), *found]


class RayServeReader(VllmReader):
    """Reader for Ray Serve LLM, which forwards the stream of vLLM."""

    title = "Ray Serve LLM"


def assign_drafts(sizes: Sequence[int], drafts: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Return the drafted and accepted tokens of each event; ``(0, 0)`` stands for a pass without a draft.

    vLLM does not report which passes had no draft. An event with n tokens is a pass that accepted n - 1 draft
    tokens. An event with one token is a pass without a draft, or one whose first draft token was rejected; if
    both are possible, rejected drafts are assigned to the earliest events. Return None if an event contains
    several passes, which vLLM sends to a client that reads slowly.

    Args:
        sizes: The number of tokens in each event after the first.
        drafts: The drafted and accepted tokens of each pass that had a draft, in order.
    """
    found, left = [], deque(drafts)
    for index, size in enumerate(sizes, 1):
        # The last pass may have accepted more tokens than the run had left; vLLM sends only those.
        cut = index == len(sizes) and len(left) == 1 and size <= left[0][1]
        if left and (cut or left[0][1] + 1 == size):
            drafted, accepted = left.popleft()
            found.append((drafted, min(accepted, size)))
        elif size == 1:
            found.append((0, 0))
        else:
            return None
    return None if left else found


def _logprob_tokens(data: Mapping[str, Any]) -> list[ServerToken]:
    logprobs = as_dict(choice_of(data).get("logprobs"))
    entries = logprobs.get("content")
    if not isinstance(entries, list):  # in a completion stream, each field is a separate list
        tokens = as_list(logprobs.get("tokens"))
        tops = [
            [{"token": token, "logprob": value} for token, value in as_dict(top).items()]
            for top in as_list(logprobs.get("top_logprobs"))
        ]
        fields = zip_longest(tokens, as_list(logprobs.get("token_logprobs")), tops)
        entries = [{"token": token, "logprob": p, "top_logprobs": top} for token, p, top in fields]
        entries = entries[: len(tokens)]
    return [_token(entry) for entry in entries if isinstance(entry, dict)]


def _token(entry: Mapping[str, Any]) -> ServerToken:
    top = [as_dict(one) for one in as_list(entry.get("top_logprobs"))[:5]]
    listed = [(_bytes(one), _probability(one.get("logprob"))) for one in top]
    known = tuple((text, p) for text, p in listed if p is not None)
    return ServerToken(_bytes(entry), _probability(entry.get("logprob")), known)


def _bytes(entry: Mapping[str, Any]) -> bytes:
    values, token = entry.get("bytes"), entry.get("token")
    if isinstance(values, list) and all(type(byte) is int and 0 <= byte < 256 for byte in values):
        return bytes(values)
    return token.encode(errors="replace") if isinstance(token, str) else b""


def _probability(logprob: Any) -> float | None:
    if isinstance(logprob, int | float) and not isinstance(logprob, bool) and logprob <= 0:
        return math.exp(max(logprob, MIN_LOGPROB))
    return None
