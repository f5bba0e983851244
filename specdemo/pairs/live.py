"""One run while it is being decoded, as events, and as the ``Run`` they add up to."""

from collections.abc import Iterator

from specdemo.engine.speculate import never
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.events import Event, RunLog
from specdemo.records.trace import Run, RunConfig


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
        blank = pair.blank_run(config, self._prompt_ids)
        self._log = RunLog(blank, pair.pieces.specials, pair.pieces.encoded)

    def events(self) -> Iterator[Event]:
        """Run it. Every second spent outside the decoders is outside their clocks."""
        yield self._log.start()
        for lane, round_ in self._pair.race(self._config, self._prompt_ids, self._stop):
            yield self._log.round(lane, round_)
        yield self._log.end()

    @property
    def run(self) -> Run:
        """The whole run so far, ready to be saved."""
        return self._log.run
