"""The texts that ``--help`` prints."""

import os
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from unittest.mock import patch

from specdemo.cli.main import COMMANDS, main

UNBROKEN = {"COLUMNS": "10000", "NO_COLOR": "1"}
"""With lines so long that none is broken."""


@cache
def help_pages() -> dict[str, str]:
    pages = {}
    with patch.dict(os.environ, UNBROKEN):
        for command in COMMANDS:
            name = command.__name__.rpartition(".")[2]
            with redirect_stdout(StringIO()) as printed:
                try:
                    main([name, "--help"])
                except SystemExit:
                    pages[f"specdemo {name}"] = printed.getvalue()
    return pages
