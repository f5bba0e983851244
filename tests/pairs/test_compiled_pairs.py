"""Pairs on a CPU as the program loads them: compiled passes write transformers' texts, or torch runs."""

import logging
import os
import platform
import subprocess
import sys

import pytest
import torch
import transformers
from helpers.on_disk import own_text, run, save, save_pair
from helpers.tiny import byte_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdemo.models.compiled import llama as compiled_llama
from specdemo.models.compiled import openmp
from specdemo.models.compiled.linear import CompiledLinear
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError

pytestmark = pytest.mark.usefixtures("few_measurements")
TOKENIZER = byte_tokenizer()
SIZES = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 36,
    "intermediate_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
OLD = {"n_embd": 36, "n_layer": 2, "n_head": 6}
WHOLE = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
}
"""Architectures whose whole pass is compiled."""
LAYERS = {
    "gpt-neox": ("GPTNeoXConfig", {}),
    "opt": ("OPTConfig", {"ffn_dim": 50, "word_embed_proj_dim": 36, "init_std": 0.3}),
    "phi": ("PhiConfig", {"num_key_value_heads": 6, "partial_rotary_factor": 1.0}),
    "gemma": ("GemmaConfig", {"tie_word_embeddings": False}),
    "bloom": ("BloomConfig", OLD),
    "qwen3": ("Qwen3Config", {}),
    "a window": ("MistralConfig", {"sliding_window": 8}),
    "phi3": ("Phi3Config", {"tie_word_embeddings": False}),
    "gpt2": ("GPT2Config", OLD),  # only its head is a plain linear layer
}
"""Architectures whose linear layers are compiled."""


def model_of(name: str, dtype: torch.dtype) -> PreTrainedModel:
    """Return a small random model with weights that ``dtype`` holds."""
    kind, changes = (WHOLE | LAYERS)[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**SIZES, **changes})
    return AutoModelForCausalLM.from_config(config).eval().to(dtype)


CASES = [
    ("llama", torch.bfloat16),
    ("gpt-neox", torch.float16),
    *(
        pytest.param(name, (torch.float16, torch.bfloat16)[number % 2], marks=pytest.mark.slow)
        for number, name in enumerate([*WHOLE, *LAYERS])
    ),
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_greedy_text_is_transformers_own_in_fp32_with_the_stored_weights(name, dtype, tmp_path):
    folder = save(model_of(name, dtype), TOKENIZER, tmp_path)
    pair = load_sources(Sources(folder, "none", device="cpu"))
    record, end = run(pair, max_new_tokens=40, drafter="prompt-lookup")
    stored = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    expected = own_text(stored, record, 40)
    assert len(set(expected)) > 3, "a text that repeats itself proves little"
    assert list(record.lanes["speculative"].ids) == list(record.lanes["baseline"].ids) == expected
    assert end["badge"]["kind"] == "same"
    assert isinstance(pair.target, CompiledLlama) is (name in WHOLE)
    layers = [layer for layer in pair.target.modules() if isinstance(layer, CompiledLinear)]
    assert bool(layers) is (name in LAYERS)
    assert "all arithmetic in fp32." in pair.precision_reason and "not compiled" not in pair.precision_reason


def test_states_beyond_fp16_are_checked_in_fp32_as_they_run(tmp_path):
    model = model_of("qwen3", torch.float16)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.down_proj.weight.mul_(1e5 / layer.mlp.down_proj.weight.abs().max()).clamp_(-6e4, 6e4)
    pair = load_sources(Sources(save(model, TOKENIZER, tmp_path), "none", device="cpu"))
    record, _ = run(pair, max_new_tokens=20, drafter="prompt-lookup")
    assert pair.precision == "fp16" and not model(torch.tensor([record.prompt_ids])).logits.isfinite().all()
    assert list(record.lanes["speculative"].ids) == own_text(model.float(), record, 20)


def test_infinite_logits_are_not_taken_for_a_fault_of_the_cache(tmp_path):
    model = model_of("qwen3", torch.float32)
    with torch.no_grad():
        model.lm_head.weight[0] = torch.inf
    with pytest.raises(UserError, match="computes NaN or infinite logits"):
        assemble_pair(Sources(save(model, TOKENIZER, tmp_path), "none", device="cpu"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target and a draft model that agrees sometimes."""
    return save_pair(tmp_path_factory, noise=0.03, spread=0.4, dtype=torch.bfloat16)


def text_of(pair) -> list[int]:
    record, end = run(pair, max_new_tokens=30)
    assert end["badge"]["kind"] == "same"
    assert sum(round_.accepted for round_ in record.lanes["speculative"].rounds) > 0
    return list(record.lanes["speculative"].ids)


@pytest.fixture(scope="module")
def expected(folders):
    """The text of compiled passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdemo.pairs.calibrate.REPEATS", 1)
        return text_of(load_sources(Sources(*folders, device="cpu")))


def test_without_torchs_threads_torchs_modules_run_and_the_page_says_so(
    folders, expected, monkeypatch, caplog
):
    monkeypatch.setattr(openmp, "library", lambda: None)
    with caplog.at_level(logging.WARNING):
        pair = load_sources(Sources(*folders, device="cpu"))
    said = "Passes are not compiled, because torch does not use libgomp here."
    assert said in caplog.messages and pair.precision_reason.endswith(said)
    for model in (pair.target, pair.draft):
        assert isinstance(model, PreTrainedModel) and model.dtype == torch.float32
    assert pair.precision == "bf16" and text_of(pair) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "settings", "reason"),
    [
        ("sys.modules['numba'] = sys.modules['llvmlite'] = None", {}, "numba is not installed"),
        ("pass", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
        ("pass", {"NUMBA_CPU_NAME": "x86-64-v2"}, "this processor lacks F16C and FMA"),
    ],
)
def test_where_nothing_can_be_compiled_a_pair_loads_and_runs(folders, first, settings, reason, tmp_path):
    if "NUMBA_CPU_NAME" in settings and platform.machine() != "x86_64":
        pytest.skip("this is a processor of x86")
    env = {**os.environ, "NUMBA_CPU_FEATURES": "", **settings, "SPECDEMO_CACHE": str(tmp_path)}
    code = (
        f"import sys; {first}\n"
        "from specdemo.api import compare\n"
        "from specdemo.pairs.load import load_pair\n"
        "pair = load_pair(*sys.argv[1:], device='cpu')\n"
        "assert compare(pair, 'abc', mode='raw', max_new_tokens=8).totals['identical']\n"
        "print(pair.precision_reason)\n"
    )
    command = [sys.executable, "-c", code, *folders]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(f"Passes are not compiled, because {reason}.")


def test_compiled_passes_that_compute_something_else_are_not_used(folders, expected, monkeypatch, caplog):
    right = compiled_llama.rotations_of
    turned = lambda rotary, most: lambda positions: right(rotary, most)(positions)[::-1]  # noqa: E731
    monkeypatch.setattr(compiled_llama, "rotations_of", turned)
    with caplog.at_level(logging.WARNING):
        pair = load_sources(Sources(*folders, device="cpu"))
    assert any(
        one.startswith("Passes are not compiled") and "logits differ from torch's by" in one
        for one in caplog.messages
    )
    assert isinstance(pair.target, PreTrainedModel) and isinstance(pair.draft, PreTrainedModel)
    assert text_of(pair) == expected


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_in_every_precision_both_models_are_compiled(folders, precision):
    pair = load_sources(Sources(*folders, device="cpu", precision=precision))
    assert isinstance(pair.target, CompiledLlama) and isinstance(pair.draft, CompiledLlama)
    assert pair.precision == precision and text_of(pair)
    assert pair.precision_reason == f"Weights in {precision}; all arithmetic in fp32."
