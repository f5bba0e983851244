"""A target that decodes many prompts at once, for writing text, where only throughput counts.

Unlike in ``models.runtime`` nothing here has to be identical to the bit from pass to pass.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specdemo.models.attention import additive_mask
from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.models.packed_linear import DTYPES, pack_linears
from specdemo.pairs.embedded import embedded_target, printing
from specdemo.pairs.hardware import played, precision_for, processor_flags
from specdemo.pairs.model_loader import loading, takes_precision
from specdemo.shipped import EMBEDDED

BATCHED_ATTENTION = "specdemo_batched"
HIDDEN = -30_000.0
"""Added to masked scores: finite, since a row of padding only must not become NaN."""
PROMPT_ROWS = 32
"""Prompts that are read in one pass."""
VISIBLE_STEP = 32
"""Attention reads the filled part of the cache, rounded up to this, so that shapes seldom change."""


def batch_precision(device: torch.device) -> str:
    """Return the precision in which many rows are fastest on ``device``.

    Arithmetic limits a large batch, not memory. So bf16 is fastest on a processor with AVX-512 BF16, which is
    not so for one row. On other devices the rule of ``hardware.precision_for`` holds.
    """
    if device.type == "cpu" and "avx512_bf16" in processor_flags() and not played():
        return "bf16"
    return precision_for(device)[0]


def target_folder(target: str) -> str:
    """Return the folder or hub id of ``target``, and prepare the embedded target if it is the one."""
    return str(embedded_target(printing())) if target == EMBEDDED else target


def load_target(folder: str, device: torch.device, precision: str = "bf16") -> PreTrainedModel:
    """Load a target; raise ``UserError`` if it cannot be loaded."""
    model = loading(AutoModelForCausalLM.from_pretrained, folder, dtype=DTYPES[precision])
    return model.to(device).eval()


def pack_target(model: PreTrainedModel, device: torch.device, precision: str) -> PreTrainedModel:
    """Pack a target for fast passes on a CPU, in fp32 if its layers cannot be packed in ``precision``."""
    if device.type != "cpu" or precision == "bf16":
        return model
    packed = precision if takes_precision(model, precision) else "fp32"
    return pack_linears(model, packed, packed)


class BatchedDecoder:
    """A model and its cache for one batch at a time; the buffers are reused for the next batch.

    Rows are padded on the left to one width. Rows that have ended can be dropped.

    Args:
        model: Any causal language model of transformers; its attention implementation is set here.
        taps: Layers whose output is kept in ``states``.

    Attributes:
        states: The hidden states of the last pass after each tapped layer, side by side,
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

    def begin(self, prompts: list[list[int]], new_tokens: int) -> Tensor:
        """Read the prompts, reserve room for ``new_tokens`` more each, and return the next logits [rows, V].

        The prompts are read a few at a time, each part as wide as its longest prompt, so that sorted prompts
        need little padding.
        """
        rows_of_ids = [torch.tensor(row, device=self.device) for row in prompts]
        ids = pad_sequence(rows_of_ids, batch_first=True, padding_side="left")
        ones = [torch.ones_like(row) for row in rows_of_ids]
        self._mask = pad_sequence(ones, batch_first=True, padding_side="left")
        width = ids.shape[1]
        for layer in self._layers:
            layer.begin(len(prompts), width + new_tokens)
        logits, states = [], []
        for start in range(0, len(prompts), PROMPT_ROWS):
            rows = slice(start, start + PROMPT_ROWS)
            first = width - max(map(len, prompts[rows]))
            self._view(slice(start, min(start + PROMPT_ROWS, len(prompts))), first, first)
            part = self._mask[rows, first:]
            logits.append(self._pass(ids[rows, first:], (part.cumsum(1) - 1).clamp_min(0), part))
            if self.states is not None:
                states.append(F.pad(self.states, (0, 0, first, 0)))
        self._view(slice(0, len(prompts)), 0, width)
        self.states = torch.cat(states) if states else None
        return torch.cat(logits)

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token per row [rows] and return the logits after it [rows, V]."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], 1)
        return self._pass(tokens[:, None], self._mask.sum(1, keepdim=True) - 1, self._mask)

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows of the batch only."""
        self._mask = self._mask[rows]
        for layer in self._layers:
            layer.keep(rows)

    def _view(self, rows: slice, first: int, cursor: int) -> None:
        for layer in self._layers:
            layer.view(rows, first, cursor)

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


class SampledBatch:
    """Texts that are continued together, each at its own temperature.

    Args:
        decoder: Begins with ``prompts`` here.
        prompts: Token ids.
        limit: Maximum number of tokens per row.
        temperatures: One per row; 0 takes the most probable token.
        eos_ids: Tokens that end a row.
        generator: The source of the samples.

    Attributes:
        logits: The scores of the next token of every row that is still in the decoder, [rows, V].
        active: The index of the prompt of each of these rows, [rows].
    """

    def __init__(
        self,
        decoder: BatchedDecoder,
        prompts: list[list[int]],
        limit: int,
        temperatures: Sequence[float],
        eos_ids: frozenset[int],
        generator: torch.Generator,
    ):
        device = decoder.device
        self._decoder, self._generator = decoder, generator
        self._temperatures = torch.tensor(temperatures, device=device)
        self._ends = torch.tensor(sorted(eos_ids), device=device)
        self._running = torch.ones(len(prompts), dtype=torch.bool, device=device)
        self._tokens = torch.empty(0, device=device)
        self.active = torch.arange(len(prompts), device=device)
        self.logits = decoder.begin(prompts, limit)

    def sample(self, best: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the next token of every row; ``best`` [rows] are the most probable ones.

        Returns:
            Whether each row had not ended before, and the tokens, [rows] each.
        """
        self._tokens = sample_tokens(self.logits, best, self._temperatures[self.active], self._generator)
        live = self._running[self.active]
        self.end(self.active[torch.isin(self._tokens, self._ends)])
        return live, self._tokens

    def end(self, prompts: Tensor | list[int]) -> None:
        """End the texts of these prompts."""
        self._running[prompts] = False

    def advance(self, shrink_at: float) -> bool:
        """Append the chosen tokens and return True, or return False if every text has ended.

        Rows that have ended are dropped once the share of rows that go on is ``shrink_at`` or less.
        """
        left = self._running[self.active]
        if not left.any():
            return False
        if left.sum() <= shrink_at * len(self.active):
            rows = left.nonzero()[:, 0]
            self.active, self._tokens = self.active[rows], self._tokens[rows]
            self._decoder.keep(rows)
        self.logits = self._decoder.step(self._tokens)
        return True


def sample_tokens(logits: Tensor, best: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """Return ``best`` where the temperature is 0, and a sample elsewhere; all [rows], logits [rows, V]."""
    tokens = best.clone()
    warm = temperatures.nonzero()[:, 0]
    if len(warm):
        # In place: allocating tensors of this size takes longer than filling them.
        cumulative = logits[warm].float().div_(temperatures[warm, None])
        cumulative.sub_(cumulative.amax(-1, keepdim=True)).exp_().cumsum_(-1)
        u = torch.rand(len(warm), 1, generator=generator, device=logits.device)
        # Scaled by the last entry, since these are not normalized.
        drawn = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
        tokens[warm] = drawn[:, 0].clamp_max(logits.shape[-1] - 1)
    return tokens


class _BatchedLayer(CacheLayerMixin):
    """The keys and values of one layer for a batch, in buffers that only grow."""

    is_sliding = False
    keys: Tensor  # set once ``is_initialized``
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._size = self._capacity = self._first = self._cursor = 0
        self._rows = slice(0, 0)

    def begin(self, rows: int, capacity: int) -> None:
        """Reserve room for ``rows`` rows and ``capacity`` positions."""
        capacity = -(-capacity // VISIBLE_STEP) * VISIBLE_STEP
        if self.is_initialized and (rows > self.keys.shape[0] or capacity > self.keys.shape[2]):
            self.is_initialized = False
        self._size, self._capacity = rows, capacity

    def view(self, rows: slice, first: int, cursor: int) -> None:
        """Write the next positions of ``rows`` from ``cursor`` on, and read their cache from ``first`` on."""
        self._rows, self._first, self._cursor = rows, first, cursor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers. Keys are fp32 on a CPU, where bf16 products of few rows are slower."""
        shape = (self._size, key_states.shape[1], self._capacity, key_states.shape[-1])
        on_cpu = key_states.device.type == "cpu"
        self.keys = key_states.new_zeros(shape, dtype=torch.float32 if on_cpu else None)
        self.values = value_states.new_zeros(shape)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return the filled part."""
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
        """Return the length and the offset of the part that attention reads."""
        filled = self._cursor + query_length
        return min(self._capacity, -(-filled // VISIBLE_STEP) * VISIBLE_STEP) - self._first, 0

    def get_seq_length(self) -> int:
        """Return the number of filled positions of the part that is read."""
        return self._cursor - self._first

    def get_max_length(self) -> int:
        """Return the number of positions that fit."""
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
    """Compute attention over a large batch, with query heads folded into rows of their key/value head.

    These are two matrix products in the types of the cache. On a CPU they are faster than the fused kernel,
    which is made for long queries. Shapes as in ``attention.grouped_attention``.
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
