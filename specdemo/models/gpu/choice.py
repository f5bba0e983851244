"""The choice between Triton kernels and torch for passes on a GPU."""

import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdemo.models.feature_draft import FeatureDraft, FeatureRuntime
from specdemo.models.fused_execution import FusedExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.layer_views import CHECKED_LAYERS, CHECKED_TOKENS, logits_fault
from specdemo.records.limits import reason_of

if TYPE_CHECKING:  # need Triton
    from specdemo.models.gpu.execution import GpuExecution
    from specdemo.models.gpu.stack import GpuStack

MIN_CAPABILITY = (8, 0)  # tensor cores for bf16
_log = logging.getLogger(__name__)


def is_capable(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= MIN_CAPABILITY


def compile_ahead(device: torch.device, target: Path, draft: Path | None, feature_draft: Path | None) -> None:
    """Begin to compile the kernels of the models in these folders for a GPU.

    :func:`kernels_for` meets any error again and returns it.
    """

    def compile_them() -> None:
        with suppress(Exception):
            compile_stacks(stacks)

    with suppress(Exception):
        from specdemo.models.gpu.ahead import compile_stacks, stacks_ahead

        if is_capable(device):
            stacks = stacks_ahead(target, draft, feature_draft)
            threading.Thread(target=compile_them, name="compile", daemon=True).start()


def kernels_for(model: FusedLlama) -> "GpuExecution | str":
    """Return an execution of ``model`` by Triton kernels, or why there is none.

    As after the conversion to compiled passes, its logits of eight tokens are compared with torch's.
    """
    device = model.embedding.weight.device
    if device.type == "cuda" and not is_capable(device):
        return "they need a GPU with compute capability 8.0 or higher"
    try:
        from specdemo.models.gpu.execution import GpuExecution, stack_of, unsupported

        if reason := unsupported(model):
            return reason
        execution = GpuExecution(model, stack_of(model, model.id_map))
        return error_of(model, execution) or execution
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "their memory layout needs half of the model once more while it is made"
    except Exception as error:  # each part of Triton raises errors of its own, for example without a compiler
        _log.warning("Triton kernels cannot be used.", exc_info=True)
        return reason_of(error)


@torch.inference_mode()
def error_of(model: FusedLlama, execution: "GpuExecution") -> str | None:
    """Return a sentence if the logits after the first layers differ from torch's by more than rounding."""
    ids = torch.arange(CHECKED_TOKENS, device=execution.stack.device) % len(model.embedding.weight)
    depth = min(CHECKED_LAYERS, len(model.layers))
    kernels, torch_ = execution.first(depth), FusedExecution(model).first(depth)
    found = kernels.run(ids, 0, kernels.open(len(ids)), len(ids), ())[0]
    return logits_fault(found, torch_.run(ids, 0, torch_.open(len(ids)), len(ids), ())[0].float())


def feature_kernels_for(draft: FeatureDraft) -> "GpuStack | None":
    """Return the stack of a feature draft on a GPU if the kernels compute what torch does."""
    weight = draft.norm.weight
    if weight.device.type != "cuda":
        return None
    if not is_capable(weight.device):
        return None
    stack, reason = checked_feature_stack(draft)
    if stack is None:
        _log.warning("The feature draft runs without Triton kernels: %s.", reason)
    return stack


@torch.inference_mode()
def checked_feature_stack(draft: FeatureDraft) -> "tuple[GpuStack | None, str]":
    """Return the stack of a feature draft, or None and the reason why there is none."""
    try:
        from specdemo.models.gpu.execution import feature_stack_of, weights_fault
        from specdemo.models.gpu.feature import GpuFeatureRuntime

        c = draft.config
        if fault := weights_fault(draft.norm.weight, (c.hidden_size, c.head_dim, c.intermediate_size)):
            return None, fault
        stack = feature_stack_of(draft)
        runtimes = GpuFeatureRuntime(draft, stack), FeatureRuntime(draft)
        ids = torch.arange(CHECKED_TOKENS, device=stack.device) % stack.weights.embedding.shape[0]
        logits = []
        for runtime in runtimes:
            runtime.begin(CHECKED_TOKENS)
            # The embedded ids stand for states of a target.
            logits.append(runtime.append(draft.embedding(ids), ids)[1].float()[None])
        fault = logits_fault(*logits)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # each part of Triton raises errors of its own
        return None, reason_of(error)
    return (stack, "") if fault is None else (None, fault)
