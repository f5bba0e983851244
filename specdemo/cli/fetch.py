"""``specdemo fetch``: prepare the built-in pair."""

import argparse
import sys
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("fetch", help="prepare the built-in pair")
    parser.set_defaults(command=run)
    parser.add_argument("--check", action="store_true", help="read every byte and rebuild damaged files")


def run(options: argparse.Namespace) -> int:
    """Download and convert missing files of the built-in pair, and print the target's folder; return 0."""
    from specdemo.pairs.builtin_target import builtin_target, checked_target, printing

    folder = builtin_target(printing())
    if options.check and (damaged := checked_target(printing())):
        print(f"specdemo: rebuilt damaged files: {', '.join(damaged)}", file=sys.stderr)
    print(folder)
    return 0
