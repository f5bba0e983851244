"""The command line: which commands there are, and what becomes of their errors.

Each command is a module: its options (``add_to``) and what is done and printed (``run``).
"""

import argparse
import sys
from collections.abc import Sequence

from specdemo.cli import bench, fetch, generate, lab, prove, replay, train, watch, write
from specdemo.records.limits import UserError

COMMANDS = (generate, replay, fetch, write, train, bench, watch, prove, lab)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (2 for what the user can put right)."""
    options = command_parser().parse_args(arguments)
    try:
        return options.command(options)
    except UserError as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nspecdemo: interrupted", file=sys.stderr)
        return 130


def command_parser() -> argparse.ArgumentParser:
    """The parser of all commands; what it parses has in ``command`` the function to call with it."""
    parser = argparse.ArgumentParser(prog="specdemo", description="Speculative decoding you can watch.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
