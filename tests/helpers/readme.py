"""What the README shows."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def example(containing: str) -> str:
    """The one block of Python in the README in which this occurs."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if containing in block]
    return block
