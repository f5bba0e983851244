"""A GPU that is there only inside a call, as on ZeroGPU Spaces.

There another process, forked for the call, computes with the weights as they were placed at the start;
this one never does. Checked requests and events travel between the two as plain data, the wish to stop as a
file that is no longer there. What a call measured is told at its end and handed to the next one.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specdemo.pairs.hardware import device_name
from specdemo.pairs.pair import Pair
from specdemo.records.events import Event, count_emitted
from specdemo.records.limits import UserError
from specdemo.service.job_kinds import JobKind
from specdemo.service.jobs import LostDeviceError, Perform, Request
from specdemo.service.queue_place import Stop
from specdemo.service.reservations import CallReport, Costs, Reservations

REFUSED = "refused"
"""Type of the event with a ``UserError``'s sentence: of an exception only the name would arrive."""
REPORT = "report"
"""Type of the last event of a call that ends well: its ``CallReport``."""
BEFORE_RESULTS = frozenset({"progress", "start", "experiment"})
"""Types of the events that are no results yet."""

_born: list[float] = []
"""In a forked process, when that was (seconds of ``time.monotonic``), until its first call has taken it."""
os.register_at_fork(after_in_child=lambda: _born.__setitem__(slice(None), [time.monotonic()]))


def on_calls(pair: Pair, perform: Perform, lend: Callable[..., Any]) -> Perform:
    """``perform`` with the work done inside calls that have the GPU; only of this pair.

    Args:
        pair: Placed on the GPU, nothing measured.
        perform: Is run in the other process; requests are checked before they are sent there.
        lend: ``spaces.GPU``, or what does the same: called with ``duration``, it decorates a generator
            function.
    """
    reservations = Reservations()

    def seconds_for(request: Request, *_others: Any) -> int:
        return reservations.seconds_for(request.kind, request.raw)

    @lend(duration=seconds_for)
    def call(request: Request, keep_going: str, known: Mapping[str, Costs]) -> Generator[Event, None, None]:
        meter = _Meter(request.kind, pair, known)
        try:
            with closing(perform(pair, request, lambda: not Path(keep_going).exists())) as events:
                yield from map(meter.seen, events)
            yield {"type": REPORT, "report": meter.report(whole=Path(keep_going).exists())}
        except UserError as error:
            yield {"type": REFUSED, "message": str(error)}
            if isinstance(error, LostDeviceError):
                raise  # so that this process is not used again
        except Exception as error:
            yield {"type": REFUSED, "message": f"The run failed inside the program ({type(error).__name__})."}
            raise

    def perform_inside_call(_pair: Pair, request: Request, stop: Stop) -> Generator[Event, None, None]:
        with TemporaryDirectory(prefix="specdemo-call-") as folder:
            keep_going = Path(folder) / "keep_going"
            keep_going.touch()
            known = {gpu: dict(costs) for gpu, costs in reservations.costs.items()}
            with closing(_lent(call(request, str(keep_going), known), request, reservations)) as events:
                try:
                    for event in events:
                        if stop():
                            keep_going.unlink(missing_ok=True)
                        yield event
                finally:
                    keep_going.unlink(missing_ok=True)

    return perform_inside_call


class _Meter:
    """Measures a call from inside.

    Args:
        kind: Of the job.
        pair: Is given the costs that earlier calls measured on a GPU of the same name.
        known: Those costs, by the GPU's name.
    """

    def __init__(self, kind: JobKind, pair: Pair, known: Mapping[str, Costs]):
        self._begun = _born.pop() if _born else time.monotonic()
        self._pair = pair
        self._gpu = device_name(pair.device)
        pair.costs.known = {**known.get(self._gpu, {}), **pair.costs.known}
        self._known = known.get(self._gpu, {})
        self._first_result: float | None = None
        self._size = 0 if kind == JobKind.RUN else None

    def seen(self, event: Event) -> Event:
        """Take in an event of the job, and return it."""
        if self._first_result is None and event["type"] not in BEFORE_RESULTS:
            self._first_result = time.monotonic()
        if self._size is not None:
            self._size += count_emitted(event)
        return event

    def report(self, whole: bool) -> CallReport:
        """What the call took until now.

        Args:
            whole: Whether nobody asked it to stop.
        """
        now = time.monotonic()
        first = self._first_result or now
        found = self._pair.costs.known
        new = {kind: costs for kind, costs in found.items() if costs != self._known.get(kind)}
        return CallReport(self._gpu, new, first - self._begun, now - first, self._size, whole)


def _lent(
    events: Generator[Event, None, None], request: Request, reservations: Reservations
) -> Generator[Event, None, None]:
    """The events of the job that a call does; its report goes to ``reservations``.

    Raises:
        UserError: What the job was refused with, or why there is no GPU now.
    """
    refused, begun = None, False
    try:
        with closing(events):
            for event in events:
                begun = True
                if event["type"] == REFUSED:
                    refused = event["message"]  # and on to the end, which says what becomes of the process
                elif event["type"] == REPORT:
                    reservations.learn(request.kind, request.raw, event["report"])
                else:
                    yield event
    except Exception as error:
        if refused is None:
            if begun:
                reservations.was_cut(request.kind, request.raw)
            # The host's own words: no GPU free, a visitor's quota used up, or the call cut off.
            words = " ".join(str(getattr(error, "message", "") or type(error).__name__).split())
            raise UserError(f"The GPU could not be used ({words[:200]}); please try again later.") from error
    if refused is not None:
        raise UserError(refused)
