"""Small random models, and those of the Llama type in all variants that have a fast pass."""

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdemo.models.attention import ATTENTION

VOCAB, POSITIONS = 71, 160
# No size is a multiple of a vector, and the norms' epsilon is large enough to matter.
ODD = {
    "vocab_size": VOCAB,
    "hidden_size": 20,
    "intermediate_size": 37,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.3,
    "rms_norm_eps": 0.05,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
ROTATION = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 40}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ROTATION}
LARGE = {"initializer_range": 0.15, "hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
SEVEN = {"hidden_size": 35, "num_attention_heads": 7, "num_key_value_heads": 1}
MODELS = {
    "groups of one": ("LlamaConfig", {"num_key_value_heads": 4}),
    "groups of two": ("LlamaConfig", {}),
    "groups of three": ("LlamaConfig", {"hidden_size": 30, "num_attention_heads": 6}),
    "seven queries of one key": ("LlamaConfig", SEVEN),
    "wide": ("LlamaConfig", {**LARGE, "hidden_size": 72, "intermediate_size": 150, "head_dim": 34}),
    "whole vectors": ("LlamaConfig", LARGE),
    "tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "linear": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", **ROTATION}}),
    "llama 3": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "yarn": ("LlamaConfig", {"rope_parameters": {"rope_type": "yarn", **ROTATION}}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": False, "tie_word_embeddings": True}),
}


def llama_of(kind: str, changes: dict, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Return a model of any kind whose weights, but not its rotations, have the type ``dtype``."""
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**ODD, **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter += 0.3 * torch.randn_like(parameter)
            parameter.data = parameter.data.to(dtype)
    return model


class Adapted(nn.Linear):
    """A layer that could compute more than a product with its weight."""
