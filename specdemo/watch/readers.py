"""Readers of the streams of llama.cpp's server, vLLM, and any other server with OpenAI's API.

A reader turns the events of one run into rounds, or into pieces of text if the server reports no rounds.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, TypeGuard

from specdemo.records.limits import MAX_NEW_TOKENS, MAX_WATCHED_K, UserError
from specdemo.records.trace import Finish

MIN_LOGPROB = -1_000.0
"""Lower log probabilities are 0 as a number, too."""
MAX_COUNT = 10**9
"""Larger counts are no counts."""


class ServerToken(NamedTuple):
    """One token of a server.

    Attributes:
        text: Its bytes; empty if they came with a later token.
        p: Its probability under the target, or None if unknown.
        top: The target's most likely tokens at this position with their probabilities, if reported.
        special: True for a control token, which has no text of its own.
    """

    text: bytes
    p: float | None = None
    top: tuple[tuple[bytes, float], ...] = ()
    special: bool = False


END = ServerToken(b"end of text", special=True)
"""The token that ends a text: servers count it but do not send its text."""


@dataclass(frozen=True)
class ServerRound:
    """One pass of the server's target.

    Attributes:
        tokens: The accepted draft tokens, then the target's own token. The latter is missing if the run ended
            inside the accepted draft.
        drafted, accepted: The numbers of draft tokens.
        seconds: The time since the previous pass.
        prompt_s: The time to process the prompt; 0 except in the first round.
    """

    tokens: tuple[ServerToken, ...] = ()
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    prompt_s: float = 0.0


class StreamEnd(NamedTuple):
    """The result of a stream that has ended.

    Attributes:
        rounds: Those not returned before.
        finish: Why the run ended.
        has_rounds: False if each round is only a piece of text.
        summary: The server's own counts in a sentence, or the empty string.
    """

    rounds: Sequence[ServerRound]
    finish: Finish
    has_rounds: bool
    summary: str = ""


class Reader:
    """Reader of any stream of OpenAI's API: each event is one piece of text.

    Args:
        name: The host's name for the server, for error messages.
    """

    title: ClassVar = "a server with OpenAI's API"
    fields: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}
    """Fields of a chat request besides the text and its settings."""
    completion_fields: ClassVar[dict[str, Any]] = fields
    """The same for a request to continue a prompt."""
    silent: ClassVar[tuple[str, ...]] = (
        "The server does not report its rounds, so the text is shown in the pieces in which it came.",
        "It reports no probabilities, and times are those of arrival here.",
    )
    """Sentences that name the values missing in the server's reports."""
    has_rounds: ClassVar[bool | None] = False
    """True if events are rounds, None if only the end of the stream answers that."""

    def __init__(self, name: str):
        self._name = name
        self._finish: Finish | None = None
        self._last_at = -1.0

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        """Return the rounds that are certain after one more event.

        Args:
            data: The event.
            at: Its arrival, in seconds since the request.

        Raises:
            UserError: The server contradicts itself.
        """
        self._finish = _finish(data) or self._finish
        if not (text := _text(data)):
            return []
        seconds, prompt_s = (0.0, at) if self._last_at < 0 else (at - self._last_at, 0.0)
        self._last_at = at
        return [ServerRound((ServerToken(text),), seconds=seconds, prompt_s=prompt_s)]

    def end(self) -> StreamEnd:
        """Return the rest when the stream has ended.

        Raises:
            UserError: The server contradicts itself.
        """
        return StreamEnd([], self._finish or Finish.LENGTH, has_rounds=False)


class LlamaServerReader(Reader):
    """Reader of llama.cpp's server, which sends each token with cumulative counts.

    All tokens of a round share ``predicted_ms``, ``draft_n`` and ``draft_n_accepted``; ``predicted_n`` counts
    up. The end of the text and a token that ends inside a character come with a later event, in which
    ``predicted_n`` rises by more than one. Measured on the wheel xllamacpp 2026.10.11549.
    """

    title = "llama.cpp's server"
    fields: ClassVar = {"timings_per_token": True, "cache_prompt": False, **Reader.fields}
    completion_fields: ClassVar = fields
    silent = (
        "The server reports neither rejected tokens (▢), nor probabilities of rounds with a draft, nor how a "
        "round's time was spent.",
    )
    has_rounds = True

    def __init__(self, name: str):
        super().__init__(name)
        self._counts = {"predicted_n": 0, "draft_n": 0, "draft_n_accepted": 0}
        self._ms = -1.0
        self._rounds: list[ServerRound] = []  # begun, still without their tokens
        self._tokens: list[ServerToken] = []
        self._text = b""

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        """See ``Reader.read``."""
        self._finish = _finish(data) or self._finish
        self._text += _text(data)
        timings = data.get("timings")
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
            check_draft(drafted, accepted, self._name)
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
        """See ``Reader.end``."""
        self._split_last_round()
        rounds = self._complete_rounds()
        if len(self._rounds) > 1 or bool(self._rounds) != bool(self._tokens):
            raise inconsistent_counts_error(self._name, "more accepted than written")
        for last in self._rounds:  # the run may have ended inside its accepted draft
            accepted = min(last.accepted, len(self._tokens))
            rounds.append(replace(last, tokens=tuple(self._tokens), accepted=accepted))
        drafted, accepted = self._counts["draft_n"], self._counts["draft_n_accepted"]
        summary = counts_sentence(accepted, drafted, self._name) if drafted else ""
        return StreamEnd(rounds, self._finish or Finish.LENGTH, True, summary)

    def _count(self, timings: Mapping[str, Any], key: str) -> int:
        value, before = timings.get(key, 0), self._counts[key]
        if not _is_count(value) or value < before:
            raise inconsistent_counts_error(self._name, f"{key} of {str(value)[:40]} after {before}")
        return value

    def _split_last_round(self) -> None:
        """Split the last round if it has more tokens than one round can write: it was several in one event.

        Only the sum of their accepted tokens is known; one of them is taken to have had the whole draft.
        """
        surplus = len(self._tokens) - sum(one.accepted + 1 for one in self._rounds)
        if self._rounds and surplus > 0:
            last = self._rounds.pop()
            share = replace(last, seconds=last.seconds / (surplus + 1))
            without_draft = [ServerRound(seconds=share.seconds)] * surplus
            first, *others = [*without_draft, replace(share, prompt_s=0.0)]
            self._rounds += [replace(first, prompt_s=last.prompt_s), *others]

    def _complete_rounds(self) -> list[ServerRound]:
        """Remove and return the rounds before the last one whose tokens have all come."""
        complete = []
        while len(self._rounds) > 1 and len(self._tokens) > self._rounds[0].accepted:
            one = self._rounds.pop(0)
            size = one.accepted + 1
            complete.append(replace(one, tokens=tuple(self._tokens[:size])))
            self._tokens = self._tokens[size:]
        return complete


class VllmReader(Reader):
    """Reader of vLLM, which sends an event per pass and lists the drafts at the end.

    With ``--per-request-spec-decode-metrics detailed`` (vLLM 0.32, experimental) the last event has the
    drafted and accepted tokens of each pass that had a draft.
    """

    title = "vLLM"
    fields: ClassVar = {**Reader.fields, "return_token_ids": True, "logprobs": True, "top_logprobs": 5}
    completion_fields: ClassVar = {**Reader.fields, "return_token_ids": True, "logprobs": 5}
    silent = (
        "The server reports neither rejected tokens (▢) nor the draft's probabilities; times are those of "
        "arrival here.",
        "It reports its drafts when a run has ended, so the run is shown then, at its own pace.",
    )
    has_rounds = None
    not_detailed: ClassVar = (
        "The server does not report its rounds; with --per-request-spec-decode-metrics detailed it would."
    )

    def __init__(self, name: str):
        super().__init__(name)
        self._arrivals: list[tuple[list[ServerToken], float]] = []
        self._written = 0
        self._metrics: Mapping[str, Any] = {}

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        """See ``Reader.read``; all rounds come with the end."""
        self._finish = _finish(data) or self._finish
        self._metrics = _dict(_dict(data.get("metrics")).get("speculative_decoding")) or self._metrics
        tokens = self._event_tokens(data)
        self._written += len(tokens)
        check_written(self._written, self._name)
        if tokens:
            self._arrivals.append((tokens, at))
        return []

    def end(self) -> StreamEnd:
        """See ``Reader.end``."""
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
        if _are_counts(totals) and totals[1] and totals[2]:
            summary = counts_sentence(totals[0], totals[1], self._name, passes=totals[2])
        return StreamEnd(rounds, self._finish or Finish.LENGTH, drafts is not None, summary)

    def _event_tokens(self, data: Mapping[str, Any]) -> list[ServerToken]:
        tokens, text, ids = _logprob_tokens(data), _text(data), _choice(data).get("token_ids")
        count = len(ids) if _are_counts(ids) else len(tokens) or bool(text)
        if len(tokens) != count:
            return [*[ServerToken(b"")] * (count - 1), ServerToken(text)] if count else []
        written = b"".join(token.text for token in tokens)
        if self._finish is Finish.EOS and tokens and written != text and written.startswith(text):
            return [*tokens[:-1], END]
        return tokens

    def _drafts(self) -> list[tuple[int, int]] | None:
        """Return the drafted and accepted tokens of each event, or None if they are unknown."""
        drafted, accepted = self._metrics.get("per_step_drafted"), self._metrics.get("per_step_accepted")
        if not (_are_counts(drafted) and _are_counts(accepted) and len(drafted) == len(accepted)):
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
    """Reader of Ray Serve LLM, which passes vLLM's stream on."""

    title = "Ray Serve LLM"


READERS: Mapping[str, type[Reader]] = {
    "llamacpp": LlamaServerReader,
    "vllm": VllmReader,
    "organization-owner": RayServeReader,
}
"""Readers by the ``owned_by`` of a server's models; :class:`Reader` reads all others."""


def assign_drafts(sizes: Sequence[int], drafts: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Return the draft of each event, ``(0, 0)`` for a pass without one.

    vLLM does not report which passes had no draft. An event of n tokens is a pass that accepted n - 1; among
    events of one token, the earliest get the drafts of which nothing was accepted.

    Args:
        sizes: The number of tokens of each event after the first token.
        drafts: The drafted and accepted tokens of each pass that had a draft, in order.

    Returns:
        None if the events cannot be single passes: vLLM puts several into one event when it is read late.
    """
    found, left = [], deque(drafts)
    for index, size in enumerate(sizes, 1):
        # The last pass may have accepted more than was still wanted.
        cut = index == len(sizes) and len(left) == 1 and size <= left[0][1]
        if left and (cut or left[0][1] + 1 == size):
            drafted, accepted = left.popleft()
            found.append((drafted, min(accepted, size)))
        elif size == 1:
            found.append((0, 0))
        else:
            return None
    return None if left else found


def check_draft(drafted: int, accepted: int, name: str) -> None:
    """Raise ``UserError`` unless a pass can have drafted and accepted this many tokens."""
    if accepted > drafted:
        raise inconsistent_counts_error(name, f"{accepted} accepted of {drafted} drafted")
    if drafted > MAX_WATCHED_K:
        raise UserError(f"{name} drafts {drafted} tokens in a round; at most {MAX_WATCHED_K} can be shown.")


def check_written(tokens: int, name: str) -> None:
    """Raise ``UserError`` if a run has more tokens than any visitor can ask for."""
    if tokens > MAX_NEW_TOKENS:
        raise inconsistent_counts_error(name, "more tokens than were asked for")


def inconsistent_counts_error(name: str, what: str) -> UserError:
    """Return the error about a server that contradicts itself."""
    return UserError(f"{name} reports impossible counts ({what}), so its rounds cannot be shown.")


def counts_sentence(accepted: int, drafted: int, name: str, passes: int = 0) -> str:
    """Return a server's own counts of a run as a sentence.

    Args:
        accepted, drafted: Draft tokens.
        name: The server's.
        passes: The passes with a draft, or 0 if unknown.

    Raises:
        UserError: The counts are impossible.
    """
    if accepted > drafted:
        raise inconsistent_counts_error(name, f"{accepted} accepted of {drafted} drafted")
    mean = f", {1 + accepted / passes:.2f} tokens per pass with a draft" if passes else ""
    share = f"{accepted / drafted:.0%} per drafted token"
    return f"The server counts {accepted:,} of {drafted:,} drafted tokens accepted ({share}){mean}."


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MAX_COUNT


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and len(values) <= 100_000 and all(map(_is_count, values))


def _choice(data: Mapping[str, Any]) -> dict[str, Any]:
    return _dict(next(iter(_list(data.get("choices"))), None))


def _text(data: Mapping[str, Any]) -> bytes:
    """Return the text that an event adds, of a chat or a completion; reasoning counts as text."""
    choice = _choice(data)
    delta = _dict(choice.get("delta"))
    reasoning = delta.get("reasoning", delta.get("reasoning_content"))
    parts = (reasoning, delta.get("content"), choice.get("text"))
    return "".join(part for part in parts if isinstance(part, str)).encode(errors="replace")


def _finish(data: Mapping[str, Any]) -> Finish | None:
    reason = _choice(data).get("finish_reason")
    return None if reason is None else Finish.LENGTH if reason == "length" else Finish.EOS


def _logprob_tokens(data: Mapping[str, Any]) -> list[ServerToken]:
    """Return the tokens of an event that has log probabilities in OpenAI's form."""
    logprobs = _dict(_choice(data).get("logprobs"))
    entries = logprobs.get("content")
    if not isinstance(entries, list):  # a completion has a list for each field
        tokens = _list(logprobs.get("tokens"))
        tops = [
            [{"token": token, "logprob": value} for token, value in _dict(top).items()]
            for top in _list(logprobs.get("top_logprobs"))
        ]
        fields = zip_longest(tokens, _list(logprobs.get("token_logprobs")), tops)
        entries = [{"token": token, "logprob": p, "top_logprobs": top} for token, p, top in fields]
        entries = entries[: len(tokens)]
    return [_token(entry) for entry in entries if isinstance(entry, dict)]


def _token(entry: Mapping[str, Any]) -> ServerToken:
    top = [_dict(one) for one in _list(entry.get("top_logprobs"))[:5]]
    likeliest = [(_bytes(one), _probability(one.get("logprob"))) for one in top]
    known = tuple((text, p) for text, p in likeliest if p is not None)
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
