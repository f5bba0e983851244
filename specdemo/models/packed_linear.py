"""Linear layers whose weights are packed for fast reading by the CPU, in each precision; huge pages."""

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
"""torch's int8 and int4 kernels read whole vectors of this many inputs, past the end of a shorter row."""
GROUP = 32
"""Number of inputs that share a scale and an offset in int4, as in llama.cpp's formats."""
INT4_ROWS = 16
"""The number of output rows for the int4 kernel must be a multiple of this."""
BATCH_HINT = 4
"""Number of input rows for which oneDNN orders the weights. It chose the same order for 1 to 16 rows."""
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float32,
    "fp32": torch.float32,
    "int8": torch.bfloat16,
    "int4": torch.bfloat16,
}
"""Type of the activations, by precision."""
CPU_PRECISIONS = ("fp16", "int8", "int4")
"""Precisions that can run only on the CPU."""
HALF_MAX = torch.finfo(torch.float16).max
MAX_LEFT_SHARE = 1e-3
"""Maximum share of a matrix's weights that fp16 may represent inexactly. Other layers are kept in fp32."""
MIN_MAPPING_BYTES = 4 * 2**20
"""Smaller memory mappings gain little from huge pages."""
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
"""Arguments of ``madvise(2)``: the first enables huge pages, the second merges existing pages into them."""
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class PackedLinear(nn.Module):
    """The base of replacements for ``nn.Linear`` whose weight is stored in another format.

    Attributes:
        shape: Shape of the original weight, [out, in].
        dtype: Type of the original weight.
        bias: Shape [out]; None if there is none.
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.shape, self.dtype = weight.shape, weight.dtype
        self.register_buffer("bias", None if bias is None else bias.detach())


class BlockedLinear(PackedLinear):
    """A linear layer for the CPU in oneDNN's blocked order: the results of ``nn.Linear`` in half the time.

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

    The weights are exactly those of an fp32 model but take half the memory. fp16, including its subnormals,
    represents bf16 numbers from 2⁻¹⁷ to 65504 exactly. For all other weights, the difference is stored
    separately and added.

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
        """Share of the weights that fp16 represents inexactly."""
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
    """Return ``function`` scripted, because torch cannot trace a call with an empty list of scalars."""
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
    """Return ``weight`` [out, in] with the rounding of :class:`Int4Linear`; the type does not change."""
    values, *pair = quantize_groups(weight)
    scale, offset = (part.bfloat16().float() for part in pair)
    groups = (values.unflatten(1, (-1, GROUP)) - 8) * scale[..., None] + offset[..., None]
    return groups.flatten(1).to(weight.dtype)


def takes_int4(weight: Tensor) -> bool:
    """Return whether the int4 kernel supports the shape of ``weight`` [out, in]."""
    return weight.shape[1] % MULTIPLE == 0 and weight.shape[0] % INT4_ROWS == 0


def linear_for(
    weight: Tensor, bias: Tensor | None, precision: str, destination: torch.device | None = None
) -> nn.Module:
    """Return the fastest linear layer for a weight in a precision; ``nn.Linear`` if no kernel supports it.

    Args:
        weight: Shape [out, in].
        bias: Shape [out]; None if there is none.
        precision: Key of ``DTYPES``.
        destination: Device that the layer will run on; None for the device of ``weight``. Layers that will
            run on a GPU are not packed, because packed layers work only on the CPU.
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
    # Keep the same Parameter object. If it is also the embedding, moving the model then keeps one copy.
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
    """Replace every linear layer of ``model`` by the result of :func:`linear_for`.

    Args:
        model: The model. It is changed in place.
        precision: Key of ``DTYPES``.
        head_precision: Key of ``DTYPES`` for the layer that ``model.get_output_embeddings`` returns.
        destination: As for :func:`linear_for`.

    Returns:
        ``model``.
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
    """Return whether this processor can run fbgemm's kernels for fp16 weights."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def has_blocked_kernel(dtype: torch.dtype) -> bool:
    """Return whether oneDNN supports weights of this type in its blocked order here."""
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
    """Ask Linux to use huge pages for all large memory blocks that this process has allocated so far.

    A pass reads every weight once. With pages of 4 kB, these are about sixty thousand pages, and looking up
    pages takes 5 to 10% of the pass. If the system does not support huge pages, nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError, ValueError):
        if "[never]" in SWITCH.read_text(encoding="ascii"):
            return
        gc.collect()
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)  # first return the memory that loading has freed
        for start, size in large_mappings(Path("/proc/self/maps").read_text(encoding="utf-8")):
            for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)


def large_mappings(maps: str) -> list[tuple[int, int]]:
    """Return (start, size) of each large, private, writable memory block that does not belong to a file.

    Args:
        maps: Content of ``/proc/self/maps``.
    """
    found = []
    for line in maps.splitlines():
        span, mode, _, _, inode, *name = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        anonymous = inode == "0" and (not name or name[0] in ("[heap]",) or name[0].startswith("[anon"))
        if mode == "rw-p" and anonymous and end - start >= MIN_MAPPING_BYTES:
            found.append((start, end - start))
    return found
