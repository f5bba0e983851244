"""``specdemo explain``: explain the speedup of another program."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specdemo.doctor.finding import explain
from specdemo.doctor.reading import FORM, MAX_PASTED, reading_from
from specdemo.records.limits import UserError

HELP = {
    "plain_rate": "tokens/s without drafts",
    "rate": "tokens/s with drafts",
    "draft_rate": "tokens/s of the draft model alone",
    "k": "draft length",
    "tau": "tokens per target pass",
    "acceptance": "accepted ÷ drafted tokens, in percent",
    "elsewhere": "accepted ÷ drafted tokens of the same models and prompt in a different setup, in percent",
    "users": "number of concurrent requests; give the tokens/s of all of them together",
    "context": "tokens of the prompt",
}


def add_to(commands: Any) -> None:
    parser = commands.add_parser("explain", help="explain the speedup of another program")
    parser.set_defaults(command=run)
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="what the program prints; - for standard input"
    )
    for name in FORM:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="N", help=HELP[name])


def run(options: argparse.Namespace) -> int:
    given = {name: getattr(options, name) for name in FORM}
    found = explain(reading_from({"text": _pasted(options.file)} | given))
    print("\n".join(found.sentences))
    for number, cause in enumerate(found.causes, 1):
        print(f"\n{number}. {cause.name.capitalize()}. {cause.reason}\n   {cause.measure}")
    return 0


def _pasted(name: str | None) -> str:
    if name is None:
        return ""
    try:
        if name == "-":
            return sys.stdin.read(MAX_PASTED + 1)
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_PASTED + 1)
    except OSError as error:
        raise UserError(
            f"Cannot read {name}: {error.strerror}; choose a text file, or - for standard input."
        ) from error
