"""Linear layers with weights in the order that the CPU reads fastest, by precision; huge pages for them."""

import ctypes
import gc
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)

MULTIPLE = 32
"""torch's kernels read whole vectors; a row that does not fill its last one would be read past its end."""
GROUP = 32
"""Number of inputs that share a scale and an offset in int4, as in llama.cpp's formats."""
INT4_ROWS = 16
"""The int4 kernel takes output rows in multiples of this."""
BATCH_HINT = 4
"""Number of rows that oneDNN plans for; it chose the same order for 1 to 16."""
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float32,
    "fp32": torch.float32,
    "int8": torch.bfloat16,
    "int4": torch.bfloat16,
}
"""Type of the activations by name of precision."""
CPU_PRECISIONS = ("fp16", "int8", "int4")
"""Precisions with kernels for the CPU only."""
HALF_MAX = torch.finfo(torch.float16).max
MAX_LEFT_SHARE = 1e-3
"""Maximum share of a matrix that fp16 does not hold exactly; a layer with more is kept in fp32."""
MIN_MAPPING_BYTES = 4 * 2**20
"""Smaller memory mappings gain little from huge pages."""
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
"""Advice of ``madvise(2)``: use huge pages here; merge the pages that exist into huge ones."""
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class PackedLinear(nn.Module):
    """``nn.Linear`` with its weight in an order of its own.

    Attributes:
        shape: Shape of the weight it was made of, [out, in].
        dtype: Type of that weight and of the inputs.
        bias: Shape [out], if there is one.
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.shape, self.dtype = weight.shape, weight.dtype
        self.register_buffer("bias", None if bias is None else bias.detach())


class BlockedLinear(PackedLinear):
    """``nn.Linear`` on CPU with its weight in oneDNN's blocked order: the same bits in about half the time.

    Args:
        weight: Shape [out, in], bf16 or fp32.
        bias: Shape [out], if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__(weight, bias)
        blocked = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), BATCH_HINT)
        self.register_buffer("_weight", blocked)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs [..., in] to outputs [..., out]."""
        return _blocked_product(inputs, self._weight, self.bias)


class HalfLinear(PackedLinear):
    """fp16 weights in fbgemm's order, multiplied in fp32, on an x86 CPU with AVX2.

    The model is the same as in fp32, read from half the memory: fp16 holds bf16's numbers from 2⁻¹⁷ to 65504
    exactly, its subnormals included. The remainders of all others are stored separately and added.

    Args:
        weight: Shape [out, in], of any floating-point type.
        bias: Shape [out], if there is one.
    """

    _rows: Tensor
    _columns: Tensor
    _left: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__(weight, bias)
        whole = weight.detach().float().contiguous()
        held = whole.clamp(-HALF_MAX, HALF_MAX).half().float()
        rows, columns = (held != whole).nonzero(as_tuple=True)
        added = None if bias is None else bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack_fp16(held, added)
        self._exact = len(rows) == 0
        self.register_buffer("_rows", rows)
        self.register_buffer("_columns", columns)
        self.register_buffer("_left", whole[rows, columns] - held[rows, columns])

    @property
    def left_share(self) -> float:
        """The share of the weights that fp16 does not hold exactly."""
        return len(self._rows) / self.shape.numel()

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs [..., in] to outputs [..., out], both fp32."""
        outputs = torch.ops.quantized.linear_dynamic_fp16.default(inputs, self._packed)
        if self._exact:
            return outputs
        return outputs.index_add_(-1, self._rows, inputs.index_select(-1, self._columns) * self._left)


class Int8Linear(PackedLinear):
    """int8 weights with one scale per row, for bf16 inputs on CPU.

    Args:
        weight: Shape [out, in]; the input width is a multiple of ``MULTIPLE``.
        bias: Shape [out], if there is one.
    """

    rows: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__(weight, bias)
        rows, scale = quantize_rows(weight.detach())
        self.register_buffer("rows", rows)
        self.register_buffer("scale", scale[:, 0].to(torch.bfloat16))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs [..., in] to outputs [..., out]."""
        outputs = torch._weight_int8pack_mm(_flat(inputs), self.rows, self.scale)
        return _finished(outputs, inputs, self.bias)


class Int4Linear(PackedLinear):
    """int4 weights with a scale and an offset per ``GROUP`` inputs, for bf16 inputs on CPU.

    Args:
        weight: Shape [out, in]; in is a multiple of ``MULTIPLE``, out of ``INT4_ROWS``.
        bias: Shape [out], if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__(weight, bias)
        values, scale, offset = quantize_groups(weight.detach())
        self.register_buffer("values", torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1))
        pairs = torch.stack([scale, offset], -1).transpose(0, 1)
        self.register_buffer("scales", pairs.to(torch.bfloat16).contiguous())

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs [..., in] to outputs [..., out]."""
        pack = self.values, GROUP, self.scales
        outputs = torch.ops.aten._weight_int4pack_mm_for_cpu.default(_flat(inputs), *pack)
        return _finished(outputs, inputs, self.bias)


def _blocked(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")


def _scripted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return ``function`` in a form that can be traced: an empty list of scalars cannot be otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


_blocked_product = _scripted(_blocked)


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values [out, in] and one fp32 scale per row [out, 1]."""
    scale = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight.float() / scale).round().to(torch.int8), scale


def quantize_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return values 0 to 15 [out, in], int32, and per group a scale and an offset [out, in / GROUP], fp32.

    A weight is (value − 8) · scale + offset, as in torch's kernel.
    """
    groups = weight.float().unflatten(1, (-1, GROUP))
    low, high = groups.amin(-1), groups.amax(-1)
    scale = (high - low).clamp_min(1e-12) / 15
    values = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15)
    return values.flatten(1).to(torch.int32), scale, low + 8 * scale


def as_int4(weight: Tensor) -> Tensor:
    """Return ``weight`` [out, in] rounded as :class:`Int4Linear` rounds it, in its own type."""
    values, *pair = quantize_groups(weight)
    scale, offset = (part.bfloat16().float() for part in pair)
    groups = (values.unflatten(1, (-1, GROUP)) - 8) * scale[..., None] + offset[..., None]
    return groups.flatten(1).to(weight.dtype)


def takes_int4(weight: Tensor) -> bool:
    """Return whether the int4 kernel's blocks fit ``weight`` [out, in]."""
    return weight.shape[1] % MULTIPLE == 0 and weight.shape[0] % INT4_ROWS == 0


def linear_for(
    weight: Tensor, bias: Tensor | None, precision: str, destination: torch.device | None = None
) -> nn.Module:
    """Return the fastest layer for a weight in a precision; a plain one if no kernel takes it.

    Args:
        weight: Shape [out, in].
        bias: Shape [out], if there is one.
        precision: Key of ``DTYPES``.
        destination: Device the layer will run on, if it is moved later; a packed layer cannot leave the CPU.
    """
    if (destination or weight.device).type == "cpu":
        if precision == "int4" and takes_int4(weight):
            return Int4Linear(weight, bias)
        if precision in ("int4", "int8") and weight.shape[1] % MULTIPLE == 0:
            return Int8Linear(weight, bias)
        if precision == "fp16" and has_half_kernel():
            half = HalfLinear(weight, bias)
            if half.left_share <= MAX_LEFT_SHARE:
                return half
        if has_blocked_kernel(weight.dtype):
            return BlockedLinear(weight, bias)
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    # Keep the parameter itself: if it is the embedding too, both stay one tensor when the model is moved.
    tied = isinstance(weight, nn.Parameter)
    plain.weight = weight if tied else nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        plain.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return plain


def linear_share(model: nn.Module) -> float:
    """Return the share of a model's weights, embeddings excluded, that are in linear layers."""
    linears = [m.weight for m in model.modules() if type(m) is nn.Linear]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    others = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    total = sum(p.numel() for p in {id(p): p for p in (*linears, *others)}.values())
    return sum(w.numel() for w in linears) / total if total else 0.0


def pack_linears(model: M, precision: str, head_precision: str, destination: torch.device | None = None) -> M:
    """Replace every linear layer of ``model`` by its packed form.

    Args:
        model: Changed in place.
        precision: Key of ``DTYPES``.
        head_precision: The same for the output layer, if transformers names it.
        destination: As for :func:`linear_for`.

    Returns:
        The model.
    """
    output_layer = getattr(model, "get_output_embeddings", None)
    head = None if output_layer is None else output_layer()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                chosen = head_precision if child is head else precision
                setattr(parent, name, linear_for(child.weight, child.bias, chosen, destination))
    return model


def has_half_kernel() -> bool:
    """Return whether fbgemm, which multiplies fp16 weights, is available."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def has_blocked_kernel(dtype: torch.dtype) -> bool:
    """Return whether oneDNN multiplies weights of this type in its blocked order."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _flat(inputs: Tensor) -> Tensor:
    return inputs.reshape(-1, inputs.shape[-1]).contiguous()


def _finished(outputs: Tensor, inputs: Tensor, bias: Tensor | None) -> Tensor:
    outputs = outputs.view(*inputs.shape[:-1], -1)
    return outputs if bias is None else outputs + bias


def use_huge_pages() -> None:
    """Ask Linux for huge pages under everything large that this process has allocated so far.

    A pass reads every weight once. In pages of 4 kB that is about sixty thousand pages, and looking each up
    takes the processor 5 to 10% of the pass. Nothing changes if the system has no huge pages or declines.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError, ValueError):
        if "[never]" in SWITCH.read_text(encoding="ascii"):
            return
        gc.collect()
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)  # memory that loading left free is not worth a page
        for start, size in large_mappings(Path("/proc/self/maps").read_text(encoding="utf-8")):
            for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)


def large_mappings(maps: str) -> list[tuple[int, int]]:
    """Return start and size of the large private writable mappings without a file in ``/proc/self/maps``."""
    found = []
    for line in maps.splitlines():
        span, mode, _, _, inode, *name = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        anonymous = inode == "0" and (not name or name[0] in ("[heap]",) or name[0].startswith("[anon"))
        if mode == "rw-p" and anonymous and end - start >= MIN_MAPPING_BYTES:
            found.append((start, end - start))
    return found
