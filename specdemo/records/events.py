"""A run as a stream of events, whether it is being decoded or read from a file.

The page, the terminal and the API all watch a run through these events, so they cannot disagree.
Each event is a plain dictionary with a ``type``:

``start``   the run without its rounds (config, pair, device, calibration), prompt ids and pieces
``round``   ``lane``, the ``round``, the ``totals`` so far, and ``pieces`` of ids not seen before
``end``     the closing ``sentence``, the ``badge``, the final ``totals``, and in ``departure`` how far the
            draft alone went with the target (None where it did not run)

No torch: a saved run plays where no model can load.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from specdemo.records.figures import Tally, Totals, without_early_speedup
from specdemo.records.race import race
from specdemo.records.sentences import badge, closing_sentence, departure_sentence, pieces_sentence
from specdemo.records.trace import SPECULATIVE, Finish, Lane, Round, Rule, Run, Status, Watched, dump

Event = dict[str, Any]

OF_ROUNDS = (
    *("passes", "baseline_passes", "passes_saved", "tau", "alpha_compared", "alpha_drafted"),
    *("identical", "divergence", "divergence_gap"),
)
"""Figures that only rounds give, and the comparison token by token: pieces of text are cut by chance."""

PiecesOf = Callable[[Iterable[int]], Mapping[int, str]]


class RunLog:
    """Turns the rounds of one run into events as they come, and keeps what they add up to.

    Args:
        blank: The run without its rounds; its ``pieces`` are the prompt's.
        specials: Ids of control tokens, at least those that will occur.
        pieces_of: ``pieces`` of any ids that will occur.
    """

    def __init__(self, blank: Run, specials: Iterable[int], pieces_of: PiecesOf):
        self._blank = blank
        self._specials = sorted(specials)
        self._pieces_of = pieces_of
        self._pieces = dict(blank.pieces)
        self._rounds: dict[str, list[Round]] = {}
        self._tally = Tally(blank.config.rule, blank.calibration)

    def start(self) -> Event:
        """The event before the first round."""
        run = asdict(self._blank)
        return {"type": "start", "run": run, "pieces": run["pieces"], "specials": self._specials}

    def round(self, lane: str, round_: Round) -> Event:
        """The event of one more round."""
        self._rounds.setdefault(lane, []).append(round_)
        self._tally.add(lane, round_)
        pieces = self._pieces_of(ids_in(round_) - self._pieces.keys())
        self._pieces |= pieces
        return {
            "type": "round",
            "lane": lane,
            "round": asdict(round_),
            "totals": shown_figures(self._totals(), self._blank.watched),
            "pieces": pieces,
        }

    @property
    def begun(self) -> bool:
        """Whether the speculative lane has a round."""
        return SPECULATIVE in self._rounds

    def end(self) -> Event:
        """The event after the last round, of which there is one at least."""
        totals = self._totals()
        config = self._blank.config
        finish = self._rounds[SPECULATIVE][-1].finish
        # Of another's sampling nothing is claimed.
        sampled = self._blank.watched is not None and config.rule is not Rule.GREEDY
        verdict = badge(totals, config.rule) if self._tells_rounds and not sampled else None
        return {
            "type": "end",
            "sentence": self._closing(totals, finish),
            "badge": verdict and verdict._asdict(),
            "departure": departure_sentence(totals, config.rule),
            "totals": shown_figures(totals, self._blank.watched),
            "finish": finish,
        }

    def _closing(self, totals: Totals, finish: Finish | None) -> str:
        if not self._tells_rounds:
            return pieces_sentence(totals, finish)
        return closing_sentence(totals, finish, self._blank.config, self._blank.calibration)

    @property
    def _tells_rounds(self) -> bool:
        return self._blank.watched is None or self._blank.watched.rounds

    @property
    def run(self) -> Run:
        """The whole run so far, ready to be saved."""
        return replace(
            self._blank,
            lanes={name: Lane(tuple(rounds)) for name, rounds in self._rounds.items()},
            pieces=self._pieces,
            specials=tuple(token for token in self._specials if token in self._pieces),
            totals=shown_figures(self._totals(), self._blank.watched),
        )

    def _totals(self) -> Totals:
        """The figures so far, as they are shown."""
        return without_early_speedup(self._tally.totals())


def shown_figures(totals: Totals, watched: Watched | None) -> dict[str, Any]:
    """Figures as plain data; those of rounds are None where a watched server does not tell its rounds."""
    figures = asdict(totals)
    return figures if watched is None or watched.rounds else figures | dict.fromkeys(OF_ROUNDS)


def replay_events(run: Run) -> Iterator[Event]:
    """The events that were sent while ``run`` was decoded, but at once; figures are folded again."""

    def pieces_of(ids: Iterable[int]) -> dict[int, str]:
        return {token: run.pieces[token] for token in sorted(ids)}

    pieces = pieces_of(set(run.prompt_ids))
    specials = tuple(token for token in run.specials if token in pieces)
    blank = replace(run, lanes={}, pieces=pieces, specials=specials, totals={})
    log = RunLog(blank, run.specials, pieces_of)
    yield log.start()
    for lane, round_ in race({name: iter(lane.rounds) for name, lane in run.lanes.items()}):
        yield log.round(lane, round_)
    yield log.end()


def replay_lines(run: Run) -> str:
    """:func:`replay_events` as NDJSON."""
    return "".join(dump(event) + "\n" for event in replay_events(run))


def ids_in(round_: Round) -> set[int]:
    """Every id that occurs in a round, drafted, emitted or among the alternatives."""
    ids = {other.id for token in round_.drafted for other in (*token.draft_top, *token.target_top)}
    ids.update(token.id for token in round_.drafted)
    if round_.emission:
        ids.add(round_.emission.id)
        ids.update(other.id for other in round_.emission.top)
    return ids


def count_emitted(event: Event) -> int:
    """Return how many tokens an event adds to the text of its lane."""
    if event["type"] != "round":
        return 0
    kept = sum(token["status"] == Status.ACCEPTED for token in event["round"]["drafted"])
    return kept + (event["round"]["emission"] is not None)
