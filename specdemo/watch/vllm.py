"""vLLM: an event holds what one pass wrote, or several if it came late; what was drafted is told at the end.

With ``--per-request-spec-decode-metrics detailed`` the last event has, for each pass that had a draft, how
many were drafted and accepted (vLLM 0.32, experimental). Passes without a draft are not in those lists, so
events and lists are brought together in order. The last pass may have accepted more than was still wanted.
"""

from collections.abc import Sequence
from typing import Any

from specdemo.records.trace import Finish
from specdemo.watch.arrivals import Arrival, pieces_only
from specdemo.watch.steps import (
    END,
    Outcome,
    Piece,
    Step,
    check_draft,
    check_written,
    checked_step,
    choice_of,
    counted_words,
    counts,
    finish_of,
    in_order,
    pieces_of,
    text_of,
    whole,
    with_text,
)
from specdemo.watch.stream import Chunk

FIELDS = {
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
    "logprobs": True,
    "top_logprobs": 5,
}
CONTINUATION_FIELDS = {**FIELDS, "logprobs": 5}
SILENT = (
    "Refused tokens (▢) and the draft's probabilities are not told; times are those of arrival here.",
    "Drafts are told when a run has ended, so it is shown then, at its own pace.",
)
NOT_DETAILED = (
    "Of its rounds the server tells nothing; with --per-request-spec-decode-metrics detailed it would."
)


Way = tuple[int | None, ...]
"""The passes that wrote one event, by their places in the server's lists; None for one without a draft."""
_Ways = tuple["_Ways", Way] | None
"""Those of the events so far: of all but the last one, and of that."""


class VllmReader:
    """See ``steps.Reader``."""

    def __init__(self, name: str):
        self._name = name
        self._arrivals: list[Arrival] = []
        self._finish: Finish | None = None
        self._written = 0
        self._metrics: dict[str, Any] = {}

    def take(self, chunk: Chunk) -> list[Step]:
        """See ``steps.Reader``; all steps come with the end."""
        data = chunk.data
        self._finish = finish_of(data) or self._finish
        metrics = data.get("metrics")
        if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
            self._metrics = metrics["speculative_decoding"]
        tokens = _tokens(data, self._finish)
        self._written += len(tokens)
        check_written(self._written, self._name)
        if tokens:
            self._arrivals.append(Arrival(tuple(tokens), chunk.at))
        return []

    def end(self) -> Outcome:
        """See ``steps.Reader``."""
        finish = self._finish or Finish.LENGTH
        drafted = counts(self._metrics.get("per_step_drafted"))
        accepted = counts(self._metrics.get("per_step_accepted"))
        said = _said(self._metrics, self._name)
        passes = None
        if drafted is not None and accepted is not None and len(drafted) == len(accepted):
            for one, kept in zip(drafted, accepted, strict=True):
                check_draft(one, kept, self._name)
            sizes = [len(arrival.tokens) - (index == 0) for index, arrival in enumerate(self._arrivals)]
            passes = aligned(sizes, accepted)
        if passes is None:
            return Outcome(pieces_only(self._arrivals), finish, False, said or NOT_DETAILED)
        steps = _steps(self._arrivals, passes, drafted or [], accepted or [])
        return Outcome([checked_step(step, self._name) for step in steps], finish, True, said)


def _tokens(data: dict[str, Any], finish: Finish | None) -> list[Piece]:
    """The tokens of an event. One that ends the text has an id and no text, or the text it is written as."""
    told, text = pieces_of(data), text_of(data)
    ids = counts(choice_of(data).get("token_ids"))
    count = len(ids) if ids is not None else len(told) or bool(text)
    if len(told) == count:
        said, written = b"".join(piece.text for piece in told), text.encode(errors="replace")
        if finish is Finish.EOS and told and said != written and said.startswith(written):
            return [*told[:-1], END]
        return told
    return with_text(told, int(count), text)


def aligned(sizes: Sequence[int], accepted: Sequence[int]) -> list[Way] | None:
    """Which passes made each event: places in ``accepted``, None for a pass without a draft.

    Args:
        sizes: Tokens of the events in order, without the one that ends the prompt.
        accepted: Drafted tokens that were kept in each pass that had a draft, in order.

    Returns:
        The assignment with the fewest passes that came together, and drafts as early as can be; the last pass
        may have kept more than was written. None where there is none.
    """
    reached: dict[int, tuple[int, _Ways]] = {0: (0, None)}  # by how many of ``accepted`` are assigned
    for event, size in enumerate(sizes):
        found: dict[int, tuple[int, _Ways]] = {}
        for place in sorted(reached, reverse=True):
            cost, before = reached[place]
            for more, way in _ways(size, accepted, place, event == len(sizes) - 1):
                after = place + sum(one is not None for one in way)
                if after not in found or cost + more < found[after][0]:
                    found[after] = (cost + more, (before, way))
        reached = found
    if len(accepted) not in reached:
        return None
    _, last = reached[len(accepted)]
    ways: list[Way] = []
    while last is not None:
        last, way = last
        ways.append(way)
    return ways[::-1]


def _ways(size: int, accepted: Sequence[int], place: int, last: bool) -> list[tuple[int, Way]]:
    """Ways in which passes from ``place`` on may have written ``size`` tokens at once, each with its cost."""
    ways: list[tuple[int, Way]] = []
    taken, left = [], size
    while place + len(taken) < len(accepted) and left > 0:
        kept = accepted[place + len(taken)] + 1
        if kept > left and not last:
            break
        taken.append(place + len(taken))
        left -= min(kept, left)
        # What is left was written by passes without a draft, a token each; where among these is not told.
        ways.append((len(taken) - 1 + left, (*taken, *[None] * left)))
    ways.append((size - 1, (None,) * size))
    return ways


def _steps(
    arrivals: Sequence[Arrival],
    passes: Sequence[Sequence[int | None]],
    drafted: Sequence[int],
    accepted: Sequence[int],
) -> list[Step]:
    steps: list[Step] = []
    before = 0.0
    for arrival, places in zip(arrivals, passes, strict=True):
        tokens, made = list(arrival.tokens), []
        if not steps:
            steps, tokens, before = [Step((tokens[0],), prompt_s=arrival.at)], tokens[1:], arrival.at
        for place in places:
            kept = accepted[place] if place is not None else 0
            written, tokens = tokens[: kept + 1], tokens[kept + 1 :]
            made.append(
                Step(tuple(written), drafted[place] if place is not None else 0, min(kept, len(written)))
            )
        steps += in_order(made, arrival.at - before)
        before = arrival.at
    return steps


def _said(metrics: dict[str, Any], name: str) -> str:
    drafted = whole(metrics.get("num_draft_tokens"))
    accepted = whole(metrics.get("num_accepted_draft_tokens"))
    passes = whole(metrics.get("num_spec_steps"))
    if not drafted or accepted is None or not passes:
        return ""
    return counted_words(accepted, drafted, name, passes)
