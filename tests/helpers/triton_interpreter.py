"""Triton's interpreter, which runs kernels on a CPU (see ``conftest``).

In Triton 3.9, its ``tl.dot`` multiplies bit patterns of bf16, and its casts truncate; both are corrected.
"""


def correct() -> None:
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def fp32(handle):
        if handle.dtype.scalar == tl.bfloat16:
            return (handle.data.astype(np.uint32) << 16).view(np.float32)
        return handle.data

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        # Each row is multiplied on its own, so that its result does not depend on others, as on tensor cores.
        right, left = np.ascontiguousarray(fp32(b)), np.ascontiguousarray(fp32(a))
        rows = np.concatenate([left[..., [i], :] @ right for i in range(left.shape[-2])], -2)
        return TensorHandle(rows + d.data, d.dtype.scalar)

    def create_fp_trunc(self, source, to):
        if source.dtype.scalar == tl.float32 and to.scalar == tl.bfloat16:
            bits = np.ascontiguousarray(source.data).view(np.uint32)
            rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
            return TensorHandle(np.where(np.isnan(source.data), np.uint16(0x7FC0), rounded), to.scalar)
        return self.cast_impl(source, to)

    InterpreterBuilder.create_dot = create_dot
    InterpreterBuilder.create_fp_trunc = create_fp_trunc
