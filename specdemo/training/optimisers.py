"""What moves a student's weights: Muon for the matrices inside it, AdamW for its head, gains and biases.

Muon makes every direction of a matrix's step equally long, so that directions seldom seen are learned
too (Jordan et al. 2024); it needs fewer steps than AdamW, which is what a training of minutes has. Its
iteration computes in bf16, so where that is slow AdamW does all.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from specdemo.training.students import Student

HEAD = "lm_head"
BETAS = (0.9, 0.95)
LIKE_ADAMW = "match_rms_adamw"
"""Has Muon's steps be as long as AdamW's, so that one learning rate serves both (Liu et al. 2025)."""
LONGEST_GRADIENT = 1.0
"""Norm of all gradients together, beyond which they are shortened."""


class Optimisers:
    """One or two optimisers that step together.

    Args:
        student: Whose own tensors are trained; the borrowed embedding stays as it is.
        learning_rate: The highest; :meth:`step` takes a share of it.
        weight_decay: Of both.
        muon: Whether matrices other than the head go to Muon.
    """

    def __init__(self, student: Student, learning_rate: float, weight_decay: float, muon: bool):
        self._learning_rate = learning_rate
        self.parameters = trainable(student)
        inner = {
            parameter
            for name, parameter in student.module.named_parameters()
            if muon and parameter.requires_grad and parameter.ndim == 2 and HEAD not in name
        }
        others = [parameter for parameter in self.parameters if parameter not in inner]
        self._all: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, learning_rate, BETAS, weight_decay=weight_decay)
        ]
        if inner:
            matrices = [parameter for parameter in self.parameters if parameter in inner]
            self._all.append(torch.optim.Muon(matrices, learning_rate, weight_decay, adjust_lr_fn=LIKE_ADAMW))

    def step(self, loss: torch.Tensor, share: float) -> None:
        """Lower ``loss`` by a step at ``share`` of the learning rate."""
        for optimiser in self._all:
            optimiser.zero_grad()
            for group in optimiser.param_groups:
                group["lr"] = self._learning_rate * share
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, LONGEST_GRADIENT)
        for optimiser in self._all:
            optimiser.step()

    def state(self) -> list[dict[str, Any]]:
        """What :meth:`restore` goes on from."""
        return [optimiser.state_dict() for optimiser in self._all]

    def restore(self, states: Iterable[dict[str, Any]]) -> None:
        """Go on from what :meth:`state` gave."""
        for optimiser, state in zip(self._all, states, strict=True):
            optimiser.load_state_dict(state)


def trainable(student: Student) -> list[nn.Parameter]:
    """The student's own parameters, which from now on are the only ones with a gradient."""
    own = {id(tensor) for tensor in student.own_state().values()}
    for parameter in student.module.parameters():
        parameter.requires_grad_(id(parameter) in own)
    return [parameter for parameter in student.module.parameters() if parameter.requires_grad]
