"""A draft's whole step as one ONNX graph with 8-bit weights; needs the packages onnx and onnxruntime."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.reduced_draft import ReducedHeadDraft
from specdemo.models.screened_head import CANDIDATES, Screen

BITS, BLOCK = 8, 32
"""Weights are 8-bit numbers with one scale and one offset for each 32 of a row."""
INT8_PRODUCTS = 4
"""The accuracy level of MatMulNBits that rounds the inputs to 8 bits, too."""
OPSET, CONTRIB, IR_VERSION = 18, "com.microsoft", 9
EVERYTHING = 2**31
"""The end of a slice that reaches to the end of a tensor."""
ROTATIONS_BEYOND = 64
"""A run may pad a pass beyond the last position that the draft can read."""


class StepGraph(NamedTuple):
    """A step in a session of ONNX Runtime.

    The session's inputs are ``states`` (and ``embedded`` for a feature draft), [texts, n, d]; ``past``, the
    number of cached positions + n − 1, for each text; ``total``, past + 1; ``first``, the index of the first
    row to score; and the caches ``keys0``, ``values0``, … The outputs are ``logits`` [texts, rows, H],
    ``output`` [texts, 1, d], the last state before the final norm, and the caches ``new_keys0``, …

    Attributes:
        session: The session.
        inputs: Names of the inputs of shape [texts, n, d].
        width: d.
        vocab: H.
        layers: Number of layers with a cache.
        kv_heads, head_dim: Sizes of a cache.
    """

    session: Any
    inputs: tuple[str, ...]
    width: int
    vocab: int
    layers: int
    kv_heads: int
    head_dim: int


def llama_graph(draft: ReducedHeadDraft) -> StepGraph:
    """Return the step of a Llama-type draft model in float32; its weights are copied."""
    config: Any = draft.config
    stack: Any = draft.model
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    rotations = _rotations(stack.rotary_emb, config.max_position_embeddings)
    graph = _Graph(config.hidden_size, head_dim, heads, kv_heads, config.rms_norm_eps, *rotations)
    states = graph.input("states", TensorProto.FLOAT, ["texts", "n", graph.width])
    for index, layer in enumerate(stack.layers):
        attention = layer.self_attn
        projections = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        projected = graph.linear(graph.norm(states, layer.input_layernorm.weight), *projections)
        states = graph.add(states, graph.linear(graph.attend(projected, index), attention.o_proj.weight))
        states = graph.add(
            states, graph.mlp(graph.norm(states, layer.post_attention_layernorm.weight), layer.mlp)
        )
    graph.finish(states, stack.norm.weight, draft.lm_head.weight, draft.screen)
    return StepGraph(
        graph.session(),
        ("states",),
        graph.width,
        len(draft.id_map),
        len(stack.layers),
        graph.kv_heads,
        head_dim,
    )


def feature_graph(draft: FeatureDraft) -> StepGraph:
    """Return the step of a feature draft in float32 (``FeatureDraft.step``); its weights are copied."""
    config = draft.config
    rotations = _rotations(draft.rotary, config.positions)
    sizes = config.hidden_size, config.head_dim, config.heads, config.kv_heads, config.norm_eps
    graph = _Graph(*sizes, *rotations)
    shape = ["texts", "n", graph.width]
    embedded, states = (graph.input(name, TensorProto.FLOAT, shape) for name in ("embedded", "states"))
    pairs = graph.apply(
        "Concat",
        graph.norm(embedded, draft.embedding_norm.weight),
        graph.norm(states, draft.state_norm.weight),
        axis=-1,
    )
    context = graph.attend(graph.linear(pairs, draft.q.weight, draft.k.weight, draft.v.weight), 0)
    states = graph.add(states, graph.linear(context, draft.o.weight))
    states = graph.add(states, graph.mlp(graph.norm(states, draft.mlp_norm.weight), draft.mlp))
    graph.finish(states, draft.norm.weight, draft.lm_head.weight, draft.screen)
    return StepGraph(
        graph.session(),
        ("embedded", "states"),
        graph.width,
        len(draft.id_map),
        1,
        config.kv_heads,
        config.head_dim,
    )


class _Graph:
    """A graph under construction: each method adds operators and returns the name of their result.

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
        self._past = self.input("past", TensorProto.INT32, ["texts"])
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

    def add(self, left: str, right: str) -> str:
        """Add two results."""
        return self.apply("Add", left, right)

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
        shape = ["texts", self.kv_heads, "capacity", self.head_dim]
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
        end, along = self._constant(torch.tensor([EVERYTHING])), self._constant(torch.tensor([1]))
        last = self.apply("Slice", states, self._constant(torch.tensor([-1])), end, along)
        self._output("output", last, ["texts", 1, self.width])
        scored = self.norm(self.apply("Slice", states, first, end, along), norm)
        logits = self._screened(scored, head, screen) if screen else self.linear(scored, head)
        self._output("logits", logits, ["texts", "rows", len(head)])

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


def _rotations(rotary: nn.Module, positions: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of every position, each [positions, head_dim / 2]."""
    places = torch.arange(positions + ROTATIONS_BEYOND).clamp_max(positions - 1)
    cos, sin = rotary(torch.zeros(1), places[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half], sin[0, :, :half]
