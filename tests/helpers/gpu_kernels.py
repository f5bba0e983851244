"""Tiny models whose passes are Triton kernels: interpreted on a CPU, compiled and recorded on a GPU."""

import copy

import torch
from helpers.triton_interpreter import correct
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from specdemo.models.attention import ATTENTION
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.gpu.execution import GpuExecution, stack_of

correct()
torch.set_num_threads(1)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB = 40
LLAMA = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
SPLIT = {"split": 16}  # so that short texts cross the limit of a split


def tiny(seed: int = 0, layers: int = 1, qwen2: bool = False, **sizes):
    """Return a random model of transformers in bf16."""
    torch.manual_seed(seed)
    made, config = (Qwen2ForCausalLM, Qwen2Config) if qwen2 else (LlamaForCausalLM, LlamaConfig)
    fields = {"num_hidden_layers": layers, "vocab_size": VOCAB, "max_position_embeddings": 512}
    settings = config(**(LLAMA | fields | sizes))
    settings._attn_implementation = ATTENTION
    model = made(settings).eval()
    for name, weight in model.named_parameters():
        drawn = torch.randn_like(weight) * (0.3 if "bias" in name else weight.shape[-1] ** -0.5)
        weight.data = 1 + 0.1 * torch.randn_like(weight) if "norm" in name else drawn
    return model.bfloat16().to(DEVICE)


def nearby(model, noise: float = 0.05):
    """Return a copy with noise on its weights: a draft that agrees sometimes."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    for weight in other.parameters():
        drawn = torch.randn(weight.shape, generator=generator) * noise
        weight.data += drawn.to(weight)
    return other


def executed(model, id_map=None, **changes) -> FusedLlama:
    """Return ``model`` with passes as kernels; ``changes`` are fields of their shape."""
    fused = FusedLlama(model)
    fused.execution = GpuExecution(fused, stack_of(fused, id_map, **(SPLIT | changes)), RECORD)
    return fused


def warmed_up(run, generator=None):
    """Stand in for a recorder: before a GPU records, it runs the computation."""
    run()
    return run


RECORD = None if DEVICE.type == "cuda" else warmed_up


def ids(count: int) -> torch.Tensor:
    return torch.randint(VOCAB, (count,), generator=torch.Generator().manual_seed(2)).to(DEVICE)
