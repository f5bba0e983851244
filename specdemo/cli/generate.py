"""``specdemo generate``: decode one prompt in the terminal."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specdemo.cli.exits import utf8_output
from specdemo.cli.options import (
    RUN_FIELDS,
    add_pair_options,
    add_run_options,
    check_pair,
    loaded_pair,
    require_utf8,
)
from specdemo.cli.terminal import TerminalView
from specdemo.records.limits import parse_config
from specdemo.records.output import require_writable, write_text


def add_to(commands: Any) -> None:
    parser = commands.add_parser("generate", help="continue or answer one prompt in the terminal")
    parser.set_defaults(command=run)
    add_run_options(parser)
    parser.add_argument("--json", metavar="FILE", help="JSON file for the run, or - for standard output")
    add_pair_options(parser)


def run(options: argparse.Namespace) -> int:
    for name in ("prompt", "script"):
        require_utf8(name, getattr(options, name))
    config = parse_config({name: getattr(options, name) for name in RUN_FIELDS})
    out = Path(options.json) if options.json and options.json != "-" else None
    if out:
        require_writable(out)
    check_pair(options, [config.drafter])
    from specdemo.pairs.traced_run import TracedRun

    traced = TracedRun(loaded_pair(options), config)
    view = TerminalView(sys.stderr if options.json == "-" else sys.stdout)
    for event in traced.events():
        view.show(event)
    if options.json == "-":
        utf8_output()
        print(traced.run.to_json())
    elif out:
        write_text(out, traced.run.to_json() + "\n")
    return 0
