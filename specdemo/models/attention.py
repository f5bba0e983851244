"""Attention over a static cache whose result for a row does not depend on the number of rows in the pass."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

ATTENTION = "specdemo_grouped"  # the name of :func:`grouped_attention` in transformers
# Number of query rows in each call of the CPU attention kernel. The kernel cuts its rows into tiles, and
# rounding depends on the size of a row's tile. If all calls have the same number of rows, rounding does not
# depend on the number of rows in a pass. Twelve rows divide evenly into tiles of 4, 6 or 12 rows. Without
# chunks, the affected rows depend on the processor and, with MKL on AVX2, even on earlier changes of the
# number of threads.
CHUNK = 12
# Arguments that models may pass to an attention function and that do not affect inference.
WITHOUT_EFFECT = frozenset({"dropout", "position_ids", "cache_position"})


class UnsupportedAttentionError(NotImplementedError):
    """The error for a model that needs a kind of attention that :func:`grouped_attention` cannot compute."""


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

    If g query heads share a key/value head, their n rows each become g·n rows of one query head. So keys and
    values are not copied for each query head.

    Args:
        query: Shape [batch, heads, n, d]; key and value have the shape [batch, kv_heads, capacity, d].
        attention_mask: Additive, shape [batch or 1, 1, n, capacity].
        scaling: Factor of the scores; by default d^-½.
        softcap: Maximum absolute value of the scores before the mask is added (Gemma 2); None for no maximum.

    Returns:
        The output, shape [batch, n, heads, d], and None in place of the attention weights.
    """
    # Unknown arguments, such as attention sinks, could change the result.
    for name in kwargs.keys() - WITHOUT_EFFECT:
        if isinstance(kwargs[name], Tensor | float):
            raise UnsupportedAttentionError(f"attention with {name}")
    mask = group_mask(attention_mask, query.shape[1] // key.shape[1])
    return attend(query, key, value, mask, scaling, softcap).transpose(1, 2).contiguous(), None


def group_mask(mask: Tensor, group: int) -> Tensor:
    """Return an additive mask [batch or 1, 1, n, capacity] in the layout that :func:`attend` needs.

    ``group`` is the number of query heads for each key/value head.
    """
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
    """Compute :func:`grouped_attention` with a mask of :func:`group_mask`; return [batch, heads, n, d]."""
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
    # No fused kernel of torch can bound the scores to ±cap, as Gemma 2 does.
    scores = torch.tanh(rows @ key.transpose(-1, -2) * scaling / cap) * cap + mask
    return scores.softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def additive_mask(
    *args, dtype: torch.dtype = torch.float32, hidden: float = float("-inf"), **kwargs
) -> Tensor:
    """Return transformers' boolean mask as an additive mask, once per pass instead of once per layer."""
    allowed = sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})
    # sdpa_mask returns None only if skipping is allowed.
    return mask_from(~allowed, dtype, hidden)  # pyright: ignore[reportOptionalOperand]


def mask_from(hidden: Tensor, dtype: torch.dtype, by: float = float("-inf")) -> Tensor:
    """Return an additive mask with the shape of ``hidden``: ``by`` where ``hidden`` is True, else 0."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, by)


AttentionInterface.register(ATTENTION, grouped_attention)
AttentionMaskInterface.register(ATTENTION, additive_mask)
