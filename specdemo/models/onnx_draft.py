"""Drafts on an x86 CPU: a whole step as one ONNX graph with 8-bit weights, built from the loaded weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_llama import KeysAndValues
from specdemo.models.reduced_draft import ReducedHeadDraft
from specdemo.models.screened_head import CANDIDATES, Screen

BITS, BLOCK = 8, 32
"""Weights are 8-bit numbers, with a scale and an offset for each 32 of a row."""
INT8_PRODUCTS = 4
"""MatMulNBits' accuracy level at which inputs are rounded to 8 bits as well."""
OPSET, CONTRIB, IR_VERSION = 18, "com.microsoft", 9
ALL = 2**31
"""An end of a slice that no state reaches."""


@dataclass
class OnnxCache:
    """Keys and values of every layer, which the graph writes in place, and the buffers of each size of pass.

    Attributes:
        keys, values: One tensor a layer, shape [1, kv_heads, capacity, head_dim].
        passes: Bound buffers by number of tokens and of scored rows.
    """

    keys: list[Tensor]
    values: list[Tensor]
    passes: dict[tuple[int, int], "_Pass"] = field(default_factory=dict)


class _Pass:
    """The inputs and outputs of passes over n tokens with r scored rows, bound to the session once."""

    def __init__(self, step: "OnnxStep", cache: OnnxCache, n: int, rows: int):
        self.states = {name: torch.zeros(1, n, step.width) for name in step.inputs}
        self.past, self.total = torch.zeros(1, dtype=torch.int32), torch.zeros((), dtype=torch.int32)
        self.logits = torch.zeros(1, rows, step.vocab)
        self.output = torch.zeros(1, 1, step.width)
        first = torch.tensor([n - rows])
        self.binding = step.session.io_binding()
        self._held = first, cache.keys, cache.values
        for name, tensor in {**self.states, "past": self.past, "total": self.total, "first": first}.items():
            self.binding.bind_input(name, *_memory(tensor))
        for kind, layers in (("keys", cache.keys), ("values", cache.values)):
            for index, tensor in enumerate(layers):
                self.binding.bind_input(f"{kind}{index}", *_memory(tensor))
                self.binding.bind_output(f"new_{kind}{index}", *_memory(tensor))
        self.binding.bind_output("logits", *_memory(self.logits))
        self.binding.bind_output("output", *_memory(self.output))


class OnnxStep:
    """One draft's graph in a session, and passes over it.

    Args:
        graph: The finished graph.
        inputs: Names of its inputs of shape [1, n, d].
        vocab: H, the number of logits.
        layers: Number of layers with a cache.
        cache_shape: kv_heads and head_dim.
    """

    def __init__(self, graph: "_Graph", inputs: Sequence[str], vocab: int, layers: int):
        self.session = graph.session()
        self.inputs, self.vocab, self.width = tuple(inputs), vocab, graph.width
        self._layers, self._shape = layers, (graph.kv_heads, graph.head_dim)

    def open(self, capacity: int) -> OnnxCache:
        """Return an empty cache of ``capacity`` positions."""
        kv_heads, head_dim = self._shape
        buffers = [torch.zeros(1, kv_heads, capacity, head_dim) for _ in range(2 * self._layers)]
        return OnnxCache(buffers[: self._layers], buffers[self._layers :])

    def prepare(self, cache: OnnxCache, n: int, rows: int) -> _Pass:
        """Return the buffers of a pass, bound on first use."""
        if (n, rows) not in cache.passes:
            cache.passes[n, rows] = _Pass(self, cache, n, rows)
        return cache.passes[n, rows]

    def run(self, cache: OnnxCache, start: int, rows: int, *states: Tensor) -> _Pass:
        """Append n positions from ``start`` on.

        Args:
            cache: Returned by :meth:`open`.
            start: The first position.
            rows: Number of last positions to score, at least 1.
            states: One tensor [n, d] for each of ``inputs``.

        Returns:
            The pass with its ``logits`` [1, rows, H] and the last ``output`` [1, 1, d], which the next pass
            of that size overwrites.
        """
        n = len(states[0])
        bound = self.prepare(cache, n, rows)
        for buffer, given in zip(bound.states.values(), states, strict=True):
            buffer[0] = given
        bound.past.fill_(start + n - 1)
        bound.total.fill_(start + n)
        self.session.run_with_iobinding(bound.binding)
        if n > 2 * BLOCK:  # a prompt's buffers are not used again
            del cache.passes[n, rows]
        return bound


class OnnxDraft(nn.Module):
    """A draft model made of a target's parts, with its whole step as one graph.

    Args:
        draft: The draft in float32; its weights are copied.
        screen: Screen of its head, if it has one.
    """

    def __init__(self, draft: ReducedHeadDraft, screen: Screen | None):
        super().__init__()
        self.config = draft.config
        self.embedding = draft.get_submodule("model").get_input_embeddings()
        self.step = llama_step(draft, screen)

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding, as transformers' models do."""
        return self.embedding


class OnnxExecution:
    """An ``execution.Execution`` of a draft by ONNX Runtime."""

    def __init__(self, model: OnnxDraft):
        self._model = model

    def open(self, capacity: int) -> OnnxCache:
        return self._model.step.open(capacity)

    def prepare(self, cache: OnnxCache, sizes: Iterable[int], taps: Sequence[int]) -> None:
        for size in sizes:
            self._model.step.prepare(cache, size, size)

    def run(
        self, ids: Tensor, start: int, cache: OnnxCache, rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, None]:
        bound = self._model.step.run(cache, start, rows or 1, self._model.embedding(ids))
        return bound.logits[0].clone() if rows else bound.logits.new_empty(0), None

    def layers(self, cache: OnnxCache) -> list[KeysAndValues]:
        return list(zip(cache.keys, cache.values, strict=True))

    def first(self, depth: int) -> "OnnxExecution":
        raise NotImplementedError("a draft has no early exit")


def llama_step(draft: ReducedHeadDraft, screen: Screen | None) -> OnnxStep:
    """Return the step of a Llama made of a target's parts: embeddings [1, n, d] in, logits out."""
    config, stack = draft.config, draft.get_submodule("model")
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    graph = _Graph(
        config.hidden_size,
        head_dim,
        heads,
        kv_heads,
        config.rms_norm_eps,
        *_rotations(stack.rotary_emb, config),
    )
    states = graph.input("states", TensorProto.FLOAT, [1, "n", graph.width])
    for index, layer in enumerate(stack.layers):
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        projected = graph.linear(graph.norm(states, layer.input_layernorm.weight), *projections)
        context = graph.attend(projected, index)
        states = graph.apply("Add", states, graph.linear(context, attention.o_proj.weight))
        inner = graph.norm(states, layer.post_attention_layernorm.weight)
        states = graph.apply("Add", states, graph.mlp(inner, mlp))
    graph.finish(states, stack.norm.weight, draft.lm_head.weight, screen)
    return OnnxStep(graph, ["states"], len(draft.id_map), len(stack.layers))


def feature_step(draft: FeatureDraft, screen: Screen | None) -> OnnxStep:
    """Return the step of a feature draft: embeddings and states [1, n, d] in, logits and output out."""
    config = draft.config
    graph = _Graph(
        config.hidden_size,
        config.head_dim,
        config.heads,
        config.kv_heads,
        config.norm_eps,
        *_rotations(draft.rotary, config.llama()),
    )
    shape = [1, "n", graph.width]
    embedded, states = (graph.input(name, TensorProto.FLOAT, shape) for name in ("embedded", "states"))
    pairs = graph.apply(
        "Concat",
        graph.norm(embedded, draft.embedding_norm.weight),
        graph.norm(states, draft.state_norm.weight),
        axis=-1,
    )
    context = graph.attend(graph.linear(pairs, draft.q.weight, draft.k.weight, draft.v.weight), 0)
    states = graph.apply("Add", states, graph.linear(context, draft.o.weight))
    states = graph.apply("Add", states, graph.mlp(graph.norm(states, draft.mlp_norm.weight), draft.mlp))
    graph.finish(states, draft.norm.weight, draft.lm_head.weight, screen)
    return OnnxStep(graph, ["embedded", "states"], len(draft.id_map), 1)


class _Graph:
    """A graph in the making: each method adds operators and returns the name of their result.

    Args:
        width: d, the size of a state.
        head_dim: Size of an attention head.
        heads, kv_heads: Number of query heads and of key/value heads.
        norm_eps: Epsilon of every norm.
        cos, sin: Rotation of each position, shape [positions, head_dim / 2].
    """

    def __init__(
        self, width: int, head_dim: int, heads: int, kv_heads: int, norm_eps: float, cos: Tensor, sin: Tensor
    ):
        self.width, self.head_dim, self.kv_heads = width, head_dim, kv_heads
        self._heads, self._eps = heads, norm_eps
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._count = 0
        self._cos, self._sin = self._constant(cos), self._constant(sin)
        self._past = self.input("past", TensorProto.INT32, [1])
        self._total = self.input("total", TensorProto.INT32, [])

    def input(self, name: str, kind: int, shape: Sequence[int | str]) -> str:
        """Add an input of the graph."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def apply(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add one operator; returns a list of names if it has several results."""
        names = [self._name() for _ in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, states: str, *weights: Tensor) -> str:
        """Multiply states [..., K] by the rows of all ``weights`` [N, K], in 8 bits."""
        weight = torch.cat([one.detach().float() for one in weights]).numpy()
        rows, columns = weight.shape
        stored = map(self._constant, quantized(weight))
        sizes = {"K": columns, "N": rows, "bits": BITS, "block_size": BLOCK}
        return self.apply(
            "MatMulNBits", states, *stored, domain=CONTRIB, accuracy_level=INT8_PRODUCTS, **sizes
        )

    def norm(self, states: str, weight: Tensor) -> str:
        """Divide states by their root mean square and multiply them by ``weight``."""
        gains = self._constant(weight)
        return self.apply("SimplifiedLayerNormalization", states, gains, axis=-1, epsilon=self._eps)

    def attend(self, projected: str, layer: int) -> str:
        """Rotate, append keys and values to the layer's cache in place, and attend to the whole cache.

        Args:
            projected: Queries, keys and values side by side, shape [1, n, (heads + 2 · kv_heads) · head_dim].
            layer: Index of the layer, which names its cache: ``keys0``, ``values0``, …
        """
        shape = [1, self.kv_heads, "capacity", self.head_dim]
        caches = [self.input(f"{kind}{layer}", TensorProto.FLOAT, shape) for kind in ("keys", "values")]
        written = [f"new_{name}" for name in caches]
        self._outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in written]
        context = self._name()
        self._nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [projected, "", "", *caches, self._past, self._total, self._cos, self._sin],
                [context, *written],
                domain=CONTRIB,
                num_heads=self._heads,
                kv_num_heads=self.kv_heads,
                do_rotary=1,
            )
        )
        return context

    def mlp(self, states: str, mlp: Any) -> str:
        """Apply down(silu(gate) · up) of a Llama's MLP."""
        both = self.linear(states, mlp.gate_proj.weight, mlp.up_proj.weight)
        gate, up = self.apply("Split", both, outputs=2, axis=-1, num_outputs=2)
        silu = self.apply("QuickGelu", gate, domain=CONTRIB, alpha=1.0)
        return self.linear(self.apply("Mul", silu, up), mlp.down_proj.weight)

    def finish(self, states: str, norm: Tensor, head: Tensor, screen: Screen | None) -> None:
        """Add the outputs: ``output``, the last state, and ``logits`` of the states from ``first`` on."""
        first = self.input("first", TensorProto.INT64, [1])
        end, along = self._constant(torch.tensor([ALL])), self._constant(torch.tensor([1]))
        last = self.apply("Slice", states, self._constant(torch.tensor([-1])), end, along)
        self._output("output", last, [1, 1, self.width])
        scored = self.norm(self.apply("Slice", states, first, end, along), norm)
        logits = self._screened(scored, head, screen) if screen else self.linear(scored, head)
        self._output("logits", logits, [1, "rows", len(head)])

    def _screened(self, states: str, head: Tensor, screen: Screen) -> str:
        """Return the screen's logits, with exact ones in the place of the ``CANDIDATES`` best."""
        low = self.linear(states, screen.down)
        scores = self.apply("Add", self.linear(low, screen.up), self._constant(screen.bias))
        count = self._constant(torch.tensor([min(CANDIDATES, len(head))]))
        _, likely = self.apply("TopK", scores, count, outputs=2, axis=-1, largest=1, sorted=0)
        axis = self._constant(torch.tensor([3]))
        rows = self.apply("Gather", self._constant(head), likely)
        exact = self.apply("MatMul", rows, self.apply("Unsqueeze", states, axis))
        return self.apply("ScatterElements", scores, likely, self.apply("Squeeze", exact, axis), axis=-1)

    def session(self) -> onnxruntime.InferenceSession:
        """Return the finished graph, ready to run."""
        graph = helper.make_graph(self._nodes, "step", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        options = onnxruntime.SessionOptions()
        # A second pool of threads would take the cores from torch's and make a verification twice as slow.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def _constant(self, value: Tensor | NDArray) -> str:
        if isinstance(value, Tensor):
            value = value.detach().float().numpy() if value.is_floating_point() else value.numpy()
        name = self._name()
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _output(self, name: str, source: str, shape: Sequence[int | str]) -> None:
        self._nodes.append(helper.make_node("Identity", [source], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def _name(self) -> str:
        self._count += 1
        return f"value{self._count}"


def quantized(weight: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows [N, K] as 8-bit numbers [N, K / 32, 32] with scales and offsets [N · K / 32]."""
    blocks = weight.reshape(len(weight), -1, BLOCK)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    top = 2**BITS - 1
    scales = np.maximum(high - low, 1e-12) / top
    offsets = np.round(-low / scales).clip(0, top)
    numbers = np.round(blocks / scales[..., None] + offsets[..., None]).clip(0, top)
    return numbers.astype(np.uint8), scales.astype(np.float32).ravel(), offsets.astype(np.uint8).ravel()


def _rotations(rotary: nn.Module, config: Any) -> tuple[Tensor, Tensor]:
    """Return cos and sin of every position, each [positions, head_dim / 2]."""
    # A run may pad a pass past the last position that the draft can read.
    positions = torch.arange(config.max_position_embeddings + 64).clamp_max(
        config.max_position_embeddings - 1
    )
    cos, sin = rotary(torch.zeros(1), positions[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half], sin[0, :, :half]


def _memory(tensor: Tensor) -> tuple[str, int, Any, list[int], int]:
    """Return a tensor as ``bind_input`` takes it; the caller keeps the tensor alive."""
    kinds = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32}
    return "cpu", 0, kinds[tensor.dtype], list(tensor.shape), tensor.data_ptr()
