"""Conversion of a server's events into rounds: a reader for any OpenAI-style API, and shared checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeGuard

from specdemo.records.limits import UserError
from specdemo.records.trace import MAX_NEW_TOKENS, MAX_WATCHED_K, Finish

MAX_COUNT = 10**9  # counts of this size or larger are treated as invalid


class ServerToken(NamedTuple):
    text: bytes
    """Empty if the server sent this text together with a later token."""
    p: float | None = None
    """The probability under the target; None if unknown."""
    top: tuple[tuple[bytes, float], ...] = ()
    """The target's most likely tokens at this position with their probabilities, if reported."""
    special: bool = False


# Servers count the token that ends a text, but do not send its text.
END = ServerToken(b"end of text", special=True)


@dataclass(frozen=True)
class ServerRound:
    tokens: tuple[ServerToken, ...] = ()
    """The accepted draft tokens, then the target's token, unless the run ended inside the accepted draft."""
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    """The time since the previous pass."""
    prompt_s: float = 0.0
    """The time to process the prompt; 0 except in the first round."""
    is_share: bool = False
    """True for an equal share of several rounds of which the server reported only the sums."""


class StreamEnd(NamedTuple):
    rounds: Sequence[ServerRound]
    """The rounds that ``Reader.read`` has not returned."""
    finish: Finish
    has_rounds: bool
    """False if the server does not report its rounds, so each round is only a piece of text."""
    summary: str = ""
    """A sentence with the server's own counts, or the empty string."""


class Reader:
    """Reader for the stream of any server with OpenAI's API. Each event counts as one round."""

    title: ClassVar = "a server with OpenAI's API"
    fields: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}
    """Fields of a chat request in addition to the prompt and the sampling settings."""
    completion_fields: ClassVar[dict[str, Any]] = fields
    """Additional fields of a completion request, which continues the prompt."""
    silent: tuple[str, ...] = (
        "The server does not report its rounds, so the text is shown in the pieces that arrived.",
        "The server reports no probabilities; times are arrival times.",
    )
    """Sentences for the page about values that the server does not report."""
    has_rounds: bool | None = False
    """True if the server reports its rounds, False if not, None if this is known only after the stream.

    An instance may change from True to False at the first text.
    """

    def __init__(self, name: str):
        self._name = name
        self.has_text = False
        """True once an event had text."""
        self._finish: Finish | None = None
        self._last_at = -1.0
        self._summary = ""

    def read(self, data: Mapping[str, Any], at: float) -> list[ServerRound]:
        """Process an event that arrived ``at`` seconds after the request, and return the completed rounds."""
        self._finish = finish_of(data) or self._finish
        self._summary = totals_sentence(data, self._name) or self._summary
        if not (text := text_of(data)):
            return []
        self.has_text = True
        seconds, prompt_s = (0.0, at) if self._last_at < 0 else (at - self._last_at, 0.0)
        self._last_at = at
        return [ServerRound((ServerToken(text),), seconds=seconds, prompt_s=prompt_s)]

    def end(self) -> StreamEnd:
        return StreamEnd([], self._finish or Finish.LENGTH, has_rounds=False, summary=self._summary)


def check_draft(drafted: int, accepted: int, name: str) -> None:
    if accepted > drafted:
        raise inconsistent_counts_error(name, f"{accepted} accepted of {drafted} drafted")
    if drafted > MAX_WATCHED_K:
        raise UserError(
            f"{name} drafts {drafted} tokens in a round, but this page shows at most {MAX_WATCHED_K}. "
            "The host must lower the server's draft length."
        )


def check_written(tokens: int, name: str) -> None:
    if tokens > MAX_NEW_TOKENS:
        raise inconsistent_counts_error(name, "more tokens than requested")


def inconsistent_counts_error(name: str, what: str) -> UserError:
    return UserError(f"{name} reports impossible counts ({what}), so the rounds cannot be shown.")


def counts_sentence(accepted: int, drafted: int, name: str, passes: int = 0) -> str:
    """Return a server's own counts as a sentence; ``passes`` with a draft is 0 if unknown."""
    if accepted > drafted:
        raise inconsistent_counts_error(name, f"{accepted} accepted of {drafted} drafted")
    mean = f", {1 + accepted / passes:.2f} tokens per pass with a draft" if passes else ""
    share = f"{accepted / drafted:.0%} per drafted token"
    return f"The server counted {accepted:,} of {drafted:,} draft tokens as accepted ({share}){mean}."


# The object in an event, and its numbers of drafted and accepted tokens so far.
TOTALS = (
    ("timings", "draft_n", "draft_n_accepted"),  # llama.cpp
    ("stats", "total_draft_tokens_count", "accepted_draft_tokens_count"),  # LM Studio
)


def totals_sentence(data: Mapping[str, Any], name: str) -> str:
    """Return the server's counts of the whole run as a sentence; empty if the event has none."""
    for place, *keys in TOTALS:
        counts = [as_dict(data.get(place)).get(key) for key in keys]
        if are_counts(counts) and counts[0]:
            return counts_sentence(counts[1], counts[0], name)
    return ""


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MAX_COUNT


def are_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and len(values) <= 100_000 and all(map(is_count, values))


def choice_of(data: Mapping[str, Any]) -> dict[str, Any]:
    return as_dict(next(iter(as_list(data.get("choices"))), None))


def text_of(data: Mapping[str, Any]) -> bytes:
    """Return the new text in an event of a chat or completion stream, including reasoning."""
    choice = choice_of(data)
    delta = as_dict(choice.get("delta"))
    reasoning = delta.get("reasoning") or delta.get("reasoning_content")  # some servers send both
    parts = [reasoning, delta.get("content"), delta.get("refusal"), choice.get("text")]
    return _joined(parts).encode(errors="replace")


def _joined(content: Any, depth: int = 5) -> str:
    """Return the text of a string, or of nested parts such as Mistral's ``{"type": "text", "text": …}``."""
    if isinstance(content, dict):
        content = [content.get("text") or content.get("thinking")]
    if isinstance(content, list):
        return "".join(_joined(part, depth - 1) for part in content) if depth else ""
    return content if isinstance(content, str) else ""


def finish_of(data: Mapping[str, Any]) -> Finish | None:
    reason = choice_of(data).get("finish_reason")
    if not isinstance(reason, str) or not reason:  # empty in TGI's events before the last one
        return None
    return {"length": Finish.LENGTH, "abort": Finish.STOPPED}.get(reason, Finish.EOS)
