"""The entry point of the command line, and its exit statuses.

Each command is a module. Its ``add_to`` adds the options; its ``run`` checks them before it imports torch.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from specdemo import __version__
from specdemo.cli import bench, fetch, generate, lab, prove, replay, site, train, watch, write
from specdemo.records.limits import UserError

COMMANDS = (generate, replay, site, fetch, write, train, bench, watch, prove, lab)
VERSION = f"specdemo {__version__}"
REFUSED = 2
INTERRUPTED = 130
CLOSED_PIPE = 141
"""The exit status that a shell reports for a program that was ended by the signal SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        arguments: The command-line arguments; None means those of the process.
    """

    def command() -> int:
        options = command_parser().parse_args(arguments)
        return options.command(options)

    return exit_status(command)


def exit_status(program: Callable[[], int]) -> int:
    """Call ``program`` and return its exit status.

    If it raises ``UserError``, print the message and return 2. Return 130 after an interrupt, and 141 if the
    output pipe is closed.
    """
    try:
        try:
            return program()
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("\nspecdemo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes both streams again when it exits. Redirect them, so that this does not fail.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        return CLOSED_PIPE


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. In the parsed options, ``command`` is the function to call."""
    parser = argparse.ArgumentParser(prog="specdemo", description="Speculative decoding you can watch.")
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
