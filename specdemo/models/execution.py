"""Passes of a model over a cache of fixed length, in each of its forms."""

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

import torch
from torch import Tensor
from transformers import LlamaModel, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specdemo.models.fused_execution import FusedExecution
from specdemo.models.fused_llama import FusedLlama, KeysAndValues
from specdemo.models.gpu.choice import kernels_for
from specdemo.models.layer_views import decoder_layers, first_layers, hidden_states
from specdemo.models.reduced_draft import ReducedHeadDraft
from specdemo.records.limits import UserError

if TYPE_CHECKING:  # numba takes half a second to import
    from specdemo.models.compiled.llama import CompiledExecution, CompiledLlama

NO_LIMIT = 2**31
# The name of the argument that takes the cache; transformers renamed it in 5.24 for all models.
CACHE = "cache" if "cache" in inspect.signature(LlamaModel.forward).parameters else "past_key_values"

WholeModel: TypeAlias = Union[PreTrainedModel, FusedLlama, "CompiledLlama"]  # has the full vocabulary
CausalLM: TypeAlias = WholeModel | ReducedHeadDraft


class PlainExecution:
    """Runs passes of a causal language model of transformers, loaded with ``attention.ATTENTION``.

    ``ModelRuntime`` keeps track of the position at which each pass writes to the cache, so a rollback costs
    nothing. ``FusedExecution`` and ``CompiledExecution`` have the same methods.
    """

    def __init__(self, model: PreTrainedModel | ReducedHeadDraft):
        self._model = model
        self._last_position = readable_positions(model.config) - 1

    def open(self, capacity: int) -> "_CursorCache":
        return _CursorCache(self._model.config.get_text_config().num_hidden_layers, capacity)

    def run(
        self, ids: Tensor, start: int, cache: "_CursorCache", rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Run a pass over ``ids`` [n] from position ``start`` on, and write to the cache.

        Returns:
            Logits [rows, V] of the last ``rows`` ids (for 0 rows, they are not meaningful), and the outputs
            of the layers in ``taps``, concatenated, [n, taps · d]; None instead of the outputs if ``taps`` is
            empty.
        """
        cache.cursor.length = start
        options: dict[str, Any] = {CACHE: cache, "logits_to_keep": rows or 1}
        if start + len(ids) > self._last_position + 1:
            # This happens only in measurements, and in drafts whose context is shorter than the target's
            # (the target's own text respects ``max_context``). The output may be wrong, but the pass must not
            # fail.
            positions = torch.arange(start, start + len(ids), device=ids.device)
            options["position_ids"] = positions.clamp_max(self._last_position)[None]
        stack = decoder_layers(self._model) if taps else []
        # The hooks exist only during this pass, because other runtimes share the model.
        with hidden_states([stack[index] for index in taps]) as found:
            output = self._model(input_ids=ids[None], use_cache=True, **options)
        # If the model is spread over several devices, its last layers may be on another device than ``ids``.
        states = [state.to(ids.device) for state in found]
        return output.logits[0].to(ids.device), torch.cat(states, -1)[0] if states else None

    def batch(self, texts: int, capacity: int) -> Callable[[Tensor, int], Tensor]:
        """Return a function that runs passes over several texts of equal length.

        It maps ids [texts, n] and the position of the first id in every text to logits [texts, n, V]. A batch
        reads the weights once for all texts; that takes most of the time of a pass over one text. Batches may
        use different kernels than single texts, so results may differ by rounding.
        """
        cache = self.open(capacity)

        def run(ids: Tensor, start: int) -> Tensor:
            cache.cursor.length = start
            logits = self._model(input_ids=ids, use_cache=True, **{CACHE: cache}).logits
            return logits.to(ids.device)  # the head of a model on several devices may be on another one

        return torch.inference_mode()(run)

    def cut(self, cache: "_CursorCache", end: int) -> "_CursorCache":
        """Make the next passes over ``cache`` read only its first ``end`` positions, and return it."""
        cache.cursor.end = end
        return cache

    def layers(self, cache: "_CursorCache") -> list[KeysAndValues]:
        """Return the keys and values of every layer. They exist after the first pass."""
        return [(layer.keys, layer.values) for layer in cache.layers if isinstance(layer, CursorLayer)]

    @torch.inference_mode()
    def first(self, depth: int) -> "PlainExecution":
        """Return an execution of the first ``depth`` layers and the head, for caches of the full model."""
        view = first_layers(self._model, depth)
        token = torch.zeros(1, 1, dtype=torch.long, device=next(view.parameters()).device)
        try:
            view(input_ids=token, use_cache=False)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise UserError(
                f"The first layers of {type(self._model).__name__} do not run without the others; choose "
                "another drafter or target."
            ) from error
        return PlainExecution(view)


Execution: TypeAlias = Union[PlainExecution, FusedExecution, "CompiledExecution"]


def execution_of(model: CausalLM) -> Execution:
    """Return the execution for a model on its device. A model that is not plain keeps it for all runs."""
    kept: Execution | None = getattr(model, "execution", None)
    if kept is not None:
        return kept
    if not isinstance(model, FusedLlama):
        return PlainExecution(cast(PreTrainedModel, model))
    if model.embedding.weight.device.type != "cuda":
        model.execution = FusedExecution(model)
    elif isinstance(found := kernels_for(model), str):
        model.execution = FusedExecution(model, f"no Triton kernels: {found}")
    else:
        model.execution = found
    return model.execution


def readable_positions(config: Any) -> int:
    """Return the maximum context length at which a model does not change how it encodes earlier positions."""
    config = config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or NO_LIMIT
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(kind for kind in rope.values() if isinstance(kind, dict))):
        # In longer texts, such models encode all positions differently; cached keys keep the old encoding.
        if parameters.get("rope_type") == "longrope":
            positions = min(positions, parameters.get("original_max_position_embeddings") or positions)
    return int(positions)


class _CursorCache(Cache):
    """A transformers cache of fixed length. All layers write at the position of one shared cursor."""

    def __init__(self, layers: int, capacity: int):
        self.cursor = _Cursor()
        super().__init__(layers=[CursorLayer(self.cursor, capacity) for _ in range(layers)])


class CursorLayer(CacheLayerMixin):
    """The keys and values of one layer, in buffers of fixed length. Passes write at the shared cursor."""

    is_sliding = False
    keys: Tensor  # both exist once ``is_initialized``
    values: Tensor

    def __init__(self, cursor: "_Cursor", capacity: int):
        super().__init__()
        self.cursor = cursor
        self._capacity = capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        texts, heads = key_states.shape[:2]
        self.keys = key_states.new_zeros(texts, heads, self._capacity, key_states.shape[-1])
        self.values = value_states.new_zeros(texts, heads, self._capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.cursor.length
        end = start + key_states.shape[-2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, : self.cursor.end], self.values[:, :, : self.cursor.end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cursor.end or self._capacity, 0  # length and offset of the buffers

    def get_seq_length(self) -> int:
        return self.cursor.length

    def get_max_length(self) -> int:
        return self._capacity


class _Cursor:
    """The state of a cache that all layers share."""

    def __init__(self) -> None:
        self.length = 0  # number of positions in use
        # Number of positions that passes read, unused ones included; None for all.
        self.end: int | None = None
