"""``python -m specdemo``."""

from specdemo.cli import main

raise SystemExit(main())
