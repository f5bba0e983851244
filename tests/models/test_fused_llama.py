"""Llama-type models with fewer kernels: transformers' logits, states and texts."""

import copy

import pytest
import torch
from helpers.llamas import MODELS, POSITIONS, ROTATION, VOCAB, Adapted, llama_of
from helpers.tiny import config_for, emitted, tiny_llama

from specdemo.drafters.early_exit import EarlyExitDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.layer_views import hidden_states
from specdemo.models.runtime import ExitRuntime, ModelRuntime

pytestmark = pytest.mark.usefixtures("one_thread")

WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
NOT_FUSED = {
    "a window": ("MistralConfig", {"sliding_window": 8}),
    "windows in some layers": ("Qwen2Config", WINDOWS),
    "another activation": ("LlamaConfig", {"hidden_act": "gelu"}),
    "rotation by length": ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", **ROTATION}}),
    "another family": ("Qwen3Config", {}),
}


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_logits_and_states_are_those_of_transformers(name):
    model = llama_of(*MODELS[name])
    ids = torch.randint(VOCAB, (100,))
    with hidden_states([model.model.layers[0], model.model.layers[2]]) as states:
        expected = model(ids[None], use_cache=False).logits[0]
    assert can_fuse(model)
    runtime = ModelRuntime(FusedLlama(model), taps=(0, 2))
    assert not list(model.model.layers.parameters()), "no second copy of the layers is kept"
    runtime.begin(POSITIONS)
    runtime.prefill(ids[:60])
    runtime.forward(ids[:7])
    runtime.rollback(60)
    got = torch.cat([runtime.forward(part) for part in ids[60:].split([1, 5, 1, 13, 20])])
    close = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(got, expected[60:], **close)
    torch.testing.assert_close(runtime.features(0, 100), torch.cat([s[0] for s in states], -1), **close)


@pytest.mark.parametrize("name", [*NOT_FUSED, "an adapter"])
def test_a_model_with_another_computation_is_left_to_transformers(name):
    model = llama_of(*NOT_FUSED.get(name, ("LlamaConfig", {})))
    if name == "an adapter":
        model.model.layers[1].self_attn.q_proj = Adapted(20, 24, bias=False)
    assert not can_fuse(model)


def test_early_exit_gives_the_same_rounds():
    target = tiny_llama(48, 3, torch.float32)

    def rounds(convert):
        host = ModelRuntime(convert(copy.deepcopy(target)))
        drafter = EarlyExitDrafter(ExitRuntime(host, 1))
        return list(speculate(host, drafter, [1, 2, 3], config_for(k=3, max_new_tokens=60)))

    plain, fused = rounds(lambda model: model), rounds(FusedLlama)
    assert len(set(emitted(plain))) > 10 and emitted(plain) == emitted(fused)
    verdicts = [[[(t.id, t.status) for t in r.drafted] for r in found] for found in (plain, fused)]
    assert verdicts[0] == verdicts[1]
