"""The exit statuses of the commands."""

import os
import sys
from collections.abc import Callable

from specdemo.records.limits import UserError

REFUSED = 2
INTERRUPTED = 130
TERMINATED = 143
"""The exit status that a shell reports for a program that was ended by the signal SIGTERM."""
CLOSED_PIPE = 141
"""The exit status that a shell reports for a program that was ended by the signal SIGPIPE."""


def exit_status(program: Callable[[], int]) -> int:
    """Call ``program`` and return its exit status.

    If it raises ``UserError``, or ``OSError`` for a file, print the message and return 2. Return 130 after an
    interrupt, and 141 if the output pipe is closed.
    """
    try:
        try:
            return program()
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:
        # Python flushes both streams again when it exits. Redirect them, so that this does not fail.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        return CLOSED_PIPE
    except OSError as error:
        if error.filename is None:
            raise
        print(f"specdemo: Cannot use {error.filename}: {error.strerror}; choose another.", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("\nspecdemo: interrupted", file=sys.stderr)
        return INTERRUPTED
