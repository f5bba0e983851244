"""Linear layers with int8 weights, one scale per row, multiplied as they are.

A decoding step reads every weight once and computes little, so half the bytes are half the time; on
CPU torch's int8 kernel gains more than that, because its bf16 product of one row is far from the
memory's speed. A draft may round as it likes: the target still decides every token. The target's own
layers are not packed here.
"""

import torch
from torch import Tensor, nn

MULTIPLE = 32
"""torch's kernel reads whole vectors of a row; a row that does not fill its last one reads past the end."""


class PackedLinear(nn.Module):
    """``nn.Linear`` with int8 weights for bf16 inputs on CPU.

    Args:
        linear: The layer to pack; its input width is a multiple of ``MULTIPLE``.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        rows, scale = quantise_rows(linear.weight.detach())
        self.register_buffer("rows", rows)
        self.register_buffer("scale", scale[:, 0].to(linear.weight.dtype))
        self.bias = linear.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [..., in] to outputs [..., out]."""
        flat = inputs.reshape(-1, inputs.shape[-1])
        outputs = torch._weight_int8pack_mm(flat, self.rows, self.scale)
        outputs = outputs.view(*inputs.shape[:-1], -1)
        return outputs if self.bias is None else outputs + self.bias


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values [out, in] and one fp32 scale per row [out, 1]."""
    scale = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight.float() / scale).round().to(torch.int8), scale


def pack_linears(module: nn.Module) -> nn.Module:
    """Pack every linear layer below ``module`` where int8 is faster: in bf16 on CPU. Returns ``module``."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and _packable(child.weight):
                setattr(parent, name, PackedLinear(child))
    return module


def _packable(weight: Tensor) -> bool:
    plain = weight.device.type == "cpu" and weight.dtype == torch.bfloat16
    return plain and weight.shape[1] % MULTIPLE == 0
