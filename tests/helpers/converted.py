"""A stand-in for the conversion of the built-in target."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from specdemo.pairs.builtin_target import Progress


def convert(gguf: Path, folder: Path, progress: Progress) -> Path:
    """Write a model of the converted form and about the size of the GGUF file."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"bytes": gguf.stat().st_size}))
    (folder / "tokenizer.json").write_text("{}")
    save_file(
        {"weight": torch.zeros(len(gguf.read_bytes()), dtype=torch.uint8)}, folder / "model.safetensors"
    )
    return folder
