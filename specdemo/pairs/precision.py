"""The rule that picks a precision: the fastest one on this device that keeps the target's stored numbers.

fp16, bf16 and fp32 all hold a bf16 model's numbers exactly (``packed_linear``); int8 and int4 round the
target and are used only on request. On every processor measured the fastest exact choice was the same:
fbgemm's fp16 weights on x86, except with AMX, where bf16 products are faster.
"""

import os

import torch

from specdemo.models.packed_linear import has_half_kernel
from specdemo.pairs.hardware import processor_flags

DRAFT_PRECISION = "int4"
"""Precision on CPU of the drafts that ``specdemo train`` makes: the fastest of those compared, with AVX-512
and with AVX2 alone. Rounding costs a draft acceptance, never correctness, and training rounds as well."""


def precision_for(device: torch.device) -> tuple[str, str]:
    """Return the target's precision on ``device``, and the reason in a few words."""
    if device.type != "cpu":
        if _is_before_ampere(device):
            return "fp32", "the fastest exact precision on a GPU without bf16 (before Ampere)"
        return "bf16", "the fastest exact precision on a GPU"
    if _has_amx():
        return "bf16", "the fastest exact precision on a processor with AMX"
    if has_half_kernel():
        return "fp16", "the fastest exact precision on an x86 processor without AMX"
    return "fp32", "the exact precision that every processor computes"


def _has_amx() -> bool:
    """Whether oneDNN uses AMX here; ``ONEDNN_MAX_CPU_ISA`` can make it use a lesser instruction set."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return "amx_bf16" in processor_flags() and (limit in ("", "ALL", "DEFAULT") or "AMX" in limit)


def _is_before_ampere(device: torch.device) -> bool:
    try:
        return device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    except (RuntimeError, AssertionError):  # a GPU that is lent by the call is not there yet
        return False
