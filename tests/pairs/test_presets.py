"""Presets: the facts about their models, and the memory that they need."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from specdemo.asset_paths import BUILT_IN
from specdemo.pairs.presets import LOADED_BYTES, PRESETS, fitting, preset_named
from specdemo.records.limits import PRECISIONS, UserError

QWEN = {"vocab_size": 151_936, "tie_word_embeddings": True}
PYTHIA = {"vocab_size": 50_304}


def sizes(width: int, inner: int, layers: int, heads: int, kv_heads: int, **others: object) -> dict:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **others,
    }


SMOL = {"vocab_size": 49_152, "tie_word_embeddings": True}
LLAMA3 = {"vocab_size": 128_256}
PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("Qwen2", sizes(896, 4_864, 24, 14, 2, **QWEN)),
    "Qwen/Qwen2.5-1.5B-Instruct": ("Qwen2", sizes(1_536, 8_960, 28, 12, 2, **QWEN)),
    "Qwen/Qwen2.5-7B-Instruct": ("Qwen2", sizes(3_584, 18_944, 28, 28, 4, vocab_size=152_064)),
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("Llama", sizes(576, 1_536, 30, 9, 3, **SMOL)),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": ("Llama", sizes(2_048, 8_192, 24, 32, 32, **SMOL)),
    "meta-llama/Llama-3.1-8B-Instruct": ("Llama", sizes(4_096, 14_336, 32, 32, 8, **LLAMA3)),
    "meta-llama/Llama-3.2-1B-Instruct": (
        "Llama",
        sizes(2_048, 8_192, 16, 32, 8, head_dim=64, tie_word_embeddings=True, **LLAMA3),
    ),
    "openai-community/gpt2": ("GPT2", {"n_embd": 768, "n_layer": 12, "n_head": 12}),
    "openai-community/gpt2-large": ("GPT2", {"n_embd": 1_280, "n_layer": 36, "n_head": 20}),
    "openai-community/gpt2-xl": ("GPT2", {"n_embd": 1_600, "n_layer": 48, "n_head": 25}),
    "EleutherAI/pythia-70m": ("GPTNeoX", sizes(512, 2_048, 6, 8, 8, **PYTHIA)),
    "EleutherAI/pythia-160m": ("GPTNeoX", sizes(768, 3_072, 12, 12, 12, **PYTHIA)),
    "EleutherAI/pythia-1.4b": ("GPTNeoX", sizes(2_048, 8_192, 24, 16, 16, **PYTHIA)),
    "EleutherAI/pythia-2.8b": ("GPTNeoX", sizes(2_560, 10_240, 32, 32, 32, **PYTHIA)),
}
"""Architecture and sizes from each model's own ``config.json``."""
CHECKPOINTS = {model.name: model for preset in PRESETS[1:] for model in (preset.target, preset.draft)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_models_parameters_are_the_sum_over_its_architecture(name):
    kind, settings = PUBLISHED[name]
    # The library adds default rotations, which are not parameters.
    config = getattr(transformers, f"{kind}Config")(**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    said = CHECKPOINTS[name]
    assert len(said.revision) == 40 and int(said.revision, 16)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (said.parameters, said.embedding, said.tied) == (
        sum(weight.numel() for weight in model.parameters()),
        model.get_input_embeddings().weight.numel(),
        tied,
    )


def test_every_preset_is_found_by_its_name_and_no_other():
    assert PRESETS[0].name == BUILT_IN
    assert [preset_named(preset.name) for preset in PRESETS] == list(PRESETS)
    with pytest.raises(UserError, match=r"^Unknown pair of models 'gpt5'; choose one of: built-in, qwen2"):
        preset_named("gpt5")


def test_the_memory_needed_counts_both_models_at_their_largest():
    assert LOADED_BYTES.keys() == set(PRECISIONS)
    assert max(LOADED_BYTES.values()) == LOADED_BYTES["auto"]
    large = preset_named("qwen2.5-7b")
    weights = 7_615_616_512 + 494_032_768
    assert 2 * weights < large.needed_bytes("bf16") < 2.5 * weights
    assert large.needed_bytes("fp32") > 1.9 * large.needed_bytes("bf16") - 2**31
    # Both are there in bf16 before one is converted.
    assert large.needed_bytes("int8") == pytest.approx(large.needed_bytes("bf16"), rel=0.05)


def test_presets_that_fit_are_listed_for_a_precision():
    assert [preset.name for preset in fitting(2 * 10**9, "bf16")] == [BUILT_IN]
    assert fitting(10**12, "bf16") == list(PRESETS)
    packed = {preset.name for preset in fitting(10**12, "int8")}
    assert "qwen2.5-7b" in packed and not packed & {"gpt2-large", "gpt2-xl"}
    exactly = preset_named("pythia-1.4b").needed_bytes("fp32")
    assert "pythia-1.4b" in {preset.name for preset in fitting(exactly, "fp32")}
    assert "pythia-1.4b" not in {preset.name for preset in fitting(exactly - 1, "fp32")}
