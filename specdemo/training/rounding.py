"""Learn with the rounding a draft will run with: on CPU its matrices are int4."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from specdemo.models.packed_linear import as_int4, takes_int4
from specdemo.training.students import Student


@contextmanager
def in_int4(student: Student) -> Iterator[None]:
    """Have the student's matrices be rounded as ``packed_linear`` rounds them, for as long as this lasts.

    Gradients taken meanwhile are those at the rounded numbers; the optimiser then moves the whole ones by
    them (the "straight-through" estimator, Bengio et al. 2013).
    """
    linears = [module.weight for module in student.module.modules() if type(module) is nn.Linear]
    matrices = [weight for weight in linears if takes_int4(weight)]
    whole = [weight.data for weight in matrices]
    try:
        with torch.no_grad():
            for weight in matrices:
                weight.data = as_int4(weight)
        yield
    finally:
        for weight, kept in zip(matrices, whole, strict=True):
            weight.data = kept
