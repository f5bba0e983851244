"""``specdemo fetch``: download and convert the built-in target, and print its folder."""

import argparse
import sys
from typing import Any


def add_to(commands: Any) -> None:
    parser = commands.add_parser("fetch", help="download the built-in target")
    parser.set_defaults(command=run)
    parser.add_argument(
        "--check", action="store_true", help="check every byte of the target and rebuild damaged files"
    )


def run(options: argparse.Namespace) -> int:
    from specdemo.pairs.builtin_target import builtin_target, checked_target, printing

    folder = builtin_target(printing())
    if options.check and (damaged := checked_target(printing())):
        print(f"specdemo: rebuilt damaged files: {', '.join(damaged)}", file=sys.stderr)
    print(folder)
    return 0
