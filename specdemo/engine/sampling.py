"""Tensor functions for sampling, without transfers from the device: probabilities, draws, residuals,
noise."""

import math

import torch
from torch import Tensor

from specdemo.models.decisions import decisions_of

NO_NUMBERS = "a model returned NaN or infinite logits"
_MASK32 = 0xFFFFFFFF
_NEVER = float("-inf")


def warp(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Apply temperature, then top-k (0: all), then top-p (1: all) to logits [..., V].

    Excluded tokens get −inf. Top-k keeps ties with the k-th token. Top-p keeps the most likely tokens until
    their total probability reaches ``top_p``, at least one. Among equally likely tokens it keeps lower ids
    first, so the result for a row does not depend on other rows. The result is in float32 (float64 for
    float64 input).
    """
    scores = _wide(logits) / temperature
    if 0 < top_k < scores.shape[-1]:
        kth = scores.topk(top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < kth, _NEVER)
    if top_p < 1.0:
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        probs = ordered.softmax(-1)
        outside = probs.cumsum(-1) - probs >= top_p
        scores = scores.masked_fill(outside.scatter(-1, order, outside), _NEVER)
    return scores


def probabilities(logits: Tensor) -> Tensor:
    """Return the softmax of ``logits`` [..., V] in float32 (float64 for float64 input)."""
    return _wide(logits).softmax(-1)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Return an index [1], drawn with probability proportional to its weight, from non-negative weights [V].

    ``u`` is a uniform random number in [0, 1), float64, shape [1]. An index of weight 0 is never drawn. If no
    weight is a positive number, the index is arbitrary but valid; a later check of the logits reports that.
    """
    steps = weights.double().cumsum(0)
    if steps.device.type != "cpu":
        # A GPU adds each partial sum in a different order. Rounding must not make the sums fall, nor rise at
        # a weight of 0.
        steps = torch.where(weights > 0, steps, 0.0).cummax(0).values
    # u · total can be rounded up to the total. No partial sum exceeds the total, so searchsorted would fail.
    point = torch.minimum(u * steps[-1], torch.nextafter(steps[-1], torch.zeros_like(steps[-1])))
    return torch.searchsorted(steps, point, right=True).clamp_max(len(weights) - 1)


def residual(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unnormalized residual distribution max(0, p − q) [V] and its sum, 1 − Σ min(p, q).

    If the sum is 0, the distribution is p. Leviathan et al. 2023, section 2.3; Chen et al. 2023, theorem 1.
    """
    left = (p - q).clamp_min(0)
    mass = left.sum()
    return torch.where(mass > 0, left, p), mass


def has_numbers(logits: Tensor) -> Tensor | bool:
    """Return whether every row of ``logits`` [..., V] defines a distribution, scalar bool.

    A row must not contain NaN or +inf. It may contain −inf (probability 0), but not only −inf.
    """
    if (found := decisions_of(logits)) is not None:
        return all(map(math.isfinite, found.largest))
    return logits.amax(-1).isfinite().all()


def highest_probability(logits: Tensor) -> float:
    """Return the highest probability of logits [V], or of the last row of logits [n, V] with decisions.

    It is NaN if the logits define no distribution.
    """
    if (found := decisions_of(logits)) is not None:
        return 1 / found.total[-1] if math.isfinite(found.largest[-1]) else math.nan
    return probabilities(logits).amax().item()


def leading_agreements(agree: Tensor) -> Tensor:
    """Return the number of True values in ``agree`` [k] before the first False, a scalar tensor."""
    return agree.long().cumprod(0).sum()


def gumbel(seed: int, positions: Tensor, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return Gumbel(0, 1) noise [n, V] that depends only on seed, text position [n] and target id [V], both
    int64.

    The draft, the target and the baseline get the same noise g. So argmax(log p + g) chooses the same token
    wherever their distributions are alike (Daliri, Musco & Suresh 2024, "Coupling without Communication and
    Drafter-Invariant Speculative Decoding"). The seed is below 2³².
    """
    row_keys = _mix(_mix(positions + 0x9E3779B9) ^ _mix(torch.full_like(positions, seed ^ 0x5BF03635)))
    bits = _mix(_mix(ids + 0x7F4A7C15)[None, :] ^ row_keys[:, None])
    uniform = (bits.to(torch.float64) + 0.5) / 2**32
    return (-torch.log(-torch.log(uniform))).to(dtype)


def _mix(x: Tensor) -> Tensor:
    """Return a bijective hash of 32-bit values in an int64 tensor ("lowbias32" by C. Wellons)."""
    x = x & _MASK32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK32
    return x ^ (x >> 16)


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
