"""The examples in the README."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def example(containing: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if containing in block]
    return block
