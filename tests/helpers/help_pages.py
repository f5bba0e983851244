"""The output of ``--help`` in the document on the command line.

From the project's folder ``PYTHONPATH=.:tests python -m helpers.help_pages`` updates it.
"""

import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import app
from specdemo.cli.main import COMMANDS, main

DOCUMENT = Path(__file__).parents[2] / "specdemo" / "cli" / "README.md"
PRINTED = {"COLUMNS": "100", "NO_COLOR": "1"}
_BLOCK = re.compile(r"(?<=<!-- help: )(.+?)( -->\n```text\n)(.*?)(?=```\n)", re.DOTALL)


def help_pages() -> dict[str, str]:
    """Return the help of each command by its name."""
    pages = {}
    with patch.dict(os.environ, PRINTED):
        for command in COMMANDS:
            name = command.__name__.rpartition(".")[2]
            with redirect_stdout(StringIO()) as printed:
                try:
                    main([name, "--help"])
                except SystemExit:
                    pages[f"specdemo {name}"] = printed.getvalue()
        pages["python app.py"] = app.settings_parser().format_help()
    return pages


def shown_pages() -> dict[str, str]:
    """Return the help in the document by command."""
    return {name: page for name, _, page in _BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))}


def rewrite() -> None:
    """Update the document; raise ``KeyError`` for a command that no longer exists."""
    pages = help_pages()
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(
        _BLOCK.sub(lambda found: found[1] + found[2] + pages[found[1]], text), encoding="utf-8"
    )


if __name__ == "__main__":
    rewrite()
