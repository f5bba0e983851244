"""The choice of Triton kernels for passes on a GPU: an option of the host."""

import logging
import os
from typing import TYPE_CHECKING

import torch

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_execution import FusedExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.records.limits import reason_of

if TYPE_CHECKING:  # need Triton
    from specdemo.models.gpu.execution import GpuExecution
    from specdemo.models.gpu.stack import GpuStack

KEY = "SPECDEMO_GPU_KERNELS"
MIN_CAPABILITY = (8, 0)  # tensor cores for bf16
CHECKED_TOKENS, CHECKED_LAYERS = 8, 2
MAX_ERROR = 0.3  # maximum error of logits ÷ their standard deviation; torch computes in bf16
_log = logging.getLogger(__name__)


def requested() -> bool:
    return os.environ.get(KEY, "") not in ("", "0")


def kernels_for(model: FusedLlama) -> "GpuExecution | str":
    """Return an execution of ``model`` by Triton kernels, or why there is none.

    As after the conversion to compiled passes, its logits of eight tokens are compared with torch's. That
    compiles the kernels, which takes seconds at the first start.
    """
    device = model.embedding.weight.device
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        return "they need a GPU with compute capability 8.0 or higher"
    try:
        from specdemo.models.gpu.execution import GpuExecution, stack_of, unsupported

        if reason := unsupported(model):
            return reason
        execution = GpuExecution(model, stack_of(model, model.id_map))
        return error_of(model, execution) or execution
    except torch.OutOfMemoryError:
        raise
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
    wanted = torch_.run(ids, 0, torch_.open(len(ids)), len(ids), ())[0].float()
    best = wanted.argmax(-1, keepdim=True)
    error = (found.gather(1, best) - wanted.gather(1, best)).abs().max()
    if error <= MAX_ERROR * wanted.std() or not wanted.isfinite().all():
        return None
    return f"their logits differ from torch's by {error:.2g}"


def feature_kernels_for(draft: FeatureDraft) -> "GpuStack | None":
    """Return the stack of a feature draft if the host wants Triton kernels and its sizes fit."""
    weight = draft.norm.weight
    if not requested() or weight.device.type != "cuda" or weight.dtype is not torch.bfloat16:
        return None
    try:
        from specdemo.models.gpu.execution import feature_stack_of

        return feature_stack_of(draft)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        _log.warning("The feature draft runs without Triton kernels.", exc_info=True)
        return None
