"""The command line: its commands, their errors and their exit statuses.

Each command is a module: its options (``add_to``) and what it does and prints (``run``). A command checks its
options before it imports torch.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from specdemo import __version__
from specdemo.cli import bench, fetch, generate, lab, prove, replay, train, watch, write
from specdemo.records.limits import UserError

COMMANDS = (generate, replay, fetch, write, train, bench, watch, prove, lab)
VERSION = f"specdemo {__version__}"
REFUSED = 2
INTERRUPTED = 130
CLOSED_PIPE = 141
"""What a shell reports of a program that SIGPIPE ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status (2 for what the user can put right)."""

    def command() -> int:
        options = command_parser().parse_args(arguments)
        return options.command(options)

    return exit_status(command)


def exit_status(program: Callable[[], int]) -> int:
    """Run a program and return its exit status; errors of the user become one sentence."""
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
        # Python flushes the streams once more when it ends, which must not fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        return CLOSED_PIPE


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; ``command`` of what it parses is the function to call with it."""
    parser = argparse.ArgumentParser(prog="specdemo", description="Speculative decoding you can watch.")
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
