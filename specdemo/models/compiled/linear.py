"""A linear layer over the compiled product, for models whose whole pass is not compiled."""

from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numba import carray, types
from torch import Tensor, nn

from specdemo.models.compiled import compilation
from specdemo.models.compiled.product import (
    INPUTS,
    MATRIX_FIELDS,
    NUMBER_KINDS,
    multiply_share,
    pack,
    padded,
)
from specdemo.models.compiled.vectors import longs
from specdemo.models.threads import choice

M = TypeVar("M", bound=nn.Module)

MATRIX, ROWS_IN, ROW_COUNT, RESULTS, RESULT_STRIDE, COUNT = range(6)  # fields of a product, int64
FIELDS = 6


def run_product(pointer) -> None:
    """Compute a thread's part of the product that ``FIELDS`` numbers at ``pointer`` describe."""
    c = carray(pointer, (FIELDS,))
    width = carray(longs(c[MATRIX]), (MATRIX_FIELDS,))[INPUTS]
    multiply_share(
        c[MATRIX], c[ROWS_IN], width, c[ROW_COUNT], c[RESULTS], c[RESULT_STRIDE],
        np.int64(compilation.thread_number()), c[COUNT],
    )  # fmt: skip


product = compilation.Compiled(types.void(types.CPointer(types.int64)), run_product)


class CompiledLinear(nn.Module):
    """A linear layer with weights as they are stored, or int8 if ``rounded``, and arithmetic in fp32."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, rounded: bool = False):
        super().__init__()
        self.shape = weight.shape  # [out, in]
        self._matrix = pack(weight, bias, rounded=rounded)

    def forward(self, inputs: Tensor) -> Tensor:
        matrix, (outputs, width) = self._matrix, self.shape
        rows = F.pad(inputs.reshape(-1, width), (0, padded(width) - width)).contiguous()
        results = torch.empty(len(rows), matrix.padded_outputs)
        if len(rows):
            count = choice(len(rows)).count
            memory = rows.data_ptr(), len(rows), results.data_ptr(), results.shape[1]
            c = torch.tensor([matrix.address, *memory, count])
            product.run(c.data_ptr(), count)
        return results[:, :outputs].unflatten(0, inputs.shape[:-1])


def compile_linears(model: M, rounded: bool) -> M:
    """Replace every linear layer of ``model`` in place; its other layers compute in fp32."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype in NUMBER_KINDS:
                setattr(parent, name, CompiledLinear(child.weight, child.bias, rounded))
    return model.float()
