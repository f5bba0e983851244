"""Linear layers whose weights lie in memory the way the CPU reads them fastest, by precision.

A decoding step reads every weight once and computes little with it, so its speed is the speed of
that reading. torch's own product of a few bf16 rows stays far below the memory's; the same numbers
in oneDNN's blocked order come out bit for bit alike in about half the time. int8 and int4 read less
and round the weights: as a target that is a slightly different model, whose baseline is packed the same.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)

MULTIPLE = 32
"""torch's kernels read whole vectors of a row; a row that does not fill its last one reads past the end."""
GROUP = 32
"""Inputs that share a scale and an offset in int4; the blocks of llama.cpp's formats have this size too."""
INT4_ROWS = 16
"""The int4 kernel takes output rows in multiples of this."""
BATCH_HINT = 4
"""Rows that oneDNN is told to expect; 1 to 16 were measured to choose the same order."""
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float32,
    "fp32": torch.float32,
    "int8": torch.bfloat16,
    "int4": torch.bfloat16,
}
"""Precisions by name, with the type that activations have."""
CPU_PRECISIONS = ("fp16", "int8", "int4")
"""Those with kernels for the CPU only."""
EXACT_PRECISIONS = ("bf16", "fp16", "fp32")
"""Those in which a bf16 model keeps its stored numbers, whatever it computes with."""
HALF_MAX = torch.finfo(torch.float16).max
MOST_LEFT = 1e-3
"""Share of a matrix that may be numbers fp16 does not hold; with more a layer is kept in fp32."""


class PackedLinear(nn.Module):
    """``nn.Linear`` with its weight in an order of its own.

    Attributes:
        shape: Of the weight it was made of, [out, in].
        dtype: Of that weight, and of the inputs it takes.
        bias: Shape [out], if there is one.
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        self.shape, self.dtype = weight.shape, weight.dtype
        self.register_buffer("bias", None if bias is None else bias.detach())


class BlockedLinear(PackedLinear):
    """``nn.Linear`` on CPU with its weight in oneDNN's order; the same results.

    Args:
        weight: Shape [out, in], bf16 or fp32.
        bias: Shape [out], if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__(weight, bias)
        blocked = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), BATCH_HINT)
        self.register_buffer("_weight", blocked)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [..., in] to outputs [..., out]."""
        return _blocked_product(inputs, self._weight, self.bias)


class HalfLinear(PackedLinear):
    """fp16 weights in fbgemm's order, multiplied in fp32, on an x86 CPU with AVX2.

    The same model as in fp32, read from half the memory: fp16 holds bf16's numbers of 2⁻¹⁷ to 65504 in
    size exactly, its subnormals included. What is left of the others is kept apart and added.

    Args:
        weight: Shape [out, in], of any floating type.
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
        """Inputs [..., in] to outputs [..., out], both fp32."""
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
        rows, scale = quantise_rows(weight.detach())
        self.register_buffer("rows", rows)
        self.register_buffer("scale", scale[:, 0].to(torch.bfloat16))

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [..., in] to outputs [..., out]."""
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
        values, scale, offset = quantise_groups(weight.detach())
        self.register_buffer("values", torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1))
        pairs = torch.stack([scale, offset], -1).transpose(0, 1)
        self.register_buffer("scales", pairs.to(torch.bfloat16).contiguous())

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [..., in] to outputs [..., out]."""
        pack = self.values, GROUP, self.scales
        outputs = torch.ops.aten._weight_int4pack_mm_for_cpu.default(_flat(inputs), *pack)
        return _finished(outputs, inputs, self.bias)


def _blocked(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")


def _scripted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function`` as a trace may contain it: an empty list of scalars cannot be traced otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


_blocked_product = _scripted(_blocked)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values [out, in] and one fp32 scale per row [out, 1]."""
    scale = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight.float() / scale).round().to(torch.int8), scale


def quantise_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values 0 to 15 [out, in], int32, and per group a scale and an offset [out, in / GROUP], fp32.

    A weight is (value - 8) · scale + offset, as torch's kernel has it.
    """
    groups = weight.float().unflatten(1, (-1, GROUP))
    low, high = groups.amin(-1), groups.amax(-1)
    scale = (high - low).clamp_min(1e-12) / 15
    values = ((groups - low[..., None]) / scale[..., None]).round().clamp(0, 15)
    return values.flatten(1).to(torch.int32), scale, low + 8 * scale


def as_int4(weight: Tensor) -> Tensor:
    """The numbers that :class:`Int4Linear` multiplies with in place of ``weight`` [out, in], in its type."""
    values, *pair = quantise_groups(weight)
    scale, offset = (part.bfloat16().float() for part in pair)
    groups = (values.unflatten(1, (-1, GROUP)) - 8) * scale[..., None] + offset[..., None]
    return groups.flatten(1).to(weight.dtype)


def takes_int4(weight: Tensor) -> bool:
    """Whether the int4 kernel's blocks fill ``weight`` [out, in]."""
    return weight.shape[1] % MULTIPLE == 0 and weight.shape[0] % INT4_ROWS == 0


def linear_for(
    weight: Tensor, bias: Tensor | None, precision: str, destination: torch.device | None = None
) -> nn.Module:
    """The fastest layer for ``weight`` [out, in] in a precision; plain where no kernel takes it.

    ``destination`` is where the layer will run, if it is yet to be moved there; what is packed for the CPU
    stays there.
    """
    if (destination or weight.device).type == "cpu":
        if precision == "int4" and takes_int4(weight):
            return Int4Linear(weight, bias)
        if precision in ("int4", "int8") and weight.shape[1] % MULTIPLE == 0:
            return Int8Linear(weight, bias)
        if precision == "fp16" and has_half_kernel():
            half = HalfLinear(weight, bias)
            if half.left_share <= MOST_LEFT:
                return half
        if has_blocked_kernel(weight.dtype):
            return BlockedLinear(weight, bias)
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    # A parameter stays itself: one that is an embedding too remains one tensor wherever the model is moved.
    tied = isinstance(weight, nn.Parameter)
    plain.weight = weight if tied else nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        plain.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return plain


def rounded(tensors: Iterable[Tensor], precision: str) -> None:
    """Round matrices to what ``precision`` packs exactly; for drafts, which rounding harms little."""
    if precision == "fp16":
        for tensor in tensors:
            if tensor.dim() > 1 and tensor.is_floating_point():
                tensor.data = tensor.data.half().to(tensor.dtype)


def linear_share(model: nn.Module) -> float:
    """Share of a model's weights outside its embeddings that are in linear layers."""
    linears = [m.weight for m in model.modules() if type(m) is nn.Linear]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    others = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    total = sum(p.numel() for p in {id(p): p for p in (*linears, *others)}.values())
    return sum(w.numel() for w in linears) / total if total else 0.0


def pack_linears(model: M, precision: str, head_precision: str, destination: torch.device | None = None) -> M:
    """Replace every linear layer of ``model`` by its packed form. Returns ``model``.

    ``head_precision`` is for the output layer, where transformers says which that is, ``destination`` as
    for :func:`linear_for`.
    """
    output_layer = getattr(model, "get_output_embeddings", None)
    head = None if output_layer is None else output_layer()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                chosen = head_precision if child is head else precision
                setattr(parent, name, linear_for(child.weight, child.bias, chosen, destination))
    return model


def exact_precisions() -> tuple[str, ...]:
    """The ``EXACT_PRECISIONS`` that this CPU has kernels for."""
    return tuple(name for name in EXACT_PRECISIONS if name != "fp16" or has_half_kernel())


def has_half_kernel() -> bool:
    """Whether fbgemm is there, which multiplies fp16 weights."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def has_blocked_kernel(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies weights of this type in an order of its own."""
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
