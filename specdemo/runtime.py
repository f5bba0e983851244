"""One model and its key/value cache, behind ``forward(ids)`` and ``rollback(length)``.

Same tokens by construction: a target pass over k+1 positions must give, bit for bit, the logits
that k+1 single passes give, or greedy speculation would now and then leave the baseline. Two things
change a row's bits on CPU in bf16 and both are removed here:

* attention over a growing key length, or over few query rows. The cache is therefore one static
  padded length for the whole run (rollback moves a cursor, it copies nothing), and
  ``attention.grouped_attention`` folds the query heads of a key/value head into rows;
* matrix products of a single row take another kernel than those of several. Every pass is padded
  to a *row floor*, found by ``calibrate.find_row_floor``.

This module knows nothing of drafting, sampling or text.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from specdemo.layers import decoder_layers, first_layers, hidden_states

CAPACITY_STEP = 256
"""Cache lengths are multiples of this, so that few distinct shapes are ever in use."""
NO_LIMIT = 2**31


class Runtime(Protocol):
    """What the engine needs of a model. ``length`` counts the positions held in the cache."""

    length: int
    device: torch.device
    id_map: Tensor | None
    max_context: int

    def begin(self, capacity: int) -> None:
        """Empty the cache and make room for ``capacity`` positions."""

    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n] and return the logits after each, shape [n, V]."""

    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n] without computing logits."""

    def rollback(self, length: int) -> None:
        """Forget every position from ``length`` on."""


class _CursorLayer(CacheLayerMixin):
    """One layer's keys and values in a fixed buffer, written at a cursor shared by all layers."""

    is_sliding = False

    def __init__(self, cursor: "_Cursor", capacity: int):
        super().__init__()
        self._cursor = cursor
        self._capacity = capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers in the layer's own shape, dtype and device."""
        heads = key_states.shape[1]
        self.keys = key_states.new_zeros(1, heads, self._capacity, key_states.shape[-1])
        self.values = value_states.new_zeros(1, heads, self._capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Write at the cursor and return the whole padded buffers."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self._cursor.length
        end = start + key_states.shape[-2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the buffers, from which transformers makes the mask."""
        return self._capacity, 0

    def get_seq_length(self) -> int:
        """Positions held."""
        return self._cursor.length

    def get_max_length(self) -> int:
        """Positions the buffers can hold."""
        return self._capacity


class _Cursor:
    """The one number that says how much of every layer's buffer is text."""

    def __init__(self) -> None:
        self.length = 0


class ModelRuntime:
    """Any transformers causal language model, run eagerly over a static cache.

    Args:
        model: The model, already on its device, loaded with ``attn_implementation=attention.ATTENTION``.
        row_floor: Least number of rows per pass (see the module docstring).
        id_map: Target id of each output row, shape [H], for a draft whose head is reduced.
    """

    def __init__(self, model: nn.Module, row_floor: int = 1, id_map: Tensor | None = None):
        self.model = model
        self.row_floor = row_floor
        self.id_map = id_map
        self.device = next(model.parameters()).device
        self._positions = _readable_positions(model.config.get_text_config())
        # Rows added to reach the floor need positions of their own behind the text.
        self.max_context = self._positions - (row_floor - 1)
        self._cursor = _Cursor()
        self._cache: Cache | None = None
        self._capacity = 0

    @property
    def length(self) -> int:
        """Positions held in the cache."""
        return self._cursor.length

    @torch.inference_mode()
    def begin(self, capacity: int) -> None:
        """Empty the cache; buffers are kept from run to run and replaced only by another capacity."""
        self._cursor.length = 0
        if capacity != self._capacity or self._cache is None:
            layers = self.model.config.get_text_config().num_hidden_layers
            self._cache = Cache(layers=[_CursorLayer(self._cursor, capacity) for _ in range(layers)])
            self._capacity = capacity

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Append ``ids`` [n], return logits [n, V]. Rows added to reach the floor are not kept."""
        count = len(ids)
        padded = F.pad(ids, (0, max(0, self.row_floor - count)))
        output = self._pass(padded, 0)
        self._cursor.length += count
        return output.logits[0, :count]

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> None:
        """Append ``ids`` [n]; only the last position's logits are computed, and dropped."""
        if len(ids):
            self._pass(ids, 1)
            self._cursor.length += len(ids)

    def rollback(self, length: int) -> None:
        """Move the cursor back; the positions behind it are overwritten by the next pass."""
        if not 0 <= length <= self._cursor.length:
            raise ValueError(f"cannot roll back from {self._cursor.length} to {length} positions")
        self._cursor.length = length

    def _pass(self, ids: Tensor, logits_to_keep: int) -> CausalLMOutputWithPast:
        end, options = self._cursor.length + len(ids), {}
        if end > self._positions:
            # Never text of the target (``max_context``), only a draft that reads less than its target
            # or a measurement: what it computes may be wrong, it may not fail.
            places = torch.arange(self._cursor.length, end, device=self.device)
            options["position_ids"] = places.clamp_max(self._positions - 1)[None]
        if logits_to_keep:
            options["logits_to_keep"] = logits_to_keep
        return self.model(input_ids=ids[None], past_key_values=self._cache, use_cache=True, **options)


class ExitRuntime(ModelRuntime):
    """The first layers of another runtime's model with its head, over that runtime's own cache.

    What it appends is a draft's: roll back before the host goes on, whose pass writes it again.
    """

    def __init__(self, host: ModelRuntime, depth: int):
        super().__init__(first_layers(host.model, depth))
        self._host = host
        self._cursor = host._cursor

    def begin(self, capacity: int) -> None:
        """Look at the host's cache as it is now."""
        self._cache = self._host._cache


class TappedRuntime(ModelRuntime):
    """A runtime that keeps the hidden states behind some of its layers, for a draft to read.

    Args:
        model, row_floor: As for ``ModelRuntime``.
        taps: Indices of the layers whose output is kept.
    """

    def __init__(self, model: nn.Module, row_floor: int, taps: Sequence[int]):
        super().__init__(model, row_floor)
        layers = decoder_layers(model)
        self._tapped = [layers[index] for index in taps]
        self._features: Tensor | None = None

    def features(self, start: int, end: int) -> Tensor:
        """Hidden states of positions ``start`` to ``end``, layers side by side: [end - start, taps · d]."""
        return self._features[start:end]

    def begin(self, capacity: int) -> None:
        """Empty the cache and the features."""
        super().begin(capacity)
        width = len(self._tapped) * self.model.config.get_text_config().hidden_size
        if self._features is None or len(self._features) != capacity:
            weight = next(self.model.parameters())
            self._features = weight.new_empty(capacity, width)

    def _pass(self, ids: Tensor, logits_to_keep: int) -> CausalLMOutputWithPast:
        """One pass with the taps open. Other runtimes may share the model, so hooks do not outlive it."""
        start = self._cursor.length
        with hidden_states(self._tapped) as found:
            output = super()._pass(ids, logits_to_keep)
        self._features[start : start + len(ids)] = torch.cat(found, -1)[0]
        return output


def _readable_positions(config: Any) -> int:
    """Positions a model can read without changing how it encodes the earlier ones."""
    positions = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(kind for kind in rope.values() if isinstance(kind, dict))):
        # A text that outgrows this length has *all* its positions encoded anew, cached keys do not.
        if parameters.get("rope_type") == "longrope":
            positions = min(positions, parameters.get("original_max_position_embeddings") or positions)
    return int(positions)


def capacity_for(positions: int) -> int:
    """The cache length for a run of ``positions`` tokens: the next multiple of ``CAPACITY_STEP``."""
    return -(-positions // CAPACITY_STEP) * CAPACITY_STEP


class Stopwatch:
    """Split a round into named laps. On CUDA by events, so that nothing is synchronised to be timed."""

    def __init__(self, device: torch.device):
        self._cuda = device.type == "cuda"
        self._marks = [self._now()]

    def lap(self) -> None:
        """End one lap and begin the next."""
        self._marks.append(self._now())

    def laps(self) -> list[float]:
        """Seconds of each finished lap; call after the round's transfer, which has synchronised."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self._cuda:
            self._marks[-1].synchronize()
            return [start.elapsed_time(end) / 1000 for start, end in pairs]
        return [end - start for start, end in pairs]

    def _now(self):
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
