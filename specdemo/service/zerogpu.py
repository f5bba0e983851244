"""Jobs on ZeroGPU Spaces, where a program has a GPU only during a marked call.

Each call runs in a forked process that uses the weights loaded at the start of the program.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specdemo.pairs.hardware import device_name
from specdemo.pairs.pair import Pair
from specdemo.records.limits import MAX_NEW_TOKENS, UserError
from specdemo.records.trace import MAX_REPEATS, Calibration, RunConfig
from specdemo.service.jobs import REFUSED, JobKind, LostDeviceError, Request, internal_failure
from specdemo.service.queue import Events, Stop
from specdemo.service.service import Perform

COSTS = "costs"
"""The type of the last event of a completed call; it has the pass costs known in the call's process."""
MEASURING_S, COMPILING_S, STARTING_S = 20, 15, 5
"""Seconds before a job begins: in the first call, which measures the pass costs; what it takes longer if it
compiles Triton kernels; in later calls."""
JOB_S = {
    JobKind.PLAY: 10,
    JobKind.CALIBRATE: 15,
    JobKind.CLASS: 20,
    JobKind.QUIZ: 40,
    JobKind.PROVE: 70,
    JobKind.MEASURE: 100,
}
"""Seconds for each kind of job whose duration does not depend on the request."""
TOKENS_PER_S = 30
"""The tokens per second of each lane on the slowest GPU expected; lanes are counted one after the other."""
MIN_S, MAX_S = 10, 120

Costs = Mapping[str, Mapping[Any, Calibration]]
"""Maps a GPU's name to the pass costs measured on it (``PassCosts.known``)."""


def seconds_for(kind: JobKind, raw: Mapping[str, Any], costs_known: bool = False) -> int:
    """Return the GPU seconds to reserve for a job; ZeroGPU refuses a job that exceeds the visitor's quota.

    A missing or invalid number of tokens counts as the maximum, and so does an invalid number of repeats.
    """
    work_s: float = JOB_S.get(kind, 0)
    if kind is JobKind.RUN:
        tokens = raw.get("max_new_tokens")
        if not isinstance(tokens, int | float) or not 1 <= tokens <= MAX_NEW_TOKENS:
            tokens = MAX_NEW_TOKENS
        lanes = 1 + (raw.get("baseline", RunConfig.baseline) is True) + (raw.get("draft_alone") is True)
        repeats = raw.get("repeats", RunConfig.repeats)
        if not isinstance(repeats, int | float) or not 1 <= repeats <= MAX_REPEATS:
            repeats = MAX_REPEATS
        work_s = repeats * lanes * tokens / TOKENS_PER_S
    start_s = STARTING_S if costs_known else MEASURING_S + COMPILING_S
    return min(MAX_S, max(MIN_S, math.ceil(start_s + work_s)))


def on_calls(pair: Pair, perform: Perform, lend: Callable[..., Any]) -> Perform:
    """Return a function that does jobs on this pair inside calls that have the GPU.

    Each call runs in another process. Requests and events are sent to and from it as plain data. Deleting a
    file tells it to stop. Each call receives the pass costs that earlier calls measured. ``lend`` is
    ``spaces.GPU``: called with ``duration``, it decorates a generator function.
    """
    measured: defaultdict[str, dict[Any, Calibration]] = defaultdict(dict)

    def duration(request: Request, *_others: Any) -> int:
        return seconds_for(request.kind, request.raw, costs_known=bool(measured))

    @lend(duration=duration)
    def call(request: Request, keep_going: str, costs: Costs) -> Events:
        gpu = device_name(pair.device)
        pair.costs.known = {**costs.get(gpu, {}), **pair.costs.known}
        try:
            with closing(perform(pair, request, lambda: not Path(keep_going).exists())) as events:
                yield from events
            yield {"type": COSTS, "gpu": gpu, "costs": pair.costs.known}
        except UserError as error:  # ZeroGPU passes on only an exception's class
            yield {"type": REFUSED, "message": str(error)}
            if isinstance(error, LostDeviceError):
                raise  # so that ZeroGPU does not use this process again
        except Exception as error:
            yield {"type": REFUSED, "message": str(internal_failure(error))}
            raise

    def perform_inside_call(_pair: Pair, request: Request, stop: Stop) -> Events:
        refusal = None
        with TemporaryDirectory(prefix="specdemo-call-") as folder:
            keep_going = Path(folder) / "keep_going"
            keep_going.touch()
            costs = {gpu: dict(known) for gpu, known in measured.items()}
            try:
                with closing(call(request, str(keep_going), costs)) as events:
                    try:
                        for event in events:
                            if stop():
                                keep_going.unlink(missing_ok=True)
                            if event["type"] == REFUSED:
                                refusal = event["message"]  # keep reading until the process has ended
                            elif event["type"] == COSTS:
                                measured[event["gpu"]].update(event["costs"])
                            else:
                                yield event
                    finally:
                        # Stop the process, or closing ``events`` would wait for the whole job.
                        keep_going.unlink(missing_ok=True)
            except Exception as error:
                if refusal is None:
                    # No GPU is free, the visitor's quota is used up, or the call was cut off.
                    words = " ".join(str(getattr(error, "message", "") or type(error).__name__).split())
                    sentence = f"The GPU could not be used ({words[:200]}); please try again later."
                    raise UserError(sentence) from error
        if refusal is not None:
            raise UserError(refusal)

    return perform_inside_call
