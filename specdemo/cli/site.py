"""``specdemo site``: write a static copy of the page."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from specdemo.records.limits import UserError
from specdemo.records.output import require_writable_folder


def add_to(commands: Any) -> None:
    parser = commands.add_parser("site", help="write a static copy of the page")
    parser.set_defaults(command=run)
    parser.add_argument(
        "--live",
        action="store_true",
        help="add the built-in models (115 MB), with which visitors run their own prompts in their browsers",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="new or empty folder for the copy")


def run(options: argparse.Namespace) -> int:
    folder: Path = options.out
    require_writable_folder(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"OUT must be a new or empty folder, got {folder}.")
    from specdemo.ui.site import write_site

    write_site(folder, options.live)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"Wrote {folder} ({size / 1e6:.1f} MB). Any web server can serve it, for example:")
    print(f"python -m http.server --directory {shlex.quote(str(folder))}")
    return 0
