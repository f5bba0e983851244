"""Compilation of a pair's kernels while its weights are read: Triton keeps the code on disk."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specdemo.models.attention import ATTENTION
from specdemo.models.feature_draft import load_feature_draft
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.gpu.execution import feature_stack_of, stack_of, unsupported
from specdemo.models.gpu.stack import GpuStack
from specdemo.models.reduced_draft import is_reduced_draft, load_draft

META = torch.device("meta")


def stacks_ahead(target: Path, draft: Path | None, feature_draft: Path | None) -> list[GpuStack]:
    """Return the stacks of the models in these folders without their weights, for :func:`compile_stacks`."""
    whole, stacks = _without_weights(target), []
    if feature_draft is not None:
        stacks.append(feature_stack_of(load_feature_draft(feature_draft, whole)))
    models = [whole]  # last, because its layers are converted
    if draft is not None:
        reduced = is_reduced_draft(draft)
        models.insert(0, load_draft(draft, whole, ATTENTION) if reduced else _without_weights(draft))
    for model in filter(can_fuse, models):
        fused = FusedLlama(model)
        if unsupported(fused) is None:
            stacks.append(stack_of(fused, fused.id_map))
    return stacks


def _without_weights(folder: Path):
    config = AutoConfig.from_pretrained(folder)
    with META:
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=ATTENTION)


def compile_stacks(stacks: list[GpuStack]) -> None:
    """Compile the kernels of stacks on the device ``meta`` for the current GPU."""
    for stack in stacks:
        cache = stack.open(1)
        stack.launch(cache, depth=1)
        for best in (True, False):
            stack.advance(cache, 0, best)
