"""The exit statuses of the commands, and the state of their output streams."""

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from specdemo.records.limits import UserError
from specdemo.records.output import disk_is_full

REFUSED = 2
INTERRUPTED = 130
TERMINATED = 143
"""The exit status that a shell reports for a program that was ended by the signal SIGTERM."""
CLOSED_PIPE = 141
"""The exit status that a shell reports for a program that was ended by the signal SIGPIPE."""


def exit_status(program: Callable[[], int]) -> int:
    """Call ``program`` and return its exit status.

    If it raises ``UserError``, or standard output is closed, or it or a disk is full, or a file cannot be
    used, print a sentence and return 2. Return 130 after an interrupt, and 141 if the output pipe is closed.
    """
    try:
        _prepare_streams()
        try:
            return program()
        finally:
            sys.stdout.flush()
    except UserError as error:
        return _refused(str(error))
    except KeyboardInterrupt:
        print("\nspecdemo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _discard(sys.stdout, sys.stderr)
        return CLOSED_PIPE
    except OSError as error:
        if not disk_is_full(error):
            if error.filename is None:
                raise
            return _refused(f"Cannot use {error.filename}: {error.strerror}; choose another.")
        try:
            sys.stdout.flush()
        except OSError:
            _discard(sys.stdout)
        what = error.filename or "the output"
        return _refused(f"Cannot write {what}: {error.strerror}; free some space or choose another place.")


def utf8_output() -> None:
    """Make standard output UTF-8, for data; text for people has the encoding of the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _prepare_streams() -> None:
    """Check that standard output is open; let it replace characters that its encoding lacks."""
    if sys.stderr is None:  # Python's way to say that it is closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise UserError("Standard output is closed; redirect it to a file or to /dev/null.")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _refused(words: str) -> int:
    print(f"specdemo: {words}", file=sys.stderr)
    return REFUSED


def _discard(*streams: TextIO) -> None:
    # Python flushes both streams again when it exits. Redirect them, so that this does not fail.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
