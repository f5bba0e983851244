"""The running app's models, lent to one job at a time: which jobs there are, and faults put into words."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from specdemo.lab.lab_events import lab_events
from specdemo.lab.lab_request import parse_lab
from specdemo.pairs.embedded import Progress
from specdemo.pairs.live import LiveRun, calibration_events
from specdemo.pairs.pair import Pair
from specdemo.play.class_drafts import judge_class
from specdemo.play.class_request import parse_class
from specdemo.play.game import parse_turn
from specdemo.play.turn import play_turn
from specdemo.proof.proof_events import proof_events
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import number_in, quiz_events
from specdemo.records.events import Event, count_emitted
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import SPECULATIVE, RunConfig
from specdemo.service.job_kinds import CutShortError, FailedError, JobKind, Outcome
from specdemo.service.learning import learn_from
from specdemo.service.lost_device import devices_answer
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.pair_pool import Loader, Loan, PairPool, drop_unused
from specdemo.service.queue import Bounds, JobQueue
from specdemo.service.queue_place import Stop
from specdemo.service.shares import Visitor

T = TypeVar("T")
_log = logging.getLogger(__name__)
RESTARTING = "The server is about to start again; please try again in a minute."
"""What jobs are refused with once the program is to end, or its device is lost."""


class LostDeviceError(FailedError):
    """A job failed with its device, which no longer holds the pair's weights."""


class State(StrEnum):
    """What a service can do."""

    READY = "ready"
    LOADING = "loading"
    FAILED = "failed"
    """To load; the next request tries again."""
    LOST = "lost"
    """The device, and with it this process."""
    CLOSING = "closing"


class Request(NamedTuple):
    """What one job is asked to do; plain data, which may be sent to another process.

    Attributes:
        kind: Of the job.
        raw: Its settings as they came: how long it will take is estimated from them.
        parsed: The same, checked; what ``KINDS[kind].parse`` made of them.
    """

    kind: JobKind
    raw: Mapping[str, Any]
    parsed: Any


class _Kind(NamedTuple):
    """How the jobs of a kind are done.

    Attributes:
        parse: Checks untrusted settings; raises ``UserError``.
        events: Does on a pair what ``parse`` returned, asking ``stop`` once a round.
    """

    parse: Callable[[Mapping[str, Any]], Any]
    events: Callable[[Pair, Any, Stop], Iterator[Event]]


def _run(pair: Pair, config: RunConfig, stop: Stop) -> Iterator[Event]:
    live = LiveRun(pair, config, stop)
    yield from live.events()
    learn_from(pair, live.run)


def _quiz(pair: Pair, number: int, stop: Stop) -> Iterator[Event]:
    return quiz_events(pair, number, QUESTIONS[number - 1], stop)


def _question(raw: Mapping[str, Any]) -> int:
    return number_in(raw, len(QUESTIONS))


KINDS: Mapping[JobKind, _Kind] = {
    JobKind.RUN: _Kind(parse_config, _run),
    JobKind.PROVE: _Kind(parse_proof, proof_events),
    JobKind.PLAY: _Kind(parse_turn, play_turn),
    JobKind.CLASS: _Kind(parse_class, judge_class),
    JobKind.QUIZ: _Kind(_question, _quiz),
    JobKind.MEASURE: _Kind(parse_lab, lab_events),
    JobKind.CALIBRATE: _Kind(lambda _raw: None, lambda pair, _parsed, _stop: calibration_events(pair)),
}
"""How each kind is done."""


def checked(kind: JobKind, raw: Mapping[str, Any]) -> Request:
    """Check an untrusted request.

    Raises:
        UserError: It is refused.
    """
    return Request(kind, dict(raw), KINDS[kind].parse(raw))


def perform(pair: Pair, request: Request, stop: Stop) -> Generator[Event, None, None]:
    """Do one job, on the thread that reads it; a fault leaves the device fit for the next job if that can be.

    Args:
        pair: Calibrated or not; keeps what is measured on the way.
        request: Checked.
        stop: Asked once a round; True ends the job.

    Yields:
        The events of the job's kind.

    Raises:
        UserError: The job was refused, or memory or numbers gave out; says so in a sentence.
        LostDeviceError: The device failed; the pair is of no more use.
        Exception: Anything else that a job raises is a fault of the program.
    """
    told: UserError
    try:
        yield from KINDS[request.kind].events(pair, request.parsed, stop)
        return
    except FloatingPointError as error:
        told = FailedError(f"The run was ended because {error}; try another precision.")
    except (RuntimeError, MemoryError) as error:
        if not (_lacks_memory(error) or _of_device(error)):
            raise
        told = _told_of_device(error)
    # Behind the handlers: a traceback holds on to the very tensors that have to go.
    pair.drop_recordings()
    drop_unused()
    raise told


def _lacks_memory(error: Exception) -> bool:
    """Whether an allocation failed; on CPU torch has no class of its own for that."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def _of_device(error: Exception) -> bool:
    """Whether the device failed; torch has no class of its own for what its libraries report."""
    return isinstance(error, torch.AcceleratorError) or "CUDA error" in str(error)


def _told_of_device(error: Exception) -> UserError:
    if _lacks_memory(error):
        return FailedError(
            "The device ran out of memory; ask for fewer tokens or a shorter prompt, or try again later."
        )
    reason = str(error).splitlines()[0][:120]
    return LostDeviceError(f"The device failed ({reason}); please try again in a minute.")


Perform = Callable[[Any, Request, Stop], Generator[Event, None, None]]
"""Does a job on a pair: :func:`perform`, or one that has another process do it, which knows its pair by what
the lender lends. From its first event on the job counts as begun."""


class Lender(Protocol):
    """Where the pairs are: ``pair_pool.PairPool``, or what stands for pairs that are elsewhere."""

    @property
    def ready(self) -> bool:
        """Whether a job on the pair at home could begin now."""
        ...

    @property
    def loading(self) -> bool:
        """Whether the pair at home is under way."""
        ...

    def begin(self) -> None:
        """Begin loading the pair at home, unless it is loaded or under way."""
        ...

    def borrow(self, name: str, stop: Stop) -> Generator[Event, None, Loan | None]:
        """Wait for the pair of that name, as ``PairPool.borrow`` does."""
        ...

    def forget(self, pair: Any) -> None:
        """A device has lost this pair."""
        ...


class Service:
    """Holds what visitors share: the models, and the queue for what runs them.

    Args:
        lender: Has the pairs.
        offered: Which pairs may be asked for.
        queue: Of the devices; each is in a group by the name of its pair, or one is there for all pairs.
        performer: Does the jobs, on a device's thread.
    """

    def __init__(self, lender: Lender, offered: OfferedPairs, queue: JobQueue, performer: Perform):
        self._offered = offered
        self._pool = lender
        self._queue = queue
        self._perform = performer
        self._closing = False
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether the device can be used no more as long as this process lasts."""
        return self._lost

    @property
    def state(self) -> State:
        """What it can do now."""
        if self._lost:
            return State.LOST
        if self._closing:
            return State.CLOSING
        if self._pool.ready:
            return State.READY
        return State.LOADING if self._pool.loading else State.FAILED

    def load(self) -> None:
        """Begin to load the home pair on a thread of its own, unless it is loaded or under way."""
        self._pool.begin()

    def alone(self, work: Callable[[], T]) -> T:
        """Do what is measured while nothing else computes: on the device's thread, before those who wait.

        Returns:
            What ``work`` returned; blocks until then.

        Raises:
            UserError: The service was closed.
        """
        return self._queue.first("measure this machine", work)

    def close(self, within_s: float) -> None:
        """Begin no more jobs, and refuse those that wait and that come with ``RESTARTING``.

        Args:
            within_s: Seconds that the job under way may take to end by itself; it is told to end then.
        """
        self._closing = True
        self._queue.close(RESTARTING, within_s)

    def events(
        self,
        kind: JobKind,
        raw: Mapping[str, Any],
        stop: Stop,
        pair: Any = None,
        visitor: Visitor | None = None,
    ) -> Generator[Event, None, None]:
        """Check a request, wait for models and device, then do the job.

        Args:
            kind: What is to be done.
            raw: The job's settings, untrusted.
            stop: Asked once a round, and while waiting; True ends the job.
            pair: The name of the pair that is to do it, untrusted; None for the one at home.
            visitor: Who asks; None for the program itself.

        Yields:
            ``progress`` events (``text``, ``fraction``) while waiting, then those of the job.

        Raises:
            UserError: The request was refused, the models could not be loaded, there is no place in the
                queue, or the job failed.
        """
        asked_at = time.monotonic()
        tokens, outcome = 0, Outcome.REFUSED
        try:
            with closing(self._job_events(kind, raw, stop, pair, visitor)) as events:
                for event in events:
                    if event["type"] != "progress":
                        outcome = Outcome.FAILED  # if an error ends it from here on
                    tokens += count_emitted(event) if event.get("lane") == SPECULATIVE else 0
                    yield event
            outcome = Outcome.STOPPED if stop() else Outcome.DONE
        except (CutShortError, GeneratorExit):
            outcome = Outcome.STOPPED
            raise
        except UserError as error:
            outcome = Outcome.FAILED if isinstance(error, FailedError) else outcome
            raise
        except Exception:
            outcome = Outcome.FAILED
            raise
        finally:
            _log.info("job %s: %d tokens, %.1f s, %s", kind, tokens, time.monotonic() - asked_at, outcome)

    def _job_events(
        self, kind: JobKind, raw: Mapping[str, Any], stop: Stop, pair: Any, visitor: Visitor | None
    ) -> Generator[Event, None, None]:
        request = checked(kind, raw)  # refused before anything is waited for
        name = self._offered.named(pair)
        with self._queue.place(kind, visitor, self._queue.group_of(name)) as place:
            loan = yield from self._pool.borrow(name, lambda: place.refused is not None or stop())
            if loan is None:
                return place.require_kept()
            try:
                yield from self._queue.turn(place, lambda ended: self._on(loan.pair, request, ended), stop)
            except LostDeviceError:
                if not self._lost:
                    self._pool.forget(loan.pair)
                raise
            finally:
                loan.give_back()

    def _on(self, pair: Pair, request: Request, stop: Stop) -> Generator[Event, None, None]:
        """The job on the device's thread, once it has its turn."""
        if self._lost:
            raise UserError(RESTARTING)
        try:
            with closing(self._perform(pair, request, stop)) as events:
                yield from events
        except LostDeviceError:
            self.probe()  # before the next job begins on it
            raise

    def probe(self) -> None:
        """Find out whether the device is lost for this process, after something failed on it."""
        self._lost = self._lost or not devices_answer()


def local_service(
    loader: Loader,
    offered: OfferedPairs | None = None,
    bounds: Bounds | None = None,
    performer: Perform = perform,
) -> Service:
    """A service with the pairs in this process, and one device for all of them.

    Args:
        loader: Loads a pair by name, on a thread of its own.
        offered: Which pairs may be asked for.
        bounds: How long the queue may grow and a job may last.
        performer: Does the jobs, on the device's thread.
    """

    def load(name: str, progress: Progress) -> Pair:
        try:
            return loader(name, progress)
        except Exception:
            service.probe()
            raise

    def prepared(pair: Pair, request: Request, stop: Stop) -> Generator[Event, None, None]:
        yield {"type": "progress", "text": "Preparing the run", "fraction": 0.0}
        with closing(performer(pair, request, stop)) as events:
            yield from events

    offered = offered or OfferedPairs()
    service = Service(PairPool(load, offered.home), offered, JobQueue(bounds), prepared)
    return service
