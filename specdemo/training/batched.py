"""Decode many prompts at once with one model: for writing training text, where throughput is all.

Rows are left-padded to one width and share a cursor; rows that have ended are dropped from the
batch. Unlike ``runtime`` nothing here has to be bit-identical from pass to pass.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specdemo.models.attention import additive_mask
from specdemo.models.layer_views import decoder_layers, hidden_states

BATCHED_ATTENTION = "specdemo_batched"
HIDDEN = -30_000.0
"""What masked scores are lowered by: finite, since a row of padding only must not become NaN."""
PART = 32
"""Rows of prompts that are read in one pass."""
VISIBLE_STEP = 32
"""Attention looks at the cache's filled part, rounded up to this, so that shapes seldom change."""


class BatchedDecoder:
    """A model with a growing view on a batch's cache; buffers are reused from batch to batch.

    Args:
        model: Any causal language model of transformers; its attention implementation is set here.
        taps: Layers whose output is kept of each pass, in ``states``.

    Attributes:
        states: Hidden states of the last pass behind each tapped layer, side by side,
            [rows, positions, taps · d]; None without taps.
    """

    def __init__(self, model: PreTrainedModel, taps: Sequence[int] = ()):
        self._model = model
        self.states: Tensor | None = None
        self._tapped = [decoder_layers(model)[index] for index in taps]
        model.set_attn_implementation(BATCHED_ATTENTION)
        self.device = next(model.parameters()).device
        layers = model.config.get_text_config().num_hidden_layers
        self._layers = [_BatchedLayer() for _ in range(layers)]
        self._cache = Cache(layers=[*self._layers])
        self._mask = torch.empty(0, 0)

    def begin(self, prompts: list[list[int]], new_tokens: int, padding: int = 0) -> Tensor:
        """Process the prompts, with room for ``new_tokens`` more each; logits after them [rows, V].

        They are read in parts of some rows, each as wide as its own longest: prompts sorted by length cost
        little more than their tokens. ``padding`` positions of the cache are left empty before them and
        cost nothing now: a trial has steps as wide as those over real text, without such text.
        """
        width = padding + max(map(len, prompts))
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
        self._mask = mask.to(self.device)
        for layer in self._layers:
            layer.begin(len(prompts), width + new_tokens)
        parts = []
        for first in range(0, len(prompts), PART):
            rows = slice(first, min(first + PART, len(prompts)))
            parts.append(self._read(prompts[rows], rows, width))
        self._look(slice(0, len(prompts)), 0, width)
        if self._tapped:
            longest = max(states.shape[1] for _, states in parts)
            padded = [F.pad(states, (0, 0, longest - states.shape[1], 0)) for _, states in parts]
            self.states = torch.cat(padded)
        return torch.cat([logits for logits, _ in parts])

    def _read(self, prompts: list[list[int]], rows: slice, end: int) -> tuple[Tensor, Tensor]:
        """Process the prompts of ``rows``, all ending at ``end``; logits after them and their states."""
        width = max(map(len, prompts))
        self._look(rows, end - width, end - width)
        ids = torch.tensor([[0] * (width - len(row)) + row for row in prompts], device=self.device)
        mask = self._mask[rows, end - width :]
        logits = self._pass(ids, (mask.cumsum(1) - 1).clamp_min(0), mask)
        return logits, ids if self.states is None else self.states

    def _look(self, rows: slice, first: int, cursor: int) -> None:
        """Go on with ``rows`` at ``cursor``, seeing the cache from ``first`` on."""
        for layer in self._layers:
            layer.look(rows, first, cursor)

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row [rows] and return the logits after it [rows, V]."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], 1)
        return self._pass(tokens[:, None], self._mask.sum(1, keepdim=True) - 1, self._mask)

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows of the batch only."""
        self._mask = self._mask[rows]
        for layer in self._layers:
            layer.keep(rows)

    def _pass(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        with hidden_states(self._tapped) as found:
            output = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        self.states = torch.cat(found, -1) if found else None
        return output.logits[:, -1]


class _BatchedLayer(CacheLayerMixin):
    """One layer's keys and values for a batch, in buffers that only ever grow."""

    is_sliding = False
    keys: Tensor  # both are there once ``is_initialized``
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._size = self._capacity = self._first = self._cursor = 0
        self._rows = slice(0, 0)

    def begin(self, rows: int, capacity: int) -> None:
        """Make sure that so many rows and positions fit."""
        capacity = -(-capacity // VISIBLE_STEP) * VISIBLE_STEP
        if self.is_initialized and (rows > self.keys.shape[0] or capacity > self.keys.shape[2]):
            self.is_initialized = False
        self._size, self._capacity = rows, capacity

    def look(self, rows: slice, first: int, cursor: int) -> None:
        """Write for these rows from ``cursor`` on, and show what they hold from ``first`` on."""
        self._rows, self._first, self._cursor = rows, first, cursor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate. Keys are float32 on a CPU, whose bf16 products of few rows are slower."""
        shape = (self._size, key_states.shape[1], self._capacity, key_states.shape[-1])
        on_cpu = key_states.device.type == "cpu"
        self.keys = key_states.new_zeros(shape, dtype=torch.float32 if on_cpu else None)
        self.values = value_states.new_zeros(shape)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Append, and return the filled part."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        seen = self._first + self.get_mask_sizes(key_states.shape[-2])[0]
        end = self._cursor + key_states.shape[-2]
        self.keys[self._rows, :, self._cursor : end] = key_states
        self.values[self._rows, :, self._cursor : end] = value_states
        self._cursor = end
        return self.keys[self._rows, :, self._first : seen], self.values[self._rows, :, self._first : seen]

    def keep(self, rows: Tensor) -> None:
        """Move ``rows`` to the front."""
        self._rows = slice(0, len(rows))
        for buffer in (self.keys, self.values):
            buffer[: len(rows), :, : self._cursor] = buffer[rows, :, : self._cursor]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what attention will see."""
        filled = self._cursor + query_length
        return min(self._capacity, -(-filled // VISIBLE_STEP) * VISIBLE_STEP) - self._first, 0

    def get_seq_length(self) -> int:
        """Positions held, of those shown."""
        return self._cursor - self._first

    def get_max_length(self) -> int:
        """Positions the buffers can hold."""
        return self._capacity


def batched_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Plain attention over a large batch, query heads folded into rows of their key/value head.

    Two matrix products in the types of the cache; on a CPU that beats the fused kernel, which is made
    for long queries. Shapes as in ``attention.grouped_attention``.
    """
    batch, heads, n, width = query.shape
    kv_heads = key.shape[1]
    rows = query.reshape(batch, kv_heads, heads // kv_heads, n, width).flatten(2, 3)
    scores = (rows.to(key.dtype) @ key.transpose(-1, -2)) * (scaling or width**-0.5)
    mask = attention_mask[:, :, None].expand(-1, -1, heads // kv_heads, -1, -1).flatten(2, 3)
    weights = (scores + mask).softmax(-1).to(value.dtype)
    return (weights @ value).reshape(batch, heads, n, -1).transpose(1, 2), None


AttentionInterface.register(BATCHED_ATTENTION, batched_attention)
AttentionMaskInterface.register(BATCHED_ATTENTION, partial(additive_mask, hidden=HIDDEN))
