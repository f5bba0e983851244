"""Attention over a static cache whose result for a row does not depend on the number of rows in the pass."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

ATTENTION = "specdemo_grouped"
"""Name of :func:`grouped_attention` in transformers; models are loaded with it."""
CHUNK = 12
"""Number of query rows that the CPU attention kernel is given at once.

Its matrix products cut rows into tiles, and a row's sums differ with its tile. Which rows are affected
depends on the processor, and with MKL on AVX2 even on earlier changes of the number of threads. In chunks of
one size every row meets the same kernels, and twelve rows are whole tiles of 4, 6 or 12.
"""
WITHOUT_EFFECT = frozenset({"dropout", "position_ids", "cache_position"})
"""Arguments that models pass to any attention function and that do not affect inference."""


class UnsupportedAttentionError(NotImplementedError):
    """A model asked for attention that :func:`grouped_attention` does not compute."""


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Compute attention whose result for a row does not depend on the number of rows.

    The g query heads that share a key/value head become g·n rows of one head: nothing is repeated
    in memory.

    Args:
        query: Shape [batch, heads, n, d].
        key, value: Shape [batch, kv_heads, capacity, d].
        attention_mask: Additive, shape [batch or 1, 1, n, capacity].
        scaling: Factor of the scores; by default d^-½.
        softcap: Bound of the scores before the mask (Gemma 2).

    Returns:
        Shape [batch, n, heads, d], and None for the weights, as transformers expects.

    Raises:
        UnsupportedAttentionError: The model passes another argument that changes the result, such as sinks.
    """
    for name in kwargs.keys() - WITHOUT_EFFECT:
        if isinstance(kwargs[name], Tensor | float):
            raise UnsupportedAttentionError(f"attention with {name}")
    mask = group_mask(attention_mask, query.shape[1] // key.shape[1])
    return attend(query, key, value, mask, scaling, softcap).transpose(1, 2).contiguous(), None


def group_mask(mask: Tensor, group: int) -> Tensor:
    """Rearrange a mask [masks, 1, n, capacity] for :func:`attend`, with ``group`` query heads per kv head."""
    masks, _, n, capacity = mask.shape
    rows = mask.expand(masks, group, n, -1).reshape(masks, 1, group * n, -1)
    if not _in_chunks(mask):
        return rows
    return F.pad(rows, (0, 0, 0, -(group * n) % CHUNK)).view(-1, 1, CHUNK, capacity)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Compute :func:`grouped_attention` with a mask from :func:`group_mask`; returns [batch, heads, n, d]."""
    batch, heads, n, width = query.shape
    kv_heads = key.shape[1]
    rows = query.reshape(batch, kv_heads, -1, width)
    count = rows.shape[2]
    chunked = _in_chunks(rows)
    if chunked:
        rows = F.pad(rows, (0, 0, 0, -count % CHUNK)).view(kv_heads, -1, CHUNK, width).transpose(0, 1)
        key, value = (held.expand(rows.shape[0], -1, -1, -1) for held in (key, value))
    if softcap is None:
        mixed = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scaling)
    else:
        mixed = _capped_attention(rows, key, value, mask, scaling or width**-0.5, softcap)
    if chunked:
        mixed = mixed.transpose(0, 1).reshape(1, kv_heads, -1, width)[:, :, :count]
    return mixed.reshape(batch, heads, n, -1)


def _in_chunks(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.shape[0] == 1


def _capped_attention(
    rows: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, cap: float
) -> Tensor:
    """Compute attention with scores bounded by ±``cap`` (Gemma 2), which no fused kernel of torch does."""
    scores = torch.tanh(rows @ key.transpose(-1, -2) * scaling / cap) * cap + mask
    return scores.softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def additive_mask(
    *args, dtype: torch.dtype = torch.float32, hidden: float = float("-inf"), **kwargs
) -> Tensor:
    """Return transformers' boolean mask as an additive one, made once a pass instead of once a layer."""
    allowed = sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
    # sdpa_mask returns None only if skipping is allowed.
    return hiding(~allowed, dtype, hidden)  # pyright: ignore[reportOptionalOperand]


def hiding(hidden: Tensor, dtype: torch.dtype, by: float = float("-inf")) -> Tensor:
    """Return an additive mask of ``dtype``: ``by`` where ``hidden`` is true, else 0; shape as given."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, by)


AttentionInterface.register(ATTENTION, grouped_attention)
AttentionMaskInterface.register(ATTENTION, additive_mask)
