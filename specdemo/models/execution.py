"""Ways to run a model over a cache of fixed length: as transformers has it, or the short path.

The short path is recorded where the device can replay (``cuda_graphs``) and traced elsewhere (``traced``).
All take the position to write at with every pass, so that rolling back costs nothing, and all can keep
the states behind some layers or run only the first ones. ``runtime`` puts a cursor on top.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specdemo.models.cuda_graphs import GraphedExecution
from specdemo.models.fused_llama import FusedLlama, KeysAndValues
from specdemo.models.layer_views import decoder_layers, first_layers, hidden_states
from specdemo.models.reduced_draft import ReducedHeadDraft
from specdemo.models.traced import TracedExecution

NO_LIMIT = 2**31

WholeModel = PreTrainedModel | FusedLlama
"""A language model with all of its vocabulary, as transformers has it or taken over from there."""
CausalLM = WholeModel | ReducedHeadDraft
"""Whatever can be run: a whole model, or a draft made of a target's parts that cannot be taken over."""


class Execution(Protocol):
    """How a model is run: what ``ModelRuntime`` asks of it."""

    def open(self, capacity: int) -> Any:
        """A cache of ``capacity`` positions."""
        ...

    def prepare(self, cache: Any, sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Do beforehand what passes over these numbers of tokens would do on first use."""
        ...

    def run(
        self, ids: Tensor, start: int, cache: Any, rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Append ``ids`` [n] at ``start``: logits of the last ``rows`` positions, states behind ``taps``."""
        ...

    def layers(self, cache: Any) -> list[KeysAndValues]:
        """The whole buffers of every layer of a cache that a pass has been made over."""
        ...

    def first(self, depth: int) -> "Execution":
        """The first ``depth`` layers with norm and head, over caches of the whole model."""
        ...


class PlainExecution:
    """Any causal language model of transformers, as it is.

    Args:
        model: Loaded with ``attn_implementation=attention.ATTENTION``.
    """

    def __init__(self, model: PreTrainedModel | ReducedHeadDraft):
        self._model = model
        self._last_position = readable_positions(model.config) - 1

    def open(self, capacity: int) -> "_CursorCache":
        """A transformers cache of fixed length."""
        return _CursorCache(self._model.config.get_text_config().num_hidden_layers, capacity)

    def prepare(self, cache: "_CursorCache", sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Nothing to prepare."""

    def run(
        self, ids: Tensor, start: int, cache: "_CursorCache", rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """One forward pass; taps are hooks, open for this pass only since runtimes share the model."""
        cache.cursor.length = start
        options: dict[str, Any] = {"logits_to_keep": rows or 1}
        if start + len(ids) > self._last_position + 1:
            # Never text of the target (``max_context``), only a draft that reads less than its target
            # or a measurement: what it computes may be wrong, it may not fail.
            places = torch.arange(start, start + len(ids), device=ids.device)
            options["position_ids"] = places.clamp_max(self._last_position)[None]
        stack = decoder_layers(self._model) if taps else []
        with hidden_states([stack[index] for index in taps]) as found:
            output = self._model(input_ids=ids[None], past_key_values=cache, use_cache=True, **options)
        # Of a model in parts the last ones may be on other devices than the first.
        states = [state.to(ids.device) for state in found]
        return output.logits[0].to(ids.device), torch.cat(states, -1)[0] if states else None

    def layers(self, cache: "_CursorCache") -> list[KeysAndValues]:
        """What transformers' passes wrote."""
        return [(layer.keys, layer.values) for layer in cache.layers if isinstance(layer, CursorLayer)]

    def first(self, depth: int) -> "PlainExecution":
        """The first layers, by a view of the model that shares them."""
        return PlainExecution(first_layers(self._model, depth))


def execution_of(model: CausalLM) -> Execution:
    """The way to run a model here; recordings and traces belong to the model and outlive a run."""
    if not isinstance(model, FusedLlama):
        return PlainExecution(model)
    if model.embedding.weight.device.type != "cuda":
        if model.traced is None:
            model.traced = TracedExecution(model)
        return model.traced
    if model.recorded is None:
        model.recorded = GraphedExecution(model)
    return model.recorded


def readable_positions(config: Any) -> int:
    """Positions a model can read without changing how it encodes the earlier ones."""
    config = config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(kind for kind in rope.values() if isinstance(kind, dict))):
        # A text that outgrows this length has *all* its positions encoded anew, cached keys do not.
        if parameters.get("rope_type") == "longrope":
            positions = min(positions, parameters.get("original_max_position_embeddings") or positions)
    return int(positions)


class _CursorCache(Cache):
    """A cache of layers with one cursor."""

    def __init__(self, layers: int, capacity: int):
        self.cursor = _Cursor()
        super().__init__(layers=[CursorLayer(self.cursor, capacity) for _ in range(layers)])


class CursorLayer(CacheLayerMixin):
    """One layer's keys and values in a fixed buffer, written at a cursor shared by all layers."""

    is_sliding = False
    keys: Tensor  # both are there once ``is_initialized``
    values: Tensor

    def __init__(self, cursor: "_Cursor", capacity: int):
        super().__init__()
        self.cursor = cursor
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
        start = self.cursor.length
        end = start + key_states.shape[-2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the buffers, from which transformers makes the mask."""
        return self._capacity, 0

    def get_seq_length(self) -> int:
        """Positions held."""
        return self.cursor.length

    def get_max_length(self) -> int:
        """Positions the buffers can hold."""
        return self._capacity


class _Cursor:
    """The one number that says how much of every layer's buffer is text."""

    def __init__(self) -> None:
        self.length = 0
