"""Llama-type models on a CPU, with whole passes as compiled functions."""

import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from specdemo.models.attention import ATTENTION
from specdemo.models.compiled.product import LANES, Matrix, pack, unpack
from specdemo.models.compiled.stack import (
    Layer,
    ScreenMatrices,
    Sizes,
    Stack,
    StackCache,
    rotations_of,
)
from specdemo.models.reduced_draft import ReducedHeadDraft, Screen
from specdemo.models.threads import PassKind, choice

# Times of passes are compared if they have at most so many rows and start in the same part of the text.
JUDGED_ROWS, JUDGED_POSITIONS = 16, 256


class CompiledLlama(nn.Module):
    """A Llama-type model converted from transformers for compiled passes.

    Weights have the type in which they are stored, or int8 if ``rounded``; all arithmetic is in fp32. A draft
    shares the target's ``embedding``. As in ``FusedLlama``, the model cannot be used afterwards.
    """

    def __init__(
        self,
        model: PreTrainedModel | ReducedHeadDraft,
        rounded: bool = False,
        embedding: Matrix | None = None,
    ):
        super().__init__()
        config: Any = model.config
        self.config: PretrainedConfig = config
        self.generation_config = getattr(model, "generation_config", None)
        stack: Any = model.get_submodule("model")
        head: Any = model.get_submodule("lm_head")
        attention = stack.layers[0].self_attn
        width = attention.head_dim
        tied = head.weight is stack.embed_tokens.weight
        self.sizes = Sizes(
            hidden=config.hidden_size,
            heads=attention.q_proj.weight.shape[0] // width,
            kv_heads=attention.k_proj.weight.shape[0] // width,
            head_dim=width,
            mlp=stack.layers[0].mlp.gate_proj.weight.shape[0],
            epsilon=stack.norm.variance_epsilon,
            scaling=attention.scaling,
        )
        # As in transformers, a model is on the device of its first parameter.
        self.norm = nn.Parameter(copied(stack.norm.weight), requires_grad=False)
        if embedding is None:
            embedding = pack(stack.embed_tokens.weight, rounded=rounded)
        output = embedding if tied and head.bias is None else pack(head.weight, head.bias, rounded=rounded)
        layers = []
        for index, layer in enumerate(stack.layers):
            layers.append(converted_layer(layer, rounded))
            stack.layers[index] = nn.Identity()
        self.stack = Stack(
            self.sizes,
            layers,
            self.norm,
            embedding,
            output,
            rotations_of(stack.rotary_emb, config.max_position_embeddings),
            screen_of(getattr(model, "screen", None)),
        )
        self.execution = CompiledExecution(self.stack, judged=not isinstance(model, ReducedHeadDraft))

    @property
    def vocabulary(self) -> int:
        return self.stack.embedding.outputs

    def restored(self) -> PreTrainedModel:
        """Return a new model of transformers with the same weights, in fp32."""
        sizes = self.sizes
        model = AutoModelForCausalLM.from_config(
            self.config, dtype=torch.float32, attn_implementation=ATTENTION
        ).eval()
        head, kv = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        state = {"model.norm.weight": self.norm, "model.embed_tokens.weight": unpack(self.stack.embedding)[0]}
        state |= _named("lm_head", *unpack(self.stack.output))
        for index, layer in enumerate(self.stack.layers):
            at = f"model.layers.{index}."
            state[f"{at}input_layernorm.weight"] = layer.norm1
            state[f"{at}post_attention_layernorm.weight"] = layer.norm2
            parts = [part.split([head, kv, kv]) if len(part) else (part,) * 3 for part in unpack(layer.qkv)]
            for name, weight, bias in zip("qkv", *parts, strict=True):
                state |= _named(f"{at}self_attn.{name}_proj", weight, bias)
            state |= _named(f"{at}self_attn.o_proj", *unpack(layer.o))
            parts = [part.chunk(2) if len(part) else (part,) * 2 for part in unpack(layer.gate_up)]
            for name, weight, bias in zip(("gate", "up"), *parts, strict=True):
                state |= _named(f"{at}mlp.{name}_proj", weight[: sizes.mlp], bias[: sizes.mlp])
            state |= _named(f"{at}mlp.down_proj", *unpack(layer.down))
        model.load_state_dict(state, strict=False)
        return model


def _named(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {f"{name}.weight": weight} | ({f"{name}.bias": bias} if len(bias) else {})


class CompiledExecution:
    """Runs passes of a :class:`CompiledLlama`. It has the methods of ``execution.PlainExecution``.

    It runs ``depth`` layers, by default all. If ``judged``, the times of passes affect the number of threads;
    those of small drafts vary too much.
    """

    is_batch_invariant = True

    def __init__(self, stack: Stack, depth: int | None = None, judged: bool = False):
        self._stack, self._depth, self._judged = stack, depth, judged

    def open(self, capacity: int) -> StackCache:
        return self._stack.open(capacity)

    def run(
        self, ids: Tensor, start: int, cache: StackCache, rows: int, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        threads = choice(len(ids))
        begin = time.perf_counter()
        logits, states, _ = self._stack.run(cache, ids, start, rows, threads.count, self._depth, taps)
        if self._judged and len(ids) <= JUDGED_ROWS:
            kind = PassKind(weakref.ref(self._stack), len(ids), start // JUDGED_POSITIONS)
            threads.passed(kind, time.perf_counter() - begin)
        return logits, states

    def write(
        self, ids: Tensor, start: int, cache: StackCache, first: int, steps: int, id_map: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Make steps of a draft, see :meth:`Stack.write`."""
        return self._stack.write(cache, ids, start, first, steps, choice().count, id_map, self._depth)

    def batch(self, texts: int, capacity: int) -> Callable[[Tensor, int], Tensor]:
        cache = self._stack.open(capacity, texts)

        def run(ids: Tensor, start: int) -> Tensor:
            logits = []
            for part in ids.split(cache.most // texts, 1):
                found, _ = self.run(part.flatten(), start, cache, part.numel(), ())
                logits.append(found.unflatten(0, part.shape))
                start += part.shape[1]
            return torch.cat(logits, 1)

        return torch.inference_mode()(run)

    def cut(self, cache: StackCache, end: int) -> StackCache:
        del end  # a row never reads more than the positions before it
        return cache

    def layers(self, cache: StackCache) -> list[tuple[Tensor, Tensor]]:
        width = self._stack.sizes.head_dim
        both = zip(cache.keys.transpose(-1, -2), cache.values[..., :width], strict=True)
        return [(keys[..., : cache.capacity, :], values[..., : cache.capacity, :]) for keys, values in both]

    def first(self, depth: int) -> "CompiledExecution":
        return CompiledExecution(self._stack, depth)


def converted_layer(layer: Any, rounded: bool) -> Layer:
    attention, mlp, stored = layer.self_attn, layer.mlp, partial(pack, rounded=rounded)
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    biased = attention.q_proj.bias is not None
    return Layer(
        copied(layer.input_layernorm.weight),
        stored(
            torch.cat([one.weight for one in projections]),
            torch.cat([one.bias for one in projections]) if biased else None,
        ),
        stored(attention.o_proj.weight, attention.o_proj.bias),
        copied(layer.post_attention_layernorm.weight),
        *mlp_matrices(mlp, rounded),
    )


def copied(vector: Tensor) -> Tensor:
    """Return a copy in fp32, because a view of a checkpoint would keep the whole file in memory."""
    return vector.detach().to(torch.float32, copy=True)


def mlp_matrices(mlp: Any, rounded: bool) -> tuple[Matrix, Matrix]:
    """Return a matrix of gate and up, each padded to whole vectors, and a matrix of down."""
    gates = [mlp.gate_proj, mlp.up_proj]
    missing = -len(mlp.gate_proj.weight) % LANES
    joined = torch.cat([F.pad(one.weight, (0, 0, 0, missing)) for one in gates])
    biased = mlp.gate_proj.bias is not None
    bias = torch.cat([F.pad(one.bias, (0, missing)) for one in gates]) if biased else None
    return pack(joined, bias, rounded=rounded), pack(
        mlp.down_proj.weight, mlp.down_proj.bias, rounded=rounded
    )


def screen_of(screen: Screen | None) -> ScreenMatrices | None:
    if screen is None:
        return None
    return ScreenMatrices(pack(screen.down, rounded=True), pack(screen.up, screen.bias, rounded=True))
