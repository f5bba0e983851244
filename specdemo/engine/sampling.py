"""Pure tensor functions: logits to probabilities, draws from them, residuals and shared noise.
They make no transfers from the device.
"""

import torch
from torch import Tensor

NO_NUMBERS = "a model returned NaN or infinite logits"
_MASK32 = 0xFFFFFFFF
_NEVER = float("-inf")


def warp(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Apply temperature, then top-k, then top-p; excluded tokens get −inf.

    Args:
        logits: Raw scores, shape [..., V].
        temperature: Divisor, > 0.
        top_k: Keep the k best (0: all); ties with the k-th are kept.
        top_p: Keep the smallest set of most probable tokens whose mass reaches ``top_p`` (1: all);
            the most probable token always stays. Of equally probable tokens at the edge the lowest ids
            stay, independently of other rows in the batch.

    Returns:
        Warped log-scores, shape [..., V], float32 or float64, not normalized.
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
    """Return the softmax in float32 (float64 for float64 input), shape as given."""
    return _wide(logits).softmax(-1)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Sample an index in proportion to ``weights`` by inverting their running sum.

    Args:
        weights: Non-negative, not all zero, need not sum to 1; shape [V].
        u: One uniform number in [0, 1), float64, shape [1].

    Returns:
        The index, shape [1], never one of weight zero. If no weight is a positive number, the index is any
        valid one, so that nothing is read out of bounds before the logits are checked.
    """
    steps = weights.double().cumsum(0)
    if steps.device.type != "cpu":
        # A GPU sums in parallel, each step in its own order: the sums must not fall, nor rise at weight 0.
        steps = torch.where(weights > 0, steps, 0.0).cummax(0).values
    # u·total can round up to total itself, which no step exceeds.
    point = torch.minimum(u * steps[-1], torch.nextafter(steps[-1], torch.zeros_like(steps[-1])))
    return torch.searchsorted(steps, point, right=True).clamp_max(len(weights) - 1)


def residual(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual distribution max(p − q, 0), or p itself if its mass is 0.

    Leviathan et al. 2023, section 2.3; Chen et al. 2023, theorem 1.

    Args:
        p: Target probabilities, shape [V].
        q: Draft probabilities of the same tokens, shape [V].

    Returns:
        The unnormalized residual [V] and its mass Σ (p − q)+ = 1 − Σ min(p, q), a scalar.
    """
    left = (p - q).clamp_min(0)
    mass = left.sum()
    return torch.where(mass > 0, left, p), mass


def has_numbers(logits: Tensor) -> Tensor:
    """Return whether every row of ``logits`` [..., V] is a distribution, scalar bool.

    A row must not contain NaN or +inf. It may contain −inf ("never"), but not −inf alone.
    """
    return logits.amax(-1).isfinite().all()


def leading_agreements(agree: Tensor) -> Tensor:
    """Return the length of the leading run of True in ``agree`` [k], a scalar tensor."""
    return agree.long().cumprod(0).sum()


def gumbel(seed: int, positions: Tensor, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return Gumbel(0, 1) noise that depends on nothing but (seed, position, token id).

    Draft, target and baseline read the same numbers, so argmax(log p + g) couples their choices
    without communication (Daliri, Musco & Suresh 2024, "Coupling without Communication and
    Drafter-Invariant Speculative Decoding"). A draft with a reduced vocabulary passes its id map.

    Args:
        seed: Run seed, 0 ≤ seed < 2³².
        positions: Absolute positions of the tokens to be chosen, int64, shape [n].
        ids: Target token ids, int64, shape [V].
        dtype: Type of the result.

    Returns:
        Noise, shape [n, V].
    """
    row_keys = _mix(_mix(positions + 0x9E3779B9) ^ _mix(torch.full_like(positions, seed ^ 0x5BF03635)))
    bits = _mix(_mix(ids + 0x7F4A7C15)[None, :] ^ row_keys[:, None])
    uniform = (bits.to(torch.float64) + 0.5) / 2**32
    return (-torch.log(-torch.log(uniform))).to(dtype)


def _mix(x: Tensor) -> Tensor:
    """Hash 32-bit values in an int64 tensor bijectively ("lowbias32" by C. Wellons)."""
    x = x & _MASK32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK32
    return x ^ (x >> 16)


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
