"""The exit statuses of the commands, and their output streams."""

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from specdemo.records.limits import UserError
from specdemo.records.output import disk_is_full

REFUSED = 2
INTERRUPTED = 130
TERMINATED, CLOSED_PIPE = 143, 141  # as a shell reports a program that SIGTERM or SIGPIPE ended


def exit_status(program: Callable[[], int]) -> int:
    """Call ``program`` and return its exit status; print errors of the user or of a file as one sentence."""
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
            if "usable temporary directory" in str(error):  # tempfile's own words
                return _refused("No folder for temporary files is writable; set TMPDIR to a writable folder.")
            if error.filename is None:
                raise
            return _refused(
                f"Cannot use {error.filename}: {error.strerror}; choose a different file or folder."
            )
        try:
            sys.stdout.flush()
        except OSError:
            _discard(sys.stdout)
        what = error.filename or "the output"
        return _refused(f"Cannot write {what}: {error.strerror}; free some space or choose another place.")


def utf8_output() -> None:
    """Make standard output UTF-8, for data; text for people keeps the encoding of the terminal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _prepare_streams() -> None:
    if sys.stderr is None:  # it is closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise UserError("Standard output is closed; redirect it to a file or to /dev/null.")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":  # for ASCII terminals
        sys.stdout.reconfigure(errors="replace")


def _refused(words: str) -> int:
    print(f"specdemo: {words}", file=sys.stderr)
    return REFUSED


def _discard(*streams: TextIO) -> None:
    # Python flushes both streams again when it exits. Redirect them, so that this does not fail.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
