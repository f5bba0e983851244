"""``specdemo generate``: decode one prompt in the terminal."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specdemo.cli.options import RUN_FIELDS, add_pair_options, add_run_options, loaded_pair, write
from specdemo.cli.terminal import TerminalView
from specdemo.records.limits import parse_config


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("generate", help="decode one prompt in the terminal")
    parser.set_defaults(command=run)
    add_run_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write the whole run as JSON; - for standard output")
    add_pair_options(parser)


def run(options: argparse.Namespace) -> int:
    """Show a run as it is decoded; returns 0."""
    config = parse_config({name: getattr(options, name) for name in RUN_FIELDS})
    from specdemo.pairs.live import LiveRun

    live = LiveRun(loaded_pair(options), config)
    view = TerminalView(sys.stderr if options.json == "-" else sys.stdout)
    for event in live.events():
        view.show(event)
    if options.json == "-":
        print(live.run.to_json())
    elif options.json:
        write(Path(options.json), live.run.to_json() + "\n")
    return 0
