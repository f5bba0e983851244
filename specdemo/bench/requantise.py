"""A GGUF file with its matrices rounded anew, to the 4-bit format llama.cpp has its fastest kernels for.

llama.cpp rearranges Q4_0 for the processor when it loads it, and Q4_1 not. Knows nothing of models.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, Keys, LlamaFileType, ReaderTensor
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

FORMAT = GGMLQuantizationType.Q4_0
BLOCK = GGML_QUANT_SIZES[FORMAT][0]
"""Numbers of a row that share a scale."""


def to_q4_0(source: Path, path: Path) -> Path:
    """Write ``source`` to ``path`` in Q4_0, embedding and head included, if it is not there yet.

    Vectors, such as the norms' weights, and rows that do not fill their blocks stay as they are; so does
    everything the file says about the model, but its type. The file appears whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="requantise-") as scratch:
        made = Path(scratch) / path.name
        _write(GGUFReader(source), made)
        os.replace(made, path)
    return path


def _write(reader: GGUFReader, path: Path) -> None:
    writer = GGUFWriter(path, reader.fields[Keys.General.ARCHITECTURE].contents())
    try:
        _copy_metadata(reader, writer)
        for tensor in reader.tensors:
            values, kind = _rounded(tensor)
            writer.add_tensor(tensor.name, values, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _copy_metadata(reader: GGUFReader, writer: GGUFWriter) -> None:
    # The writer adds the architecture and what describes the file itself, and aligns as it likes.
    own = (Keys.General.ARCHITECTURE, Keys.General.ALIGNMENT, Keys.General.FILE_TYPE)
    for field in reader.fields.values():
        if field.name not in own and not field.name.startswith("GGUF."):
            element = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)


def _rounded(tensor: ReaderTensor) -> tuple[np.ndarray, GGMLQuantizationType]:
    """The tensor's stored bytes or numbers, and their format."""
    if len(tensor.shape) < 2 or tensor.shape[0] % BLOCK:  # the file counts dimensions from the innermost
        return tensor.data, tensor.tensor_type
    return quantize(dequantize(tensor.data, tensor.tensor_type), FORMAT), FORMAT
