"""One run as a stream of events, and as the ``Run`` they add up to.

The page, the terminal and the API all watch a run through these events, so they cannot disagree.
Each event is a plain dictionary with a ``type``:

``start``   the run without its rounds (config, pair, device, calibration), prompt ids and pieces
``round``   ``lane``, the ``round``, the ``totals`` so far, and ``pieces`` of ids not seen before
``end``     the closing ``sentence``, the ``badge``, the final ``totals``, and in ``departure`` how far the
            draft alone went with the target (None where it did not run)
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from specdemo.engine import never
from specdemo.metrics import Tally
from specdemo.narrate import badge, closing_sentence, departure_sentence
from specdemo.pair import Pair, Stop
from specdemo.trace import SPECULATIVE, Lane, Round, Run, RunConfig

Event = dict[str, Any]


class LiveRun:
    """Decode one configuration and keep what happened.

    Args:
        pair: The loaded models.
        config: From ``limits.parse_config``.
        stop: Asked once a round and lane; True ends every lane within that round.
    """

    def __init__(self, pair: Pair, config: RunConfig, stop: Stop = never):
        self._pair = pair
        self._config = config
        self._stop = stop
        self._prompt_ids = pair.prompt_ids(config)
        self._rounds: dict[str, list[Round]] = {}
        self._pieces: dict[int, str] = {}
        self._blank = pair.blank_run(config, self._prompt_ids)
        self._tally = Tally(config.rule, self._blank.calibration)

    def events(self) -> Iterator[Event]:
        """Run it. Every second spent outside the decoders is outside their clocks."""
        self._pieces = dict(self._blank.pieces)
        start = asdict(self._blank)
        yield {
            "type": "start",
            "run": start,
            "pieces": start["pieces"],
            "specials": sorted(self._pair.pieces.specials),
        }
        for lane, round_ in self._pair.race(self._config, self._prompt_ids, self._stop):
            self._rounds.setdefault(lane, []).append(round_)
            self._tally.add(lane, round_)
            yield {
                "type": "round",
                "lane": lane,
                "round": asdict(round_),
                "totals": asdict(self._tally.totals()),
                "pieces": self._new_pieces(round_),
            }
        totals = self._tally.totals()
        finish = self._rounds[SPECULATIVE][-1].finish
        verdict = badge(totals, self._config.rule)
        yield {
            "type": "end",
            "sentence": closing_sentence(totals, finish),
            "badge": verdict and verdict._asdict(),
            "departure": departure_sentence(totals, self._config.rule),
            "totals": asdict(totals),
            "finish": finish,
        }

    @property
    def run(self) -> Run:
        """The whole run so far, ready to be saved."""
        specials = self._pair.pieces.specials & self._pieces.keys()
        return replace(
            self._blank,
            lanes={name: Lane(tuple(rounds)) for name, rounds in self._rounds.items()},
            pieces=self._pieces,
            specials=tuple(sorted(specials)),
            totals=asdict(self._tally.totals()),
        )

    def _new_pieces(self, round_: Round) -> dict[int, str]:
        ids = set(round_.emitted)
        for token in round_.drafted:
            ids.add(token.id)
            ids.update(other.id for other in (*token.draft_top, *token.target_top))
        if round_.emission:
            ids.update(other.id for other in round_.emission.top)
        new = self._pair.pieces.encoded(ids - self._pieces.keys())
        self._pieces |= new
        return new
