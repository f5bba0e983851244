"""Corrections of Triton 3.9's interpreter: in bf16, ``tl.dot`` multiplies bit patterns, and casts truncate.

Each row is multiplied on its own, so that its result does not depend on the other rows, as on tensor cores.
"""

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
    right = np.ascontiguousarray(_fp32(b))
    rows = np.concatenate([row[None] @ right for row in np.ascontiguousarray(_fp32(a))])
    return TensorHandle(rows + d.data, d.dtype.scalar)


def create_fp_trunc(self, source, to):
    if source.dtype.scalar == tl.float32 and to.scalar == tl.bfloat16:
        bits = np.ascontiguousarray(source.data).view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return TensorHandle(np.where(np.isnan(source.data), np.uint16(0x7FC0), rounded), to.scalar)
    return self.cast_impl(source, to)


def _fp32(handle):
    if handle.dtype.scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    return handle.data


InterpreterBuilder.create_dot = create_dot
InterpreterBuilder.create_fp_trunc = create_fp_trunc
