"""A run as events and as a trace: one configuration, decoded."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from specdemo.engine.race import race, replay_events
from specdemo.engine.speculate import never
from specdemo.engine.verdicts import top_fives
from specdemo.pairs.hardware import versions
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.events import STOPPED, Event, RunLog, count_emitted
from specdemo.records.figures import median_run
from specdemo.records.trace import USUAL_K, Calibration, Finish, Run, RunConfig, with_repeats

READING = "Reading the prompt"
STOPPED_READING = STOPPED | {"text": "Stopped while the prompt was read"}
ROUGHLY = "Machine busy: estimates are rough."


class TracedRun:
    """The decoding of one configuration, and its record.

    ``stop`` is called once per round of each lane; if it returns True, that round is the lane's last. A run
    with ``repeats`` is decoded several times; the one with the median speedup is the record, and holds the
    rounds of the others. Between two runs, ``stop`` is called too.
    """

    def __init__(self, pair: Pair, config: RunConfig, stop: Stop = never):
        self._lanes = Lanes(pair, tops=top_fives)
        self._config = config
        self._stop = stop
        self._prompt_ids = pair.prompt_ids(config)
        self._shown: Run | None = None  # the median of several runs
        calibration = self._lanes.calibrate(config)
        self._blank = _blank_run(pair, config, self._prompt_ids, calibration)
        self._begin()

    def _begin(self) -> None:
        pieces = self._lanes.pair.pieces
        self._log = RunLog(self._blank, pieces.specials, pieces.encoded)

    def events(self) -> Iterator[Event]:
        """Decode the run and yield its events. Time that the caller spends between events is not measured.

        A long prompt causes ``progress`` events first. A run that is stopped during these has no others. If
        the run is repeated, its rounds arrive after all runs have ended, and ``progress`` events before.
        """
        return self._decoded() if self._config.repeats == 1 else self._repeated()

    def _repeated(self) -> Iterator[Event]:
        config, runs = self._config, list[Run]()
        count = config.repeats
        expected = config.max_new_tokens * (1 + config.baseline + config.draft_alone)
        while len(runs) < count and not (runs and self._stop()):
            self._begin()
            words, written = f"Measuring: run {len(runs) + 1} of {count}", 0
            for event in self._decoded():
                written += count_emitted(event)
                share = (len(runs) + written / expected) / count
                yield {"type": "progress", "text": words, "fraction": share}
            if not self._log.begun:
                break  # stopped while the prompt was read
            runs.append(self._log.run)
            yield {"type": "progress", "text": words, "fraction": len(runs) / count}
        if not runs:
            yield STOPPED_READING
            return
        if len(runs) > 1 and any(lane.finish is Finish.STOPPED for lane in runs[-1].lanes.values()):
            runs.pop()
        median = median_run([run.totals for run in runs])
        shown = next((run for run in runs if run.totals is median), runs[(len(runs) - 1) // 2])
        self._shown = with_repeats(shown, runs)
        yield from replay_events(self._shown)

    def _decoded(self) -> Iterator[Event]:
        lanes = self._lanes.requested(self._config, self._prompt_ids, self._stop)
        # A prompt of one part is processed with the first rounds.
        prefills = [lane.prefill for lane in lanes.values() if lane.prefill.parts > 1]
        for done, prefill in enumerate(prefills):
            for share in prefill:
                if self._stop():
                    yield STOPPED_READING
                    return
                yield {"type": "progress", "text": READING, "fraction": (done + share) / len(prefills)}
        yield self._log.start()
        for lane, round_ in race(lanes):
            yield self._log.round(lane, round_)
        yield self._log.end()

    @property
    def run(self) -> Run:
        """The run with all rounds so far, ready to be saved."""
        return self._shown or self._log.run


def _blank_run(pair: Pair, config: RunConfig, prompt_ids: list[int], calibration: Calibration) -> Run:
    return Run(
        config=config,
        prompt_ids=tuple(prompt_ids),
        pair=pair.names,
        device=pair.place,
        precision=pair.precision,
        arithmetic=" ".join(
            filter(None, [pair.precision_reason, pair.notes, ROUGHLY if calibration.is_rough else ""])
        ),
        versions=versions(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        calibration=calibration,
        lanes={},
        pieces=pair.pieces.encoded(prompt_ids),
        specials=tuple(sorted(pair.pieces.specials & set(prompt_ids))),
    )


def calibration_events(pair: Pair) -> Iterator[Event]:
    """Measure the pair's pass costs again. Yield a ``progress`` event, then a ``calibration`` event."""
    yield {"type": "progress", "text": "Measuring pass costs", "fraction": 0.0}
    costs = Lanes(pair).calibrate_all()
    sentence = (
        f"A target pass takes {1000 * costs.step_s:.1f} ms. A draft step takes {costs.c:.2f} times as long, "
        f"a target pass over {USUAL_K + 1} tokens {costs.v[USUAL_K]:.2f} times."
    )
    if costs.is_rough:
        sentence += f" {ROUGHLY}"
    yield {"type": "calibration", "calibration": asdict(costs), "sentence": sentence}
