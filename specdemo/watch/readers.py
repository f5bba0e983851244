"""Readers for the streams of llama.cpp's server, vLLM, and any other server with OpenAI's API.

A reader converts the events of one run into rounds. If the server reports no rounds, each piece of text is a
round.
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
"""Lower log probabilities are raised to this value, whose probability is already 0 in floating point."""
MAX_COUNT = 10**9
"""Counts of this size or larger are treated as invalid."""


class ServerToken(NamedTuple):
    """One token that a server wrote.

    Attributes:
        text: The token's bytes; empty if the server sent them together with a later token.
        p: The token's probability under the target, or None if unknown.
        top: The target's most likely tokens at this position with their probabilities, if reported.
        special: True for a control token, such as the end of the text.
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
        tokens: The accepted draft tokens, then the target's own token. If the run ended inside the accepted
            draft, the target's token is missing.
        drafted, accepted: The number of draft tokens, and the number of accepted ones.
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
        rounds: The rounds that ``Reader.read`` has not returned.
        finish: Why the run ended.
        has_rounds: False if the server does not report its rounds, so each round is only a piece of text.
        summary: A sentence with the server's own counts, or the empty string.
    """

    rounds: Sequence[ServerRound]
    finish: Finish
    has_rounds: bool
    summary: str = ""


class Reader:
    """Reader for the stream of any server with OpenAI's API. Each event counts as one round.

    Args:
        name: The server's name in error messages, as given in ``--watch NAME=URL``.
    """

    title: ClassVar = "a server with OpenAI's API"
    fields: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}
    """Fields of a chat request in addition to the prompt and the sampling settings."""
    completion_fields: ClassVar[dict[str, Any]] = fields
    """Additional fields of a completion request, which continues the prompt."""
    silent: ClassVar[tuple[str, ...]] = (
        "The server does not report its rounds, so the text is shown in the pieces in which it came.",
        "It reports no probabilities, and times are those of arrival here.",
    )
    """Sentences for the page that name the values which the server does not report."""
    has_rounds: ClassVar[bool | None] = False
    """True if the server reports its rounds, False if not, None if this is known only after the stream."""

    def __init__(self, name: str):
        self._name = name
        self._finish: Finish | None = None
        self._last_at = -1.0

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        """Process one event, and return the rounds that are now complete.

        Args:
            data: The event.
            at: The event's arrival time, in seconds since the request was sent.

        Raises:
            UserError: The server's counts or times contradict each other.
        """
        self._finish = _finish(data) or self._finish
        if not (text := _text(data)):
            return []
        seconds, prompt_s = (0.0, at) if self._last_at < 0 else (at - self._last_at, 0.0)
        self._last_at = at
        return [ServerRound((ServerToken(text),), seconds=seconds, prompt_s=prompt_s)]

    def end(self) -> StreamEnd:
        """Return the remaining rounds and the result, after the stream has ended.

        Raises:
            UserError: The server's counts contradict each other.
        """
        return StreamEnd([], self._finish or Finish.LENGTH, has_rounds=False)


class LlamaServerReader(Reader):
    """Reader for llama.cpp's server, which sends each token with cumulative counts.

    ``predicted_n`` counts the tokens. ``predicted_ms``, ``draft_n`` and ``draft_n_accepted`` are the same in
    all events of a round. A token that ends in the middle of a character has no event of its own; neither
    has the token that ends the text. The next event then raises ``predicted_n`` by more than one. Observed
    with the wheel xllamacpp 2026.10.11549.
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
        self._rounds: list[ServerRound] = []  # rounds that have begun; their tokens are still in ``_tokens``
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
        for last in self._rounds:  # at most one; the run may have ended inside the round's accepted draft
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
        """Split the last round if it has more tokens than one round can write.

        In that case the server reported several rounds in one event, with only the sums of their drafted and
        accepted tokens. The last of these rounds is assumed to have had all draft tokens.
        """
        surplus = len(self._tokens) - sum(one.accepted + 1 for one in self._rounds)
        if self._rounds and surplus > 0:
            last = self._rounds.pop()
            share = replace(last, seconds=last.seconds / (surplus + 1))
            without_draft = [ServerRound(seconds=share.seconds)] * surplus
            first, *others = [*without_draft, replace(share, prompt_s=0.0)]
            self._rounds += [replace(first, prompt_s=last.prompt_s), *others]

    def _complete_rounds(self) -> list[ServerRound]:
        """Remove and return the rounds that have all their tokens, but never the last round."""
        complete = []
        while len(self._rounds) > 1 and len(self._tokens) > self._rounds[0].accepted:
            one = self._rounds.pop(0)
            size = one.accepted + 1
            complete.append(replace(one, tokens=tuple(self._tokens[:size])))
            self._tokens = self._tokens[size:]
        return complete


class VllmReader(Reader):
    """Reader for vLLM, which sends one event per target pass.

    With ``--per-request-spec-decode-metrics detailed`` (vLLM 0.32, experimental), its last event lists the
    numbers of drafted and accepted tokens of each pass that had a draft.
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
        """Process one event, see ``Reader.read``. Return no rounds: :meth:`end` returns all of them."""
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
        """Return the numbers of drafted and accepted tokens for each event, or None if they are unknown."""
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
    """Reader for Ray Serve LLM, which forwards the stream of vLLM."""

    title = "Ray Serve LLM"


READERS: Mapping[str, type[Reader]] = {
    "llamacpp": LlamaServerReader,
    "vllm": VllmReader,
    "organization-owner": RayServeReader,
}
"""Maps ``owned_by`` in a server's list of models to its reader. Other servers get :class:`Reader`."""


def assign_drafts(sizes: Sequence[int], drafts: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Assign the drafts that vLLM reports to the events of its stream.

    vLLM does not report which passes had no draft. An event with n tokens must be a pass that accepted n - 1
    draft tokens. An event with one token is either a pass without a draft, or one whose draft was rejected
    at its first token. If both are possible, the rejected drafts are assigned to the earliest events.

    Args:
        sizes: The number of tokens in each event, without the event of the first token.
        drafts: The numbers of drafted and accepted tokens of each pass that had a draft, in order.

    Returns:
        The numbers of drafted and accepted tokens for each event, ``(0, 0)`` for a pass without a draft. None
        if some event cannot be a single pass: vLLM combines several passes in one event if the client reads
        slowly.
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


def check_draft(drafted: int, accepted: int, name: str) -> None:
    """Raise ``UserError`` unless these numbers of drafted and accepted tokens are possible in one pass."""
    if accepted > drafted:
        raise inconsistent_counts_error(name, f"{accepted} accepted of {drafted} drafted")
    if drafted > MAX_WATCHED_K:
        raise UserError(f"{name} drafts {drafted} tokens in a round; at most {MAX_WATCHED_K} can be shown.")


def check_written(tokens: int, name: str) -> None:
    """Raise ``UserError`` if a run has more tokens than any visitor can ask for."""
    if tokens > MAX_NEW_TOKENS:
        raise inconsistent_counts_error(name, "more tokens than were asked for")


def inconsistent_counts_error(name: str, what: str) -> UserError:
    """Return the error for a server whose counts or times contradict each other.

    Args:
        name: The server's name.
        what: The contradiction.
    """
    return UserError(f"{name} reports impossible counts ({what}), so its rounds cannot be shown.")


def counts_sentence(accepted: int, drafted: int, name: str, passes: int = 0) -> str:
    """Return a server's own counts of a run as a sentence.

    Args:
        accepted, drafted: The number of accepted draft tokens, and of all draft tokens.
        name: The server's name, for the error message.
        passes: The number of passes that had a draft, or 0 if unknown.

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
    """Return the new text in an event of a chat or completion stream; reasoning text is included."""
    choice = _choice(data)
    delta = _dict(choice.get("delta"))
    reasoning = delta.get("reasoning", delta.get("reasoning_content"))
    parts = (reasoning, delta.get("content"), choice.get("text"))
    return "".join(part for part in parts if isinstance(part, str)).encode(errors="replace")


def _finish(data: Mapping[str, Any]) -> Finish | None:
    reason = _choice(data).get("finish_reason")
    return None if reason is None else Finish.LENGTH if reason == "length" else Finish.EOS


def _logprob_tokens(data: Mapping[str, Any]) -> list[ServerToken]:
    """Return the tokens listed in an event's log probabilities; an empty list if it has none."""
    logprobs = _dict(_choice(data).get("logprobs"))
    entries = logprobs.get("content")
    if not isinstance(entries, list):  # in a completion stream, each field is a separate list
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
