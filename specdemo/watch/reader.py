"""The reader for any server with OpenAI's API, and the checks and event fields that all readers share.

A reader converts the events of one run into rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeGuard

from specdemo.records.limits import UserError
from specdemo.records.trace import MAX_NEW_TOKENS, MAX_WATCHED_K, Finish

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
        self._finish = finish_of(data) or self._finish
        if not (text := text_of(data)):
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


def as_dict(value: Any) -> dict[str, Any]:
    """Return a value of a server's JSON if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a value of a server's JSON if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def is_count(value: Any) -> TypeGuard[int]:
    """Return True for an integer from 0 to below ``MAX_COUNT``."""
    return type(value) is int and 0 <= value < MAX_COUNT


def are_counts(values: Any) -> TypeGuard[list[int]]:
    """Return True for a list of at most 100,000 counts."""
    return isinstance(values, list) and len(values) <= 100_000 and all(map(is_count, values))


def choice_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first choice in an event; an empty dictionary if it has none."""
    return as_dict(next(iter(as_list(data.get("choices"))), None))


def text_of(data: Mapping[str, Any]) -> bytes:
    """Return the new text in an event of a chat or completion stream; reasoning text is included."""
    choice = choice_of(data)
    delta = as_dict(choice.get("delta"))
    reasoning = delta.get("reasoning", delta.get("reasoning_content"))
    parts = (reasoning, delta.get("content"), choice.get("text"))
    return "".join(part for part in parts if isinstance(part, str)).encode(errors="replace")


def finish_of(data: Mapping[str, Any]) -> Finish | None:
    """Return why the text ended; None if the event does not end it."""
    reason = choice_of(data).get("finish_reason")
    return None if reason is None else Finish.LENGTH if reason == "length" else Finish.EOS
