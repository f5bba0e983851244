"""The order of rounds of several lanes: while they are decoded, and when a saved run is replayed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from specdemo.records.events import Event, RunLog, ids_in
from specdemo.records.trace import Round, Run, dump


def race(lanes: Mapping[str, Iterable[Round]]) -> Iterator[tuple[str, Round]]:
    """Advance the lane with the fewest seconds so far, again and again; yield its name and its next round.

    A lane's clock includes prefill and stops while another lane runs. So rounds arrive in the order in which
    they would end if each lane had its own device, and no lane slows another lane's measured time.
    """
    clocks = dict.fromkeys(lanes, 0.0)
    running = {name: iter(rounds) for name, rounds in lanes.items()}
    while running:
        name = min(running, key=lambda lane: clocks[lane])
        round_ = next(running[name], None)
        if round_ is None:
            del running[name]
            continue
        clocks[name] += round_.prefill_s + round_.seconds
        yield name, round_


def replay_events(run: Run) -> Iterator[Event]:
    """Yield the events that were sent while ``run`` was decoded. All figures are computed again."""

    def pieces_of(ids: Iterable[int]) -> dict[int, str]:
        return {token: run.pieces[token] for token in sorted(ids)}

    # The ids of repeated runs are not in any event after the first one.
    repeated = [ids_in(round_) for lanes in run.repeats for lane in lanes.values() for round_ in lane.rounds]
    pieces = pieces_of(set(run.prompt_ids).union(*repeated))
    specials = tuple(token for token in run.specials if token in pieces)
    blank = replace(run, lanes={}, pieces=pieces, specials=specials, totals={})
    log = RunLog(blank, run.specials, pieces_of)
    yield log.start()
    for lane, round_ in race({name: lane.rounds for name, lane in run.lanes.items()}):
        yield log.round(lane, round_)
    yield log.end()


def replay_lines(run: Run) -> str:
    return "".join(dump(event) + "\n" for event in replay_events(run))
