"""The events of live and replayed runs, which the page, the terminal and the API read. Types:

``progress``  before ``start`` while a long prompt is processed or a run is repeated: a ``text`` and a
            ``fraction``; a run that is stopped while it reads the prompt has no other events, and one
            that is stopped before it begins has ``STOPPED``, which is ``over``
``start``   the ``run`` without the rounds of its own lanes, the ``pieces`` (bytes) of the prompt's ids and of
            the ids of repeats, and the ``specials``
``round``   the ``lane``, the ``round``, the ``totals`` so far, the ``pieces`` of ids not sent before, and
            ``spread`` and ``doubt`` as in ``end``, renewed every ``RENEWED`` rounds
``end``     the closing ``sentence`` and ``remarks``, the ``badge``, the final ``totals``, the ``finish``, and
            ``draft_divergence``, a sentence about the draft model's own text (None if it did not run alone);
            ``spread``, how far the speedup can be trusted (None without a speedup and for a watched server),
            the ``speedups`` of all measured runs in ascending order, and ``doubt``, why the speedup cannot be
            trusted (a ``sentences.Doubt``, or None)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from specdemo.records.figures import Tally, Totals, distinct_share, fold
from specdemo.records.sentences import (
    Doubt,
    badge,
    closing_sentence,
    doubt,
    draft_divergence_sentence,
    pieces_sentence,
    remarks,
)
from specdemo.records.spread import Spread, spread
from specdemo.records.trace import SPECULATIVE, Lane, Round, Rule, Run, Status, Watched

Event = dict[str, Any]
STOPPED: Event = {"type": "progress", "text": "Stopped before it began", "fraction": 0.0, "over": True}

ROUND_FIGURES = (
    *("passes", "baseline_passes", "passes_saved", "tau", "alpha_compared", "alpha_drafted"),
    *("identical", "divergence", "divergence_gap"),
)
"""Figures of target passes. Without reported rounds, a "round" is whatever text arrived at once."""


RENEWED, RUNNING_RESAMPLES = 4, 200
"""While a run is in progress, its spread is computed every ``RENEWED`` rounds, which takes a few ms."""


class RunLog:
    """The events and figures of one run, built round by round.

    Args:
        blank: The run without its rounds; its ``pieces`` are those of the prompt.
        specials: At least the control tokens that occur in the run.
        pieces_of: Returns the entries of ``Run.pieces`` for given ids.
    """

    def __init__(
        self, blank: Run, specials: Iterable[int], pieces_of: Callable[[Iterable[int]], Mapping[int, str]]
    ):
        self._blank = blank
        self._specials = sorted(specials)
        self._pieces_of = pieces_of
        self._pieces = dict(blank.pieces)
        self._rounds: dict[str, list[Round]] = {}
        self._tally = Tally(blank.config.rule, blank.calibration)
        self._trusted: Spread | None = None

    def start(self) -> Event:
        run = asdict(self._blank)
        return {"type": "start", "run": run, "pieces": run["pieces"], "specials": self._specials}

    def round(self, lane: str, round_: Round) -> Event:
        """Add a round and return its event."""
        self._rounds.setdefault(lane, []).append(round_)
        self._tally.add(lane, round_)
        pieces = self._pieces_of(ids_in(round_) - self._pieces.keys())
        self._pieces |= pieces
        totals, watched = self._tally.totals(), self._blank.watched
        event = {
            "type": "round",
            "lane": lane,
            "round": asdict(round_),
            "totals": shown_figures(totals, watched),
            "pieces": pieces,
        }
        if totals.speedup is not None and watched is None:
            count = sum(len(rounds) for rounds in self._rounds.values())
            if self._trusted is None or count % RENEWED == 0:
                self._trusted = spread(self._rounds, RUNNING_RESAMPLES)
                event["spread"] = self._trusted and {"low": self._trusted.low, "high": self._trusted.high}
        if doubted := self._doubt(totals, self._trusted):
            event["doubt"] = doubted
        return event

    def _doubt(self, totals: Totals, trusted: Spread | None, speedups: Sequence[float] = ()) -> Doubt | None:
        watched = self._blank.watched
        has_rounds = watched is None or watched.rounds
        return doubt(totals, trusted, speedups) if has_rounds else None

    @property
    def begun(self) -> bool:
        return SPECULATIVE in self._rounds

    def end(self) -> Event:
        """Return the ``end`` event; the speculative lane must have a round."""
        totals, config, watched = self._tally.totals(), self._blank.config, self._blank.watched
        finish = self._rounds[SPECULATIVE][-1].finish
        trusted = None if totals.speedup is None or watched else spread(self._rounds)
        others = [speedup_of(lanes, config.rule) for lanes in self._blank.repeats]
        speedups = sorted(speedup for speedup in (totals.speedup, *others) if speedup is not None)
        if watched is None or watched.rounds:
            sentence = closing_sentence(totals, finish, config, self._blank.calibration)
            distinct = distinct_share(self._rounds[SPECULATIVE])
            more = remarks(totals, finish, distinct, trusted, speedups)
            # This program cannot know if another program's sampling is exact, so it shows no badge for it.
            verdict = badge(totals, config.rule) if watched is None or config.rule is Rule.GREEDY else None
        else:
            sentence, more, verdict = pieces_sentence(totals, finish), "", None
        return {
            "type": "end",
            "sentence": sentence,
            "remarks": more,
            "badge": verdict and verdict._asdict(),
            "draft_divergence": draft_divergence_sentence(totals, config.rule),
            "totals": shown_figures(totals, watched),
            "spread": trusted and trusted._asdict(),
            "speedups": speedups,
            "doubt": self._doubt(totals, trusted, speedups),
            "finish": finish,
        }

    @property
    def run(self) -> Run:
        return replace(
            self._blank,
            lanes={name: Lane(tuple(rounds)) for name, rounds in self._rounds.items()},
            pieces=self._pieces,
            specials=tuple(token for token in self._specials if token in self._pieces),
            totals=shown_figures(self._tally.totals(), self._blank.watched),
        )


def shown_figures(totals: Totals, watched: Watched | None) -> dict[str, Any]:
    """Return the figures; ``ROUND_FIGURES`` are None if a watched server does not report its rounds."""
    figures = asdict(totals)
    return figures if watched is None or watched.rounds else figures | dict.fromkeys(ROUND_FIGURES)


def speedup_of(lanes: Mapping[str, Lane], rule: Rule) -> float | None:
    rounds = {name: lane.rounds for name, lane in lanes.items()}
    return fold(rounds, rule, None).speedup


def ids_in(round_: Round) -> set[int]:
    """Return the ids of draft tokens, emitted tokens and listed alternatives."""
    ids = {other.id for token in round_.drafted for other in (*token.draft_top, *token.target_top)}
    ids.update(token.id for token in round_.drafted)
    if round_.emission:
        ids.add(round_.emission.id)
        ids.update(other.id for other in round_.emission.top)
    return ids


def count_emitted(event: Event) -> int:
    """Return the number of tokens that an event adds to the text of its lane."""
    if event["type"] != "round":
        return 0
    kept = sum(token["status"] == Status.ACCEPTED for token in event["round"]["drafted"])
    return kept + (event["round"]["emission"] is not None)
