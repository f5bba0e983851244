"""Passes of a model over a cache of fixed length, as transformers has it or as a ``FusedLlama``."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specdemo.models.fused_execution import FusedExecution, GraphedExecution, TracedExecution
from specdemo.models.fused_llama import FusedLlama, KeysAndValues
from specdemo.models.layer_views import decoder_layers, first_layers, hidden_states
from specdemo.models.reduced_draft import ReducedHeadDraft

NO_LIMIT = 2**31

WholeModel = PreTrainedModel | FusedLlama
"""A language model with its whole vocabulary, of transformers or taken over from there."""
CausalLM = WholeModel | ReducedHeadDraft
"""Any model that can be run: a whole model, or a draft made of a target's parts."""


class PlainExecution:
    """Any causal language model of transformers, as it is.

    Every pass gets the position to write at, so a rollback costs nothing; ``ModelRuntime`` adds the cursor.
    ``FusedExecution`` has the same methods.

    Args:
        model: Loaded with ``attn_implementation=attention.ATTENTION``.
    """

    def __init__(self, model: PreTrainedModel | ReducedHeadDraft):
        self._model = model
        self._last_position = readable_positions(model.config) - 1

    def open(self, capacity: int) -> "_CursorCache":
        """Return a cache of ``capacity`` positions."""
        return _CursorCache(self._model.config.get_text_config().num_hidden_layers, capacity)

    def prepare(self, cache: "_CursorCache", sizes: Iterable[int], taps: Sequence[int]) -> None:
        """Do in advance what passes over these numbers of tokens would do on first use."""

    def run(
        self, ids: Tensor, start: int, cache: "_CursorCache", rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Append ids at a position of the cache.

        Args:
            ids: Token ids, shape [n].
            start: Position of the first.
            cache: Returned by :meth:`open`.
            rows: Number of last ids to score.
            taps: Indices of layers whose output is wanted.

        Returns:
            Logits [rows, V]; the outputs of the ``taps`` side by side [n, taps · d], None without taps.
        """
        cache.cursor.length = start
        options: dict[str, Any] = {"logits_to_keep": rows or 1}
        if start + len(ids) > self._last_position + 1:
            # The target's text never reaches this far (``max_context``), only a draft that reads less than
            # its target, or a measurement. Its output may be wrong; the pass must not fail.
            places = torch.arange(start, start + len(ids), device=ids.device)
            options["position_ids"] = places.clamp_max(self._last_position)[None]
        stack = decoder_layers(self._model) if taps else []
        # The hooks exist for this pass only, because runtimes share the model.
        with hidden_states([stack[index] for index in taps]) as found:
            output = self._model(input_ids=ids[None], past_key_values=cache, use_cache=True, **options)
        # The last parts of a model in shards may be on other devices than the first.
        states = [state.to(ids.device) for state in found]
        return output.logits[0].to(ids.device), torch.cat(states, -1)[0] if states else None

    def layers(self, cache: "_CursorCache") -> list[KeysAndValues]:
        """Return the whole buffers of every layer of a cache that a pass has been made over."""
        return [(layer.keys, layer.values) for layer in cache.layers if isinstance(layer, CursorLayer)]

    def first(self, depth: int) -> "PlainExecution":
        """Return an execution of the first ``depth`` layers and the head, over caches of the whole model."""
        return PlainExecution(first_layers(self._model, depth))


Execution = PlainExecution | FusedExecution


def execution_of(model: CausalLM) -> Execution:
    """Return the way to run a model here; recordings and traces belong to the model and outlive a run."""
    if not isinstance(model, FusedLlama):
        return PlainExecution(model)
    if model.execution is None:
        recordable = model.embedding.weight.device.type == "cuda"
        model.execution = GraphedExecution(model) if recordable else TracedExecution(model)
    return model.execution


def batched_pass(model: CausalLM, texts: int, capacity: int) -> Callable[[Tensor, int], Tensor]:
    """Return a pass of ``model`` over several texts of equal length, each with its own cache.

    A pass over one text waits for the weights to be read; a batch reads them once for all texts. Its kernels
    differ from those of a single text's pass, so results differ by rounding.

    Args:
        model: As for :func:`execution_of`.
        texts: Number of texts.
        capacity: Cache length of each text.

    Returns:
        A function that appends ids [texts, n] at a position of every text and returns logits [texts, n, V].
    """
    if isinstance(model, FusedLlama):
        fused_cache = model.open(capacity, texts)

        def fused_pass(ids: Tensor, start: int) -> Tensor:
            places = fused_cache.places[start : start + ids.shape[1]]
            # Products run over all texts at once, attention text by text.
            logits, _ = model(ids.flatten(), places, fused_cache, ids.numel())
            return logits.unflatten(0, ids.shape)

        return torch.inference_mode()(fused_pass)
    cache = PlainExecution(model).open(capacity)

    def plain_pass(ids: Tensor, start: int) -> Tensor:
        cache.cursor.length = start
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits
        return logits.to(ids.device)  # the last part of a model in shards may be on another device

    return torch.inference_mode()(plain_pass)


def readable_positions(config: Any) -> int:
    """Return the number of positions a model can read without encoding the earlier ones differently."""
    config = config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(kind for kind in rope.values() if isinstance(kind, dict))):
        # Beyond this length such models encode all positions differently; cached keys keep the old encoding.
        if parameters.get("rope_type") == "longrope":
            positions = min(positions, parameters.get("original_max_position_embeddings") or positions)
    return int(positions)


class _CursorCache(Cache):
    """A transformers cache whose layers share one cursor."""

    def __init__(self, layers: int, capacity: int):
        self.cursor = _Cursor()
        super().__init__(layers=[CursorLayer(self.cursor, capacity) for _ in range(layers)])


class CursorLayer(CacheLayerMixin):
    """One layer's keys and values in a buffer of fixed length, written at the shared cursor."""

    is_sliding = False
    keys: Tensor  # both exist once ``is_initialized``
    values: Tensor

    def __init__(self, cursor: "_Cursor", capacity: int):
        super().__init__()
        self.cursor = cursor
        self._capacity = capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers in the layer's own shape, dtype and device."""
        texts, heads = key_states.shape[:2]
        self.keys = key_states.new_zeros(texts, heads, self._capacity, key_states.shape[-1])
        self.values = value_states.new_zeros(texts, heads, self._capacity, value_states.shape[-1])
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
        """Return length and offset of the buffers, from which transformers makes the mask."""
        return self._capacity, 0

    def get_seq_length(self) -> int:
        return self.cursor.length

    def get_max_length(self) -> int:
        return self._capacity


class _Cursor:
    """The number of positions of every layer's buffer that hold text."""

    def __init__(self) -> None:
        self.length = 0
