"""A low-rank screen of a draft's output layer: exact logits for likely tokens, approximate for the rest."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

RANK = 128
SMALLEST_VARIANCE = 1e-6


class Screen(nn.Module):
    """Approximate logits up · (down · h) + bias of a head W h, at a quarter of its cost.

    Args:
        down: Shape [R, d].
        up: Shape [H, R].
        bias: Shape [H].
    """

    down: Tensor
    up: Tensor
    bias: Tensor

    def __init__(self, down: Tensor, up: Tensor, bias: Tensor):
        super().__init__()
        self.register_buffer("down", down)
        self.register_buffer("up", up)
        self.register_buffer("bias", bias)


def screen_in(state: Mapping[str, Tensor]) -> Screen | None:
    """Return the screen among the tensors of a draft's files, or None if there is none."""
    names = [f"screen.{part}" for part in ("down", "up", "bias")]
    return Screen(*(state[name].float() for name in names)) if all(name in state for name in names) else None


def fit_screen(weight: Tensor, states: Tensor, rank: int = RANK) -> Screen:
    """Return the screen with the least mean squared error of logits over ``states``.

    With mean μ and covariance C of the states, and W C^½ = U S Vᵀ, it is down = V_Rᵀ C^−½, up = U_R S_R and
    bias = W μ − up · down · μ. A plain decomposition of W would spend its rank on directions in which hidden
    states hardly vary.

    Args:
        weight: The head W, shape [H, d].
        states: Final hidden states of typical text, after the last norm, shape [n, d].
        rank: R, at most d.
    """
    weight, states = weight.double(), states.double()
    mean = states.mean(0)
    variances, axes = torch.linalg.eigh(torch.cov(states.T))
    deviations = variances.clamp_min(SMALLEST_VARIANCE).sqrt()
    # C^½ and C^−½ enter as (axes · deviations) and (axesᵀ / deviations): the rotation between is orthogonal.
    left, singular, right = torch.linalg.svd(weight @ (axes * deviations), full_matrices=False)
    down = right[:rank] @ (axes / deviations).T
    up = left[:, :rank] * singular[:rank]
    bias = weight @ mean - up @ (down @ mean)
    return Screen(down.float(), up.float(), bias.float())
