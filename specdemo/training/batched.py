"""Decoding of many prompts at once, for writing training text, where only throughput matters."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specdemo.asset_paths import BUILT_IN
from specdemo.models.attention import additive_mask
from specdemo.models.execution import CACHE
from specdemo.models.layer_views import decoder_layers, hidden_states, vocabulary_of
from specdemo.pairs.builtin_target import builtin_target, printing
from specdemo.pairs.hardware import played, precision_for, processor_flags
from specdemo.pairs.hub import fetch_checkpoint
from specdemo.pairs.model_loader import DTYPES, load_causal_lm
from specdemo.records.limits import UserError

BATCHED_ATTENTION = "specdemo_batched"
HIDDEN = -30_000.0  # added to masked scores; finite, so that a row of padding does not become NaN
PROMPT_ROWS = 32  # prompts that are read in one pass
# Attention reads the filled cache, rounded up to a multiple of this, so shapes seldom change.
VISIBLE_STEP = 32


def batch_precision(device: torch.device) -> str:
    """Return the precision in which passes over many rows are fastest on ``device``.

    Arithmetic, not memory, limits the speed of a large batch, so bf16 needs a processor with AVX-512 BF16.
    """
    if device.type != "cpu":
        return precision_for(device)
    return "bf16" if "avx512_bf16" in processor_flags() and not played() else "fp32"


def target_folder(target: str) -> str:
    """Return the folder of ``target``; fetch its files if they are not on this machine."""
    if target == BUILT_IN:
        return str(builtin_target(printing()))
    return str(fetch_checkpoint(target, progress=printing()).folder)


def load_target(folder: str, device: torch.device, precision: str = "bf16") -> PreTrainedModel:
    model: Any = load_causal_lm(folder, dtype=DTYPES[precision])
    return model.to(device).eval()


class BatchedDecoder:
    """A model with a cache for one batch at a time; the next batch reuses the buffers.

    Rows are padded on the left to the same width. Rows that have ended can be dropped. The constructor
    changes the model's attention implementation. ``states`` has the hidden states of the last pass after each
    layer in ``taps``, concatenated, [rows, positions, taps · d].
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
        """Read the prompts, reserve room for ``new_tokens`` per row, and return the next logits [rows, V].

        The prompts are read in parts, each padded only to its longest prompt, so sort them by length.
        """
        rows_of_ids = [torch.tensor(row, device=self.device) for row in prompts]
        ids = pad_sequence(rows_of_ids, batch_first=True, padding_side="left")
        ones = [torch.ones_like(row) for row in rows_of_ids]
        self._mask = pad_sequence(ones, batch_first=True, padding_side="left")
        width = ids.shape[1]
        if int(ids.max()) >= vocabulary_of(self._model):
            raise UserError(
                "A prompt contains a token for which the target has no embedding; choose another target."
            )
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
        """Append ``tokens`` [rows], one per row, and return the logits after them [rows, V]."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], 1)
        return self._pass(tokens[:, None], self._mask.sum(1, keepdim=True) - 1, self._mask)

    def keep(self, rows: Tensor) -> None:
        """Drop all rows of the batch except ``rows``, which are indices."""
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
                use_cache=True,
                logits_to_keep=1,
                **{CACHE: self._cache},
            )
        self.states = torch.cat(found, -1) if found else None
        return output.logits[:, -1]


class SampledBatch:
    """Texts that are continued together, each at its own temperature (0 takes the most likely token).

    Attributes:
        logits: The logits of the next token for every row that is still in the decoder, [rows, V].
        active: For each row that is still in the decoder, the index of its prompt, [rows].
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
        """Choose the next token of every row; ``best`` [rows] contains the most likely tokens.

        Return a mask of the rows that had not ended before this token, and the tokens, [rows] each.
        """
        self._tokens = sample_tokens(self.logits, best, self._temperatures[self.active], self._generator)
        live = self._running[self.active]
        self.end(self.active[torch.isin(self._tokens, self._ends)])
        return live, self._tokens

    def end(self, prompts: Tensor | list[int]) -> None:
        self._running[prompts] = False

    def advance(self, shrink_at: float) -> bool:
        """Append the tokens that ``sample`` chose and return True, or return False if every text has ended.

        If the share of rows that have not ended is at most ``shrink_at``, drop the ended rows first.
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
    """Return a token per row: ``best`` [rows] at temperature 0, else sampled from logits [rows, V]."""
    tokens = best.clone()
    warm = temperatures.nonzero()[:, 0]
    if len(warm):
        # Work in place, because allocating tensors of this size takes longer than filling them.
        cumulative = logits[warm].float().div_(temperatures[warm, None])
        cumulative.sub_(cumulative.amax(-1, keepdim=True)).exp_().cumsum_(-1)
        u = torch.rand(len(warm), 1, generator=generator, device=logits.device)
        # The cumulative sums are not normalized, so u is scaled by the last one.
        drawn = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
        tokens[warm] = drawn[:, 0].clamp_max(logits.shape[-1] - 1)
    return tokens


class _BatchedLayer(CacheLayerMixin):
    """The keys and values of one layer for a batch; new buffers are made only if a batch does not fit."""

    is_sliding = False
    keys: Tensor  # undefined until ``is_initialized`` is true
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._size = self._capacity = self._first = self._cursor = 0
        self._rows = slice(0, 0)

    def begin(self, rows: int, capacity: int) -> None:
        capacity = -(-capacity // VISIBLE_STEP) * VISIBLE_STEP
        if self.is_initialized and (rows > self.keys.shape[0] or capacity > self.keys.shape[2]):
            self.is_initialized = False
        self._size, self._capacity = rows, capacity

    def view(self, rows: slice, first: int, cursor: int) -> None:
        """Set the rows of the next pass, and the first positions that it writes and that it reads."""
        self._rows, self._first, self._cursor = rows, first, cursor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        shape = (self._size, key_states.shape[1], self._capacity, key_states.shape[-1])
        on_cpu = key_states.device.type == "cpu"
        self.keys = key_states.new_zeros(shape, dtype=torch.float32 if on_cpu else None)
        self.values = value_states.new_zeros(shape)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        seen = self._first + self.get_mask_sizes(key_states.shape[-2])[0]
        end = self._cursor + key_states.shape[-2]
        self.keys[self._rows, :, self._cursor : end] = key_states
        self.values[self._rows, :, self._cursor : end] = value_states
        self._cursor = end
        return self.keys[self._rows, :, self._first : seen], self.values[self._rows, :, self._first : seen]

    def keep(self, rows: Tensor) -> None:
        self._rows = slice(0, len(rows))
        for buffer in (self.keys, self.values):
            buffer[: len(rows), :, : self._cursor] = buffer[rows, :, : self._cursor]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        filled = self._cursor + query_length
        return min(self._capacity, -(-filled // VISIBLE_STEP) * VISIBLE_STEP) - self._first, 0

    def get_seq_length(self) -> int:
        return self._cursor - self._first

    def get_max_length(self) -> int:
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
    """Compute attention over a large batch with two matrix products per key/value head.

    All query heads that share a key/value head become rows of the same product. On a CPU this is faster than
    the fused kernel, which is designed for long queries. Shapes are as in ``attention.grouped_attention``.
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
