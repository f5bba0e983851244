"""``specdemo replay``: show a recorded run again."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specdemo.cli.terminal import TerminalView
from specdemo.engine.race import replay_events, replay_lines
from specdemo.records import recordings, trace_file
from specdemo.records.limits import UserError
from specdemo.records.output import require_writable, write_text
from specdemo.records.trace import Run


def add_to(commands: Any) -> None:
    parser = commands.add_parser("replay", help="show a recorded run without a model")
    parser.set_defaults(command=run)
    parser.add_argument("run", metavar="FILE.json|NAME", help="trace file or built-in recording")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="HTML file for an offline page with the run"
    )


def run(options: argparse.Namespace) -> int:
    if options.html:
        require_writable(options.html)
    recorded = _recorded(options.run)
    if options.html:
        from specdemo.ui.http.offline import player_page

        write_text(options.html, player_page(replay_lines(recorded)))
        return 0
    view = TerminalView(sys.stdout)
    for event in replay_events(recorded):
        view.show(event)
    return 0


def _recorded(name: str) -> Run:
    path = Path(name)
    if name in recordings.names() and not path.exists():
        return recordings.load(name)
    try:
        with path.open("rb") as file:
            return trace_file.load(file.read(trace_file.MAX_BYTES + 1))
    except OSError as error:
        builtin = ", ".join(recordings.names()) or "none"
        raise UserError(
            f"Cannot read {name}: {error.strerror}; choose a trace file or a built-in recording "
            f"(installed: {builtin})."
        ) from error
