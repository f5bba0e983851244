"""The entry of a Space: ``python app.py`` is ``specdemo serve``."""

import sys

from specdemo.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main(["serve", *sys.argv[1:]]))
