"""Compile a pair's kernels for a GPU that need not exist: first ahead of its weights, then with them.

Usage: compiled_ahead TARGET DRAFT FEATURE_DRAFT; prints the number of compiled kernels after each as JSON.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from specdemo.models.attention import ATTENTION
from specdemo.models.feature_draft import load_feature_draft
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.gpu import kernels
from specdemo.models.gpu.ahead import META, compile_stacks, stacks_ahead
from specdemo.models.gpu.execution import feature_stack_of, stack_of
from specdemo.models.reduced_draft import load_draft

KERNELS = [kernels.embed, kernels.qkv, kernels.attention, kernels.out, kernels.gate_up, kernels.down]
KERNELS += [kernels.head, kernels.advance]


class Driver:
    """Stands in for the driver of a GPU; compiled code is never loaded."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def count():
    return sum(len(kernel.device_caches[0][0]) for kernel in KERNELS)


@torch.inference_mode()
def main() -> None:
    target, draft, feature_draft = map(Path, sys.argv[1:])
    driver.set_active(Driver())
    compile_stacks(stacks_ahead(target, draft, feature_draft))
    ahead = count()

    options = {"dtype": torch.bfloat16, "attn_implementation": ATTENTION}
    model = AutoModelForCausalLM.from_pretrained(target, **options)
    # A GPU's memory is aligned, but not a file's.
    embedding = model.get_input_embeddings()
    embedding.weight.data = embedding.weight.data.clone()
    small, features = load_draft(draft, model, ATTENTION), load_feature_draft(feature_draft, model)
    fused = [FusedLlama(small), FusedLlama(model)]
    for stack in (feature_stack_of(features), *(stack_of(one, one.id_map) for one in fused)):
        cache = stack.open(64)
        stack.device = META  # so that launches compile and do not start
        stack.shape = replace(stack.shape, early=True)  # as on the GPU
        stack.launch(cache)
        for step, best in ((0, True), (1, False)):
            stack.launch(cache, step)
            stack.advance(cache, step, best)
    print(json.dumps({"ahead": ahead, "with weights": count()}))


if __name__ == "__main__":
    main()
