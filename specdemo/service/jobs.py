"""The kinds of job that visitors may ask for, and doing one on a pair: device faults become sentences."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from specdemo.lab.lab_events import lab_events
from specdemo.lab.lab_request import parse_lab
from specdemo.pairs.live import LiveRun, calibration_events
from specdemo.pairs.pair import Pair
from specdemo.play.class_drafts import judge_class, parse_class
from specdemo.play.game import parse_turn, play_turn
from specdemo.proof.proof_events import proof_events
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import number_in, quiz_events
from specdemo.records.events import Event
from specdemo.records.limits import UserError, parse_config
from specdemo.service.queue import Events, Stop

FREQUENT = frozenset({"round", "progress"})
"""Types of events that a job may yield once a round; any other is sent at once."""


class JobKind(StrEnum):
    """The kinds of job; expected waits are learned by these names."""

    RUN = "run"
    PROVE = "prove"
    PLAY = "play"
    CLASS = "class"
    QUIZ = "quiz"
    MEASURE = "measure"
    CALIBRATE = "calibrate"


class FailedError(UserError):
    """A job failed, or its models could not be loaded; the visitor did nothing wrong.

    Attributes:
        device_lost: Whether a device is lost for the rest of this process.
    """

    def __init__(self, sentence: str, device_lost: bool = False):
        super().__init__(sentence)
        self.device_lost = device_lost


class LostDeviceError(FailedError):
    """A job failed with its device, which no longer holds the pair's weights."""


class Request(NamedTuple):
    """A checked request for one job: plain data, which may be sent to another process.

    Attributes:
        kind: The kind of job.
        raw: Its settings as they came.
        parsed: The result of the kind's ``parse``.
    """

    kind: JobKind
    raw: Mapping[str, Any]
    parsed: Any


class Kind(NamedTuple):
    """A kind of job.

    Attributes:
        parse: Checks untrusted settings; raises ``UserError``.
        events: Does the job of a pair and the result of ``parse``, calling ``stop`` once a round.
    """

    parse: Callable[[Mapping[str, Any]], Any]
    events: Callable[[Pair, Any, Stop], Iterator[Event]]


KINDS: dict[JobKind, Kind] = {
    JobKind.RUN: Kind(parse_config, lambda pair, config, stop: LiveRun(pair, config, stop).events()),
    JobKind.PROVE: Kind(parse_proof, proof_events),
    JobKind.PLAY: Kind(parse_turn, play_turn),
    JobKind.CLASS: Kind(parse_class, judge_class),
    JobKind.QUIZ: Kind(
        lambda raw: number_in(raw, len(QUESTIONS)),
        lambda pair, number, stop: quiz_events(pair, number, QUESTIONS[number - 1], stop),
    ),
    JobKind.MEASURE: Kind(parse_lab, lab_events),
    JobKind.CALIBRATE: Kind(lambda _raw: None, lambda pair, _parsed, _stop: calibration_events(pair)),
}


def checked(kind: JobKind, raw: Mapping[str, Any]) -> Request:
    """Check an untrusted request; raise ``UserError`` if it is refused."""
    return Request(kind, dict(raw), KINDS[kind].parse(raw))


def perform(pair: Pair, request: Request, stop: Stop) -> Events:
    """Do one job on the current thread; after a fault free the device for the next job.

    Args:
        pair: The models; they keep pass costs measured on the way.
        request: A checked request.
        stop: Called once a round; True ends the job.

    Yields:
        The events of the job's kind.

    Raises:
        UserError: The job was refused, memory ran out, or logits were NaN or infinite.
        LostDeviceError: The device failed, and the pair's weights are lost.
        Exception: Anything else that a job raises is a bug.
    """
    failure: UserError
    try:
        yield from KINDS[request.kind].events(pair, request.parsed, stop)
        return
    except FloatingPointError as error:
        failure = FailedError(f"The run was ended because {error}; try another precision.")
    except (RuntimeError, MemoryError) as error:
        # On the CPU torch has no class of its own for a failed allocation, nor for its libraries' errors.
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error):
            failure = FailedError(
                "The device ran out of memory; ask for fewer tokens or a shorter prompt, or try again later."
            )
        elif isinstance(error, torch.AcceleratorError) or "CUDA error" in str(error):
            reason = str(error).splitlines()[0][:120]
            sentence = f"The device failed ({reason}); please try again in a minute."
            failure = LostDeviceError(sentence, device_lost=not devices_answer())
        else:
            raise
    # After the handlers, because a traceback keeps the very tensors that have to be freed.
    pair.drop_recordings()
    drop_unused()
    raise failure


def drop_unused() -> None:
    """Give memory that nothing refers to back to its device."""
    gc.collect()
    if torch.cuda.is_available():
        with suppress(torch.AcceleratorError):  # the device is lost
            torch.cuda.empty_cache()


def devices_answer() -> bool:
    """Return whether each GPU in use still computes; after some errors none does until the process ends."""
    if not torch.cuda.is_initialized():
        return True
    try:
        used = [index for index in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(index)]
        for index in used or [torch.cuda.current_device()]:
            torch.ones(1, device=f"cuda:{index}").item()
    except torch.OutOfMemoryError:
        return True
    except RuntimeError:
        return False
    return True
