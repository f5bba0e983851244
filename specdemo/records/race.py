"""Several decoders on one device, each on its own clock, interleaved so that all stream live."""

from collections.abc import Iterator, Mapping

from specdemo.records.trace import Round


def race(lanes: Mapping[str, Iterator[Round]]) -> Iterator[tuple[str, Round]]:
    """Advance whichever lane is behind by its own accumulated seconds, prefill included.

    A lane's clock stands still while another runs, so the order of arrival is the order in which the
    rounds would end on equal devices of their own, and no lane is timed while another works.
    """
    clocks = dict.fromkeys(lanes, 0.0)
    running = dict(lanes)
    while running:
        name = min(running, key=lambda lane: clocks[lane])
        round_ = next(running[name], None)
        if round_ is None:
            del running[name]
            continue
        clocks[name] += round_.prefill_s + round_.seconds
        yield name, round_
