"""A draft for llama.cpp: the built-in target without its last layers, which drafts some of its tokens."""

from pathlib import Path

from gguf import GGUFReader, GGUFWriter

from specdemo.pairs.builtin_target import builtin_gguf

LAYERS = 28
"""Of the target's 30."""
COUNT = "llama.block_count"


def write_draft_gguf(out: Path) -> None:
    target, writer = GGUFReader(builtin_gguf()), GGUFWriter(out, "llama")
    for field in target.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue  # the writer adds these
        element = field.types[-1] if len(field.types) > 1 else None
        value = LAYERS if field.name == COUNT else field.contents()
        writer.add_key_value(field.name, value, field.types[0], sub_type=element)
    for tensor in target.tensors:
        kind, number, *_ = tensor.name.split(".")
        if kind != "blk" or int(number) < LAYERS:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
