"""The entry point of the command line. A command is a module: ``add_to`` adds its options, and ``run`` checks
them before it imports torch, and returns the exit status."""

import argparse
import signal
import sys
from collections.abc import Sequence

import specdemo.service  # noqa: F401  (before any other library)
from specdemo import __version__
from specdemo.cli import bench, explain, fetch, generate, lab, prove, replay, serve, site, train, watch, write
from specdemo.cli.exits import TERMINATED, exit_status

COMMANDS = (serve, generate, replay, site, fetch, write, train, bench, watch, prove, lab, explain)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; None means the arguments of the process."""

    def command() -> int:
        options = parsed(sys.argv[1:] if arguments is None else arguments)
        return options.command(options)

    # SIGTERM would end the process without deleting unfinished files.
    before = signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(TERMINATED))
    try:
        return exit_status(command)
    finally:
        signal.signal(signal.SIGTERM, before)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command; ``command`` is the function to call."""
    words = [*arguments]
    if words[:1] == ["serve"]:  # the command line overrides the environment
        words[1:1] = serve.environment_arguments()
    return command_parser().parse_args(words)


def command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdemo", description="Speculative decoding you can watch.")
    parser.add_argument("--version", action="version", version=f"specdemo {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
