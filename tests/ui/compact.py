"""Make a recorded event stream small enough to commit: ``python tests/ui/compact.py < IN > OUT``.

Leaves out what the stage does not draw (the models' top fives, and pieces named twice) and rounds figures.
"""

import json
import sys
from typing import Any

NOT_DRAWN = {"draft_top", "target_top", "top"}


def compact(value: Any) -> Any:
    """``value`` without top fives, floats to six significant digits."""
    if isinstance(value, dict):
        return {key: [] if key in NOT_DRAWN else compact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [compact(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main() -> None:
    """Filter standard input, line by line."""
    for line in sys.stdin:
        event = compact(json.loads(line))
        if event["type"] == "start":
            event["run"]["pieces"] = {}
        print(json.dumps(event, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
