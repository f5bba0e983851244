"""A GPU that is there only inside a call, as on ZeroGPU Spaces.

There another process, forked for the call, computes with the weights as they were placed at the start;
this one never does. Requests and events travel between the two as plain data, the wish to stop as a file
that is no longer there.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specdemo.events import Event
from specdemo.limits import MAX_NEW_TOKENS, UserError
from specdemo.line import Stop
from specdemo.pair import Pair
from specdemo.service import LostDeviceError, Perform

REFUSED = "refused"
"""Type of the event with a ``UserError``'s sentence: of an exception only the name would arrive."""
MEASURING_S = 20
"""For what is measured inside every call: padding, pass costs, graphs."""
SECONDS = {"play": 10, "quiz": 40, "prove": 70, "measure": 100}
"""Of the kinds of job whose length does not follow from the request."""
TOKENS_PER_S = 15
"""Of all lanes together, at the slowest that is to be expected there."""


def on_calls(pair: Pair, perform: Perform, lend: Callable[..., Any]) -> Perform:
    """``perform`` with the work done inside calls that have the GPU; only of this pair.

    Args:
        pair: Placed on the GPU, nothing measured.
        lend: ``spaces.GPU``, or what does the same: called with ``duration``, it decorates a generator
            function.
    """

    @lend(duration=seconds_for)
    def call(kind: str, raw: Mapping[str, Any], wanted: str) -> Iterator[Event]:
        try:
            yield from perform(pair, kind, raw, lambda: not Path(wanted).exists())
        except UserError as error:
            yield {"type": REFUSED, "message": str(error)}
            if isinstance(error, LostDeviceError):
                raise  # so that this process is not used again
        except Exception as error:
            yield {"type": REFUSED, "message": f"The run failed inside the program ({type(error).__name__})."}
            raise

    def perform_inside_call(_pair: Pair, kind: str, raw: Mapping[str, Any], stop: Stop) -> Iterator[Event]:
        with TemporaryDirectory(prefix="specdemo-call-") as folder:
            wanted = Path(folder) / "wanted"
            wanted.touch()
            with closing(_lent(call(kind, dict(raw), str(wanted)))) as events:
                try:
                    for event in events:
                        if stop():
                            wanted.unlink(missing_ok=True)
                        yield event
                finally:
                    wanted.unlink(missing_ok=True)

    return perform_inside_call


def seconds_for(kind: str, raw: Mapping[str, Any], _wanted: str = "") -> int:
    """How long a job is expected to hold the GPU at most; takes what the call takes."""
    tokens = raw.get("max_new_tokens")
    known = tokens if isinstance(tokens, int | float) else MAX_NEW_TOKENS
    return MEASURING_S + SECONDS.get(kind, int(min(known, MAX_NEW_TOKENS) / TOKENS_PER_S))


def _lent(events: Iterator[Event]) -> Iterator[Event]:
    """The events of a call, its refusals as ``UserError``.

    Raises:
        UserError: What the job was refused with, or why there is no GPU now.
    """
    refused = None
    try:
        with closing(events):  # type: ignore[type-var]
            for event in events:
                if event["type"] == REFUSED:
                    refused = event["message"]  # and on to the end, which says what becomes of the process
                else:
                    yield event
    except Exception as error:
        if refused is None:
            # The host's own words: no GPU free, a visitor's quota used up, or the call cut off.
            words = " ".join(str(getattr(error, "message", "") or type(error).__name__).split())
            raise UserError(f"The GPU could not be used ({words[:200]}); please try again later.") from error
    if refused is not None:
        raise UserError(refused)
