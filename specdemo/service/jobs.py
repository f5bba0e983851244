"""The kinds of job that visitors may ask for, and ``perform``, which does a job on a pair of models."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from specdemo.lab.lab_events import lab_events
from specdemo.lab.lab_request import LabRequest, parse_lab
from specdemo.lab.points import SWEEPS
from specdemo.pairs.hardware import return_freed_memory
from specdemo.pairs.pair import Pair
from specdemo.pairs.traced_run import TracedRun, calibration_events
from specdemo.play.class_drafts import judge_class, parse_class
from specdemo.play.game import parse_turn, play_turn
from specdemo.proof.proof_events import proof_events
from specdemo.proof.proof_request import Proof, ProofRequest, parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import number_in, quiz_events
from specdemo.records.events import Event
from specdemo.records.limits import UserError, parse_config, reason_of
from specdemo.records.trace import RunConfig
from specdemo.service.progress import Progress
from specdemo.service.queue import Events, Stop

FREQUENT = frozenset({"round", "progress"})
"""The types of frequent events, which may be sent in batches; all other events are sent at once."""
REFUSED = "refused"
"""The type of the event with which another process sends the error message of a job."""


class JobKind(StrEnum):
    RUN = "run"
    PROVE = "prove"
    PLAY = "play"
    CLASS = "class"
    QUIZ = "quiz"
    MEASURE = "measure"
    CALIBRATE = "calibrate"


class FailedError(UserError):
    """A job failed or its models could not be loaded, through no fault of the visitor.

    ``device_lost`` is True if a GPU cannot be used again in this process.
    """

    def __init__(self, sentence: str, device_lost: bool = False):
        super().__init__(sentence)
        self.device_lost = device_lost


class LostDeviceError(FailedError):
    """A job failed because its device failed; the pair's weights on that device are lost."""


def internal_failure(error: BaseException) -> FailedError:
    """Return the error for visitors after a bug; it does not contain the words of ``error``."""
    return FailedError(f"The job failed inside the program ({type(error).__name__}); please try again.")


class Request(NamedTuple):
    """A checked request for one job. It is plain data, so it can be sent to another process.

    ``raw`` has the settings as the visitor sent them, ``parsed`` the result of ``JobSpec.parse``.
    """

    kind: JobKind
    raw: Mapping[str, Any]
    parsed: Any


class JobSpec(NamedTuple):
    """A kind of job: ``parse`` checks untrusted settings, and ``events`` does the job."""

    parse: Callable[[Mapping[str, Any]], Any]
    events: Callable[[Pair, Any, Stop], Iterator[Event]]


JOB_SPECS: dict[JobKind, JobSpec] = {
    JobKind.RUN: JobSpec(parse_config, lambda pair, config, stop: TracedRun(pair, config, stop).events()),
    JobKind.PROVE: JobSpec(parse_proof, proof_events),
    JobKind.PLAY: JobSpec(parse_turn, play_turn),
    JobKind.CLASS: JobSpec(parse_class, judge_class),
    JobKind.QUIZ: JobSpec(
        lambda raw: number_in(raw, len(QUESTIONS)),
        lambda pair, number, stop: quiz_events(pair, number, QUESTIONS[number - 1], stop),
    ),
    JobKind.MEASURE: JobSpec(parse_lab, lab_events),
    JobKind.CALIBRATE: JobSpec(lambda _raw: None, lambda pair, _parsed, _stop: calibration_events(pair)),
}


def progress_of(request: Request, pair: str) -> Progress:
    """Return the progress of a job on the pair with this name that has not begun."""
    name, amount, lane_tokens = str(request.kind), 1, 0
    match request.parsed:
        case RunConfig(max_new_tokens=tokens, baseline=baseline, draft_alone=draft_alone, repeats=repeats):
            amount = (1 + baseline + draft_alone) * tokens * repeats
            # The rounds of repeated runs arrive only after the last one; until then they report fractions.
            name, lane_tokens = (name, tokens) if repeats == 1 else (f"{name} repeated", 0)
        case ProofRequest(proof=proof, prompts=prompts, draws=draws):
            name, amount = proof, draws if proof is Proof.DISTRIBUTION else prompts
        case LabRequest(experiment=experiment, settings=settings, prompts=prompts, prompt=prompt):
            texts = prompts if experiment in SWEEPS and not prompt else 1
            name, amount = experiment, texts * settings["max_new_tokens"]
    return Progress((pair, name), amount, lane_tokens)


def checked(kind: JobKind, raw: Mapping[str, Any]) -> Request:
    """Check an untrusted request."""
    return Request(kind, dict(raw), JOB_SPECS[kind].parse(raw))


def perform(pair: Pair, request: Request, stop: Stop) -> Events:
    """Do one job on the current thread. If it fails, free its memory on the device for the next job.

    Pass costs that the job measures are stored in the pair. Raises ``LostDeviceError`` if the device failed.
    An exception other than ``UserError`` is a bug.
    """
    failure: UserError
    try:
        yield from JOB_SPECS[request.kind].events(pair, request.parsed, stop)
        return
    except FloatingPointError as error:
        failure = FailedError(f"The run was ended because {error}; try another precision.")
    except (RuntimeError, MemoryError) as error:
        # On the CPU, torch raises a plain RuntimeError for a failed allocation and for errors of libraries
        # that it uses, so look at the message.
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error):
            failure = FailedError(
                "The device ran out of memory; ask for fewer tokens or a shorter prompt, or try again later."
            )
        elif isinstance(error, torch.AcceleratorError) or "CUDA error" in str(error):
            sentence = f"The device failed ({reason_of(error)}); please try again in a minute."
            failure = LostDeviceError(sentence, device_lost=not devices_answer())
        else:
            raise
    # Free memory only after the handlers have ended: until then the traceback refers to the job's tensors.
    pair.drop_recordings()
    drop_unused()
    raise failure


def drop_unused() -> None:
    """Collect garbage, and return unused memory to the system and to the GPU."""
    gc.collect()
    return_freed_memory()
    if torch.cuda.is_available():
        with suppress(torch.AcceleratorError):  # the device is lost
            torch.cuda.empty_cache()


def devices_answer() -> bool:
    """Return False if a GPU in use no longer computes; after some CUDA errors, none does in this process."""
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
