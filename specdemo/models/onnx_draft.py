"""Drafts on an x86 CPU, with a whole step as one call of ONNX Runtime (``onnx_graph``)."""

import importlib.util
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_llama import KeysAndValues, can_fuse
from specdemo.models.packed_linear import pack_linears
from specdemo.models.reduced_draft import ReducedHeadDraft

if TYPE_CHECKING:
    from specdemo.models.onnx_graph import StepGraph

GRAPH_PRECISION = "int8"
LONGEST_KEPT = 16
"""Buffers of longer passes, such as a prompt's, are not kept."""
CHECKED_TOKENS = 8
TOP = 5
"""Number of the most probable tokens whose logits are checked at each position."""
MAX_ERROR = 0.3
"""Maximum error of a checked logit, as a share of the standard deviation of the logits."""
FUSION_PRECISION = "fp16"
"""Precision of a feature draft's fusion of the target's states, which is not part of the step."""
KINDS = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32}


def runs_graphs(device: torch.device) -> bool:
    """Return whether drafts on ``device`` run as ONNX graphs: on x86 CPUs, if the packages are installed."""
    installed = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))
    return installed and device.type == "cpu" and platform.machine().lower() in ("x86_64", "amd64")


@dataclass(eq=False)
class OnnxCache:
    """Keys and values of all layers, which the graph writes in place, and the bound buffers of passes.

    Attributes:
        keys, values: One tensor for each layer, shape [texts, kv_heads, capacity, head_dim].
        passes: Bound buffers by number of tokens and of scored rows.
    """

    keys: list[Tensor]
    values: list[Tensor]
    passes: dict[tuple[int, int], "_Pass"] = field(default_factory=dict)


class _Pass:
    """The inputs and outputs of passes over n tokens with some scored rows, bound to the session once."""

    def __init__(self, graph: "StepGraph", cache: OnnxCache, n: int, rows: int):
        texts = len(cache.keys[0])
        self.states = [torch.zeros(texts, n, graph.width) for _ in graph.inputs]
        self.past = torch.zeros(texts, dtype=torch.int32)
        self.total = torch.zeros((), dtype=torch.int32)
        self.logits = torch.zeros(texts, rows, graph.vocab)
        self.output = torch.zeros(texts, 1, graph.width)
        self._first = torch.tensor([n - rows])
        inputs = dict(zip(graph.inputs, self.states, strict=True))
        inputs |= {"past": self.past, "total": self.total, "first": self._first}
        outputs = {"logits": self.logits, "output": self.output}
        for kind, layers in (("keys", cache.keys), ("values", cache.values)):
            for index, tensor in enumerate(layers):
                inputs[f"{kind}{index}"] = outputs[f"new_{kind}{index}"] = tensor
        self.binding = graph.session.io_binding()
        for name, tensor in inputs.items():
            self.binding.bind_input(name, *_memory(tensor))
        for name, tensor in outputs.items():
            self.binding.bind_output(name, *_memory(tensor))


class OnnxStep:
    """Passes over one draft's graph."""

    def __init__(self, graph: "StepGraph"):
        self._graph = graph

    def open(self, capacity: int, texts: int = 1) -> OnnxCache:
        """Return an empty cache of ``capacity`` positions for each text."""
        graph = self._graph
        shape = texts, graph.kv_heads, capacity, graph.head_dim
        return OnnxCache(
            [torch.zeros(shape) for _ in range(graph.layers)],
            [torch.zeros(shape) for _ in range(graph.layers)],
        )

    def prepare(self, cache: OnnxCache, n: int, rows: int) -> _Pass:
        """Return the buffers of a pass over n tokens; they are bound on first use."""
        if (n, rows) not in cache.passes:
            cache.passes[n, rows] = _Pass(self._graph, cache, n, rows)
        return cache.passes[n, rows]

    def run(self, cache: OnnxCache, start: int, rows: int, *states: Tensor) -> tuple[Tensor, Tensor]:
        """Append n positions to each text.

        Args:
            cache: A cache from :meth:`open`.
            start: The first position.
            rows: Number of last positions to score, at least 1.
            states: One tensor [texts, n, d] for each of the graph's inputs.

        Returns:
            Logits [texts, rows, H], and the last position's state before the final norm, [texts, 1, d]. The
            next pass of this size overwrites both.
        """
        n = states[0].shape[1]
        bound = self.prepare(cache, n, rows)
        for buffer, given in zip(bound.states, states, strict=True):
            buffer.copy_(given)
        bound.past.fill_(start + n - 1)
        bound.total.fill_(start + n)
        self._graph.session.run_with_iobinding(bound.binding)
        if n > LONGEST_KEPT:
            del cache.passes[n, rows]
        return bound.logits, bound.output


class OnnxDraft(nn.Module):
    """A draft model that runs as an ONNX graph; it takes the place of a ``ReducedHeadDraft``.

    Args:
        draft: The draft in float32; its weights are copied.
    """

    id_map: Tensor

    def __init__(self, draft: ReducedHeadDraft):
        from specdemo.models.onnx_graph import llama_graph

        super().__init__()
        self.config = draft.config
        self.embedding = draft.model.get_input_embeddings()
        self.register_buffer("id_map", draft.id_map)
        self.step = OnnxStep(llama_graph(draft))


class OnnxExecution:
    """Runs passes of an ``OnnxDraft``. It has the methods of ``execution.PlainExecution``."""

    def __init__(self, model: OnnxDraft):
        self.model = model

    def open(self, capacity: int) -> OnnxCache:
        return self.model.step.open(capacity)

    def prepare(self, cache: OnnxCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        for size in sizes:
            self.model.step.prepare(cache, size, size)

    def run(
        self, ids: Tensor, start: int, cache: OnnxCache, rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, None]:
        logits, _ = self.model.step.run(cache, start, rows or 1, self.model.embedding(ids)[None])
        return logits[0].clone(), None

    def layers(self, cache: OnnxCache) -> list[KeysAndValues]:
        return list(zip(cache.keys, cache.values, strict=True))

    def first(self, depth: int) -> "OnnxExecution":
        raise NotImplementedError("a draft has no early exit")


class OnnxFeatureDraft(nn.Module):
    """A feature draft whose step is an ONNX graph; it takes the place of a ``FeatureDraft``.

    Args:
        draft: The draft in float32; its weights are copied, except those of the fusion.
    """

    id_map: Tensor

    def __init__(self, draft: FeatureDraft):
        from specdemo.models.onnx_graph import feature_graph

        super().__init__()
        self.config = draft.config
        self.embedding = draft.embedding
        self.register_buffer("id_map", draft.id_map)
        self.step = OnnxStep(feature_graph(draft))
        self.fuse = pack_linears(nn.Sequential(draft.fuse), FUSION_PRECISION, FUSION_PRECISION)


class OnnxFeatureRuntime:
    """An ``OnnxFeatureDraft`` and its cache of (state, token) pairs; see ``feature_draft.FeatureRuntime``."""

    def __init__(self, draft: OnnxFeatureDraft):
        self._draft = draft
        self.id_map = draft.id_map
        self.device = draft.id_map.device
        self.length = 0
        self._cache: OnnxCache | None = None
        self._capacity = 0

    def begin(self, capacity: int) -> None:
        self.length = 0
        if capacity != self._capacity:
            self._cache, self._capacity = self._draft.step.open(capacity), capacity

    @torch.inference_mode()
    def read(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.append(self._draft.fuse(features.float()), ids)

    @torch.inference_mode()
    def append(self, states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        assert self._cache is not None
        embedded = self._draft.embedding(ids)
        logits, output = self._draft.step.run(self._cache, self.length, 1, embedded[None], states[None])
        self.length += len(ids)
        return output[0].clone(), logits[0, 0].clone()

    def rollback(self, length: int) -> None:
        self.length = length


@torch.inference_mode()
def onnx_draft(draft: ReducedHeadDraft) -> OnnxDraft | None:
    """Return a draft model as an ONNX graph; None if that is impossible or the graph computes other logits.

    Args:
        draft: The draft in float32, with an attention of transformers.
    """
    if not (can_fuse(draft) and _has_whole_blocks(draft)):
        return None
    ids = draft.id_map[:CHECKED_TOKENS]
    found = OnnxDraft(draft)
    wanted = draft(ids[None]).logits[0]
    return found if _agrees(found.step, wanted, found.embedding(ids)[None]) else None


@torch.inference_mode()
def onnx_feature_draft(draft: FeatureDraft) -> OnnxFeatureDraft | None:
    """Return a feature draft as an ONNX graph; see :func:`onnx_draft`."""
    if not _has_whole_blocks(draft):
        return None
    ids = draft.id_map[:CHECKED_TOKENS]
    states, positions = draft.embedding(ids.flip(0))[None], torch.arange(len(ids))[None]
    attend = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    wanted = draft.logits(draft.step(states, ids[None], positions, attend))[0]
    found = OnnxFeatureDraft(draft)
    return found if _agrees(found.step, wanted, found.embedding(ids)[None], states) else None


def _has_whole_blocks(draft: nn.Module) -> bool:
    """Return whether every matrix can be divided into the graph's blocks of weights."""
    from specdemo.models.onnx_graph import BLOCK

    linears = [module for module in draft.modules() if isinstance(module, nn.Linear)]
    return all(linear.in_features % BLOCK == 0 and linear.bias is None for linear in linears)


def _agrees(step: OnnxStep, wanted: Tensor, *states: Tensor) -> bool:
    """Return whether a graph computes the logits ``wanted`` [n, H] up to rounding, given ``states``."""
    logits, _ = step.run(step.open(len(wanted)), 0, len(wanted), *states)
    # The graph's own best tokens have exact logits also where a screen, on unusual states, misses others.
    best = logits[0].topk(min(TOP, wanted.shape[-1])).indices
    error = (logits[0].gather(1, best) - wanted.gather(1, best)).abs().max()
    return bool(error <= MAX_ERROR * wanted.std())


def _memory(tensor: Tensor) -> tuple[str, int, Any, list[int], int]:
    """Return a tensor as ``bind_input`` takes it. The caller must keep the tensor alive."""
    return "cpu", 0, KINDS[tensor.dtype], list(tensor.shape), tensor.data_ptr()
