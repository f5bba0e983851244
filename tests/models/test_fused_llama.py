"""The short path for Llama-type models: transformers' logits, states and texts, from fewer steps."""

import copy

import pytest
import torch
import transformers
from helpers.tiny import config_for, emitted, nearby, speculative_rounds, tiny_llama
from transformers import AutoModelForCausalLM

from specdemo.drafters.early_exit import EarlyExitDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.attention import ATTENTION
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.layer_views import hidden_states
from specdemo.models.runtime import ExitRuntime, ModelRuntime

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
}
ROTATION = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ROTATION}
FUSED = {
    "llama": ("LlamaConfig", {}),
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "wide heads": ("LlamaConfig", {"head_dim": 32}),
    "llama 3": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "yarn": ("LlamaConfig", {"rope_parameters": {"rope_type": "yarn", **ROTATION}}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": False}),
}
NOT_FUSED = {
    "a window": ("MistralConfig", {"sliding_window": 8}),
    "windows in some layers": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "another activation": ("LlamaConfig", {"hidden_act": "gelu"}),
    "rotation by length": ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", **ROTATION}}),
    "another family": ("Qwen3Config", {}),
}


def build(kind: str, settings: dict, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**SMALL, **settings})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter += 0.3 * torch.randn_like(parameter)
    return model.to(dtype).eval()


@pytest.mark.parametrize("name", FUSED)
def test_logits_and_states_are_those_of_transformers(name):
    model = build(*FUSED[name])
    ids = torch.randint(48, (100,))
    with torch.inference_mode(), hidden_states([model.model.layers[0], model.model.layers[2]]) as states:
        expected = model(ids[None], use_cache=False).logits[0]
    assert can_fuse(model)
    runtime = ModelRuntime(FusedLlama(model), taps=(0, 2))
    runtime.begin(256)
    runtime.prefill(ids[:60])
    runtime.forward(ids[:7])
    runtime.rollback(60)
    got = torch.cat([runtime.forward(part) for part in ids[60:].split([1, 5, 1, 13, 20])])
    torch.testing.assert_close(got, expected[60:], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        runtime.features(0, 100), torch.cat([s[0] for s in states], -1), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", NOT_FUSED)
def test_a_model_with_another_computation_is_left_to_transformers(name):
    assert not can_fuse(build(*NOT_FUSED[name]))


def test_a_layer_with_an_adapter_is_left_to_transformers():
    class Adapted(torch.nn.Linear):
        """A layer that computes more than a product with its weight."""

    model = build(*FUSED["llama"])
    model.model.layers[1].self_attn.q_proj = Adapted(64, 64, bias=False)
    assert not can_fuse(model)


def test_taking_over_leaves_no_second_copy_of_the_layers():
    model = build(*FUSED["llama"])
    FusedLlama(model)
    assert not list(model.model.layers.parameters())


def test_both_executions_give_the_same_rounds():
    target, config = tiny_llama(48, 3, torch.float32), config_for(k=3, max_new_tokens=60)
    draft = nearby(target, 1, 0.05)
    plain = speculative_rounds(target, draft, [1, 2, 3], config)
    fused = speculative_rounds(
        FusedLlama(copy.deepcopy(target)),
        FusedLlama(copy.deepcopy(draft)),
        [1, 2, 3],
        config,
    )
    assert len(set(emitted(plain))) > 10
    verdicts = [[(token.id, token.status) for token in round_.drafted] for round_ in plain]
    assert verdicts == [[(token.id, token.status) for token in round_.drafted] for round_ in fused]
    assert emitted(plain) == emitted(fused)


def test_early_exit_shares_the_cache_and_keeps_the_text():
    plain = build(*FUSED["llama"])
    config = config_for(k=3, max_new_tokens=40, drafter="early-exit")

    def rounds(target):
        host = ModelRuntime(target)
        return list(speculate(host, EarlyExitDrafter(ExitRuntime(host, 2)), [1, 2, 3], config))

    expected = rounds(plain)
    found = rounds(FusedLlama(copy.deepcopy(plain)))
    assert emitted(found) == emitted(expected)
    drafts = [[token.id for token in round_.drafted] for round_ in found]
    assert drafts == [[token.id for token in round_.drafted] for round_ in expected]
