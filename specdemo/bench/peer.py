"""One way of another library to write, and the models that such libraries are given."""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Generate = Callable[[list[int], int], list[int]]
"""From prompt ids and a number of tokens to the new ids, greedily."""


@dataclass(frozen=True)
class Peer:
    """One way of another library to write.

    Attributes:
        package: The library, with its version.
        name: What is measured.
        alone: Whether this is the library's own baseline in this precision, with which its others are
            compared.
        generate: Writes greedily; everything it does is timed.
        precision: What it runs in.
    """

    package: str
    name: str
    alone: bool
    generate: Generate
    precision: str


@dataclass(frozen=True)
class PeerModels:
    """The same pair for other libraries.

    Attributes:
        target: As transformers loads it, with its own attention.
        draft: As transformers would load it, with a head over the target's vocabulary.
        folder: Where ``draft`` is saved with the tokeniser, for libraries that load it themselves;
            what they convert may be put there too.
        gguf: The target as llama.cpp reads it, if there is one.
        eos_ids: Ids that end a text.
        precision: Of our pair; fp32 where ours is fp16, which computes in that.
        threads: Processor threads torch uses.
    """

    target: Any
    draft: Any
    folder: Path
    gguf: Path | None
    eos_ids: frozenset[int]
    precision: str
    threads: int


def versioned(package: str) -> str:
    """A library's name and version, as the rows show it."""
    return f"{package} {importlib.metadata.version(package)}"
