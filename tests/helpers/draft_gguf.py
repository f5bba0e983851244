"""The built-in draft as a GGUF file, so that llama.cpp can draft with it for the built-in target.

llama.cpp wants of a draft the target's whole vocabulary. So the head gets a row for every token: its own
for those it scores, and for each other token the mean of them all, whose logit is the mean of the logits
and so never the highest. The embedding is the target's, as its file stores it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, get_tensor_name_map
from gguf.quants import quantize

from specdemo.asset_paths import BUILT_IN_DRAFT
from specdemo.models.draft_files import load_weights
from specdemo.pairs.builtin_target import builtin_gguf

# Four bits with a scale and an offset per 32 numbers, the rounding that the draft was trained with.
FORMAT, FILE_TYPE = GGMLQuantizationType.Q4_1, LlamaFileType.MOSTLY_Q4_1
EMBEDDING = "token_embd.weight"


def write_draft_gguf(out: Path) -> None:
    target = GGUFReader(builtin_gguf())
    config = json.loads((BUILT_IN_DRAFT / "config.json").read_text(encoding="utf-8"))
    writer = GGUFWriter(out, "llama")
    try:
        _add_shape(writer, config)
        _copy_tokeniser(target, writer)
        _copy_embedding(target, writer)
        _add_weights(writer, config)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _add_shape(writer: GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_name("Draft for SmolLM2-135M-Instruct")
    writer.add_file_type(FILE_TYPE)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])


def _copy_tokeniser(target: GGUFReader, writer: GGUFWriter) -> None:
    for field in target.fields.values():
        if field.name.startswith("tokenizer."):
            element = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)


def _copy_embedding(target: GGUFReader, writer: GGUFWriter) -> None:
    (tensor,) = (tensor for tensor in target.tensors if tensor.name == EMBEDDING)
    writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)


def _add_weights(writer: GGUFWriter, config: dict[str, Any]) -> None:
    """Add the draft's own tensors: matrices in ``FORMAT``, vectors in fp32."""
    stored = load_weights(BUILT_IN_DRAFT)
    ids = stored.pop("id_map").numpy()
    # llama.cpp has no screen of a head.
    state = {
        name: tensor.float().numpy() for name, tensor in stored.items() if not name.startswith("screen.")
    }
    state["lm_head.weight"] = whole_head(state["lm_head.weight"], ids, config["vocab_size"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, values in state.items():
        key = names.get_name(name, try_suffixes=(".weight",)) or name
        projection = name.split(".")[-2]
        if projection in heads:
            values = paired(values, heads[projection])
        if values.ndim == 1:
            writer.add_tensor(key, values)
        else:
            writer.add_tensor(key, quantize(values, FORMAT), raw_dtype=FORMAT)


def whole_head(rows: np.ndarray, ids: np.ndarray, vocabulary: int) -> np.ndarray:
    """A head [vocabulary, d]: ``rows`` [H, d] for the tokens ``ids`` [H], and their mean for all others."""
    head = np.tile(rows.mean(0), (vocabulary, 1))
    head[ids] = rows
    return head


def paired(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in llama.cpp's order.

    transformers rotates row i of a head together with row i + d/2, llama.cpp's Llama row 2i with row 2i + 1.
    """
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
