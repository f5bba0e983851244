"""What a server told of its run, in one form for all of them: the passes of its target.

How each server tells it is read by the modules named after them. No connection, no page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from specdemo.records.limits import MAX_NEW_TOKENS, MAX_WATCHED_K, UserError
from specdemo.records.trace import Finish
from specdemo.watch.stream import Chunk

NOTHING_SAID = "Of its rounds the server tells nothing."
LEAST_LOGARITHM = -1_000.0
"""Of a probability; what is less is 0 as a number, too."""
LIES = "{name} tells counts that cannot be ({what}), so its rounds cannot be shown."


class Piece(NamedTuple):
    """One token as far as it is known.

    Attributes:
        text: Its bytes; none where they came with a later token.
        p: Its probability under the target, None where that is not told.
        top: The target's likeliest tokens there with their probabilities, if told.
        special: Whether it is a control token, which has no text of its own.
    """

    text: bytes
    p: float | None = None
    top: tuple[tuple[bytes, float], ...] = ()
    special: bool = False


END = Piece(b"end of text", special=True)
"""The token that ends a text, which servers count but do not send."""


@dataclass(frozen=True)
class Step:
    """One pass of the server's target.

    Attributes:
        tokens: What it wrote: accepted drafts, then the target's own token; without the latter where the run
            ended in the middle of an accepted draft.
        drafted, accepted: Tokens that were drafted for it, and those that were kept.
        seconds: From the pass before to this one.
        prompt_s: Of processing the prompt, in the first one.
    """

    tokens: tuple[Piece, ...]
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    prompt_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What is known when a run has ended.

    Attributes:
        steps: Those that had not been told before.
        finish: Why it ended.
        rounds: Whether the steps are the server's own; else each is but a piece of text.
        said: What the server says of the whole in its own counts, a sentence; empty where it says nothing.
    """

    steps: Sequence[Step]
    finish: Finish
    rounds: bool = True
    said: str = ""


class Reader(Protocol):
    """Reads the stream of one kind of server."""

    def take(self, chunk: Chunk) -> list[Step]:
        """The steps that are certain now; those that are not come with the end.

        Raises:
            UserError: The server contradicts itself.
        """
        ...

    def end(self) -> Outcome:
        """What is left when the stream has ended."""
        ...


def checked_step(step: Step, name: str) -> Step:
    """``step``, if it can be.

    Raises:
        UserError: It cannot.
    """
    written = len(step.tokens)
    check_draft(step.drafted, step.accepted, name)
    if (
        min(step.drafted, step.accepted) < 0
        or written not in (step.accepted, step.accepted + 1)
        or not written
    ):
        raise lie(name, f"{written} written where {step.accepted} were accepted")
    if not (0 <= step.seconds < math.inf and 0 <= step.prompt_s < math.inf):
        raise lie(name, "a time that runs backwards")
    return step


def check_draft(drafted: int, accepted: int, name: str) -> None:
    """Do nothing where a pass may have drafted and kept so many.

    Raises:
        UserError: It may not.
    """
    if accepted > drafted:
        raise lie(name, f"{accepted} accepted of {drafted} drafted")
    if drafted > MAX_WATCHED_K:
        raise UserError(f"{name} drafts {drafted} tokens in a round; at most {MAX_WATCHED_K} can be shown.")


def check_written(tokens: int, name: str) -> None:
    """Do nothing where a run may have so many tokens.

    Raises:
        UserError: Nobody can have asked for them.
    """
    if tokens > MAX_NEW_TOKENS:
        raise lie(name, "more tokens than were asked for")


def counted_words(accepted: int, drafted: int, name: str, passes: int = 0) -> str:
    """A server's own counts of a run as a sentence; ``passes`` are those that had a draft, if told.

    Raises:
        UserError: They cannot be.
    """
    if accepted > drafted:
        raise lie(name, f"{accepted} accepted of {drafted} drafted")
    mean = f", {1 + accepted / passes:.2f} tokens per pass with a draft" if passes else ""
    share = f"{accepted / drafted:.0%} per drafted token"
    return f"The server counts {accepted:,} of {drafted:,} drafted tokens accepted ({share}){mean}."


def lie(name: str, what: str) -> UserError:
    """What is said of a server that contradicts itself."""
    return UserError(LIES.format(name=name, what=what))


def text_of(chunk: Mapping[str, Any]) -> str:
    """The text that an event adds, whether of a chat or of a continuation; reasoning is text as well."""
    choice = choice_of(chunk)
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    keys = "reasoning" if "reasoning" in delta else "reasoning_content", "content"
    parts = tuple(delta.get(key) for key in keys)
    return "".join(part for part in (*parts, choice.get("text")) if isinstance(part, str))


def choice_of(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """The one choice of an event; empty where it has none, as those that tell usage."""
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def finish_of(chunk: Mapping[str, Any]) -> Finish | None:
    """Why the run ended, in the event that says so."""
    reason = choice_of(chunk).get("finish_reason")
    return None if reason is None else Finish.LENGTH if reason == "length" else Finish.EOS


def whole(value: Any) -> int | None:
    """A count that a server tells, None where it is none."""
    return value if type(value) is int and 0 <= value < 10**9 else None


def counts(value: Any) -> list[int] | None:
    """A list of counts that a server tells, None where it is none."""
    if not isinstance(value, list) or len(value) > 100_000 or any(whole(one) is None for one in value):
        return None
    return value


def pieces_of(chunk: Mapping[str, Any]) -> list[Piece]:
    """The tokens of an event by their log probabilities, in OpenAI's form; none where there are none."""
    told = choice_of(chunk).get("logprobs")
    entries = told.get("content") if isinstance(told, dict) else None
    if isinstance(entries, list):
        return [_piece(entry) for entry in entries if isinstance(entry, dict)]
    if isinstance(told, dict) and isinstance(told.get("tokens"), list):  # of a continuation
        return _pieces_of_continuation(told)
    return []


def _piece(entry: Mapping[str, Any]) -> Piece:
    top = entry.get("top_logprobs")
    others = [one for one in top if isinstance(one, dict)] if isinstance(top, list) else []
    likeliest = [(_bytes(one), _probability(one.get("logprob"))) for one in others[:5]]
    return Piece(
        _bytes(entry),
        _probability(entry.get("logprob")),
        tuple((text, p) for text, p in likeliest if p is not None),
    )


def _pieces_of_continuation(told: Mapping[str, Any]) -> list[Piece]:
    probabilities = told.get("token_logprobs")
    likeliest = told.get("top_logprobs")
    found = []
    for place, token in enumerate(told["tokens"]):
        p = probabilities[place] if isinstance(probabilities, list) and place < len(probabilities) else None
        others = likeliest[place] if isinstance(likeliest, list) and place < len(likeliest) else None
        top = list(others.items())[:5] if isinstance(others, dict) else []
        tops = [(text.encode(errors="replace"), _probability(value)) for text, value in top]
        known = tuple((text, q) for text, q in tops if q is not None)
        said = token.encode(errors="replace") if isinstance(token, str) else b""
        found.append(Piece(said, _probability(p), known))
    return found


def _bytes(entry: Mapping[str, Any]) -> bytes:
    told = entry.get("bytes")
    if isinstance(told, list) and all(type(byte) is int and 0 <= byte < 256 for byte in told):
        return bytes(told)
    token = entry.get("token")
    return token.encode(errors="replace") if isinstance(token, str) else b""


def _probability(logarithm: Any) -> float | None:
    if isinstance(logarithm, int | float) and not isinstance(logarithm, bool) and logarithm <= 0:
        return math.exp(max(logarithm, LEAST_LOGARITHM))
    return None


def with_text(pieces: Sequence[Piece], count: int, text: str) -> list[Piece]:
    """So many tokens that say ``text``: as told, or where fewer are told, the last one says what is left."""
    if len(pieces) == count and b"".join(piece.text for piece in pieces) == text.encode(errors="replace"):
        return list(pieces)
    if len(pieces) == count and not text:
        return [replace_text(piece, b"") for piece in pieces]
    return [*[Piece(b"")] * (count - 1), Piece(text.encode(errors="replace"))] if count else []


def replace_text(piece: Piece, text: bytes) -> Piece:
    """``piece`` with other bytes."""
    return piece._replace(text=text)


def in_order(steps: Sequence[Step], seconds: float) -> list[Step]:
    """Steps that came at once: each gets an even share of the seconds."""
    return [replace(step, seconds=seconds / len(steps)) for step in steps]
