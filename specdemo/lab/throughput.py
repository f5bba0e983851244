"""What a draft is worth to a server: passes over a batch of texts, and the speedup theory leaves them.

One text at a time a target pass waits for its weights to be read, and a few tokens more are free. A batch
reads them once for all texts; the more texts, the more a pass computes, and verification has its price.
Passes are measured, over a cache without text in it, since what it holds does not change the cost; the
speedup is theory (``theory.theoretical_speedup``) with these costs and an acceptance rate measured before.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdemo.bench.bench import shipped_prompts
from specdemo.engine.speculate import never
from specdemo.lab.plans import configs_for
from specdemo.lab.points import ThroughputPoint
from specdemo.lab.request import PROMPTS
from specdemo.lab.sweeps import Setting, measure_setting
from specdemo.models.attention import attend, group_mask, hiding
from specdemo.models.execution import PlainExecution
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.runtime import CAPACITY_STEP
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import DRAFT_MODEL
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.theory import RoundShape, theoretical_speedup
from specdemo.records.trace import RunConfig

ROWS = (1, 2, 4, 8, 16)
REPEATS = 5


@dataclass(frozen=True)
class ThroughputPlan:
    """What is measured.

    Attributes:
        k: Draft length, 1 to ``MAX_K``.
        rows: Batch sizes.
        alpha: Acceptance rate per compared token; None to measure it first, on a few shipped prompts.
        capacity: Cache length of each text; passes are made at its middle.

    Raises:
        UserError: A value is out of bounds.
    """

    k: int = RunConfig.k
    rows: tuple[int, ...] = ROWS
    alpha: float | None = None
    capacity: int = CAPACITY_STEP

    def __post_init__(self) -> None:
        if not isinstance(self.k, int) or not 1 <= self.k <= MAX_K:
            raise UserError(f"A batch needs a fixed k from 1 to {MAX_K}, not {self.k}.")
        if any(rows < 1 for rows in self.rows):
            raise UserError("A batch has at least one text.")
        if self.alpha is not None and not 0.0 <= self.alpha <= 1.0:
            raise UserError(f"The acceptance rate must be from 0 to 1, not {self.alpha:g}.")


def throughput(pair: Pair, plan: ThroughputPlan, stop: Stop = never) -> Iterator[ThroughputPoint]:
    """Measure a batch size after the other, on a pair that has a draft model (``require_draft_model``).

    Args:
        stop: Asked between batch sizes, and once a round where α is measured; True ends it.
    """
    alpha = _measured_alpha(pair, plan.k, stop) if plan.alpha is None else plan.alpha
    for rows in plan.rows:
        if alpha is None or stop():
            return
        yield _point(pair, plan, rows, alpha)


def _measured_alpha(pair: Pair, k: int, stop: Stop) -> float | None:
    request = {"k": k, "drafter": DRAFT_MODEL}
    point = measure_setting(
        pair, Setting(None, "", configs_for(pair, shipped_prompts(PROMPTS), request)), stop
    )
    return None if point is None else point.alpha


def _point(pair: Pair, plan: ThroughputPlan, rows: int, alpha: float) -> ThroughputPoint:
    start = plan.capacity // 2
    target, draft = (batch_of(model, rows, plan.capacity) for model in (pair.target, pair.draft))

    def timed(batch: Batch, tokens: int, device: torch.device) -> Callable[[], Tensor]:
        ids = torch.zeros(rows, tokens, dtype=torch.long, device=device)
        return lambda: batch.run(ids, start)

    single_s, verify_s, draft_s = median_seconds(
        [
            timed(target, 1, pair.device),
            timed(target, plan.k + 1, pair.device),
            timed(draft, 1, pair.draft_device),
        ]
    )
    c, v = draft_s / single_s, verify_s / single_s
    speedup = theoretical_speedup(alpha, RoundShape(plan.k, plan.k * c, v))
    return ThroughputPoint(
        rows=rows,
        k=plan.k,
        alpha=alpha,
        single_s=single_s,
        verify_s=verify_s,
        v=v,
        c=c,
        s_theory=speedup,
        baseline_tokens_per_s=rows / single_s,
        tokens_per_s=speedup * rows / single_s,
    )


def median_seconds(passes: list[Callable[[], Tensor]]) -> list[float]:
    """Median seconds of each pass, made in turns and each time in another order, as in ``calibrate``."""
    times: list[list[float]] = [[] for _ in passes]
    order = random.Random(0)
    for _ in range(REPEATS + 1):
        for index in order.sample(range(len(passes)), len(passes)):
            begin = time.perf_counter()
            passes[index]()[-1, -1, 0].item()
            times[index].append(time.perf_counter() - begin)
    return [statistics.median(seconds[1:]) for seconds in times]


class Batch(Protocol):
    """One model over the caches of several texts of equal length."""

    def run(self, ids: Tensor, start: int) -> Tensor:
        """Append ``ids`` [rows, n] at position ``start`` of every text: logits [rows, n, V]."""


def batch_of(model: nn.Module, rows: int, capacity: int) -> Batch:
    """``model`` over ``rows`` caches of ``capacity`` positions."""
    return (FusedBatch if isinstance(model, FusedLlama) else PlainBatch)(model, rows, capacity)


class PlainBatch:
    """Any causal language model of transformers."""

    @torch.inference_mode()
    def __init__(self, model: nn.Module, rows: int, capacity: int):
        self._model = model
        execution = PlainExecution(model)
        self._cache = execution.open(capacity)
        # A first pass makes buffers for one text; every text gets a copy.
        first = torch.zeros(1, dtype=torch.long, device=next(model.parameters()).device)
        execution.run(first, 0, self._cache, 1, ())
        for layer in self._cache.layers:
            layer.keys, layer.values = (buffer.repeat(rows, 1, 1, 1) for buffer in (layer.keys, layer.values))

    @torch.inference_mode()
    def run(self, ids: Tensor, start: int) -> Tensor:
        """One forward pass."""
        self._cache.layers[0].cursor.length = start
        return self._model(input_ids=ids, past_key_values=self._cache, use_cache=True).logits


class FusedBatch:
    """A Llama-type model on the short path: products over all texts at once, attention text by text."""

    @torch.inference_mode()
    def __init__(self, model: FusedLlama, rows: int, capacity: int):
        self._model = model
        self._one = model.open(capacity)
        layers, *text = self._one.keys.shape
        self._keys, self._values = (self._one.keys.new_zeros(layers, rows, *text) for _ in range(2))

    @torch.inference_mode()
    def run(self, ids: Tensor, start: int) -> Tensor:
        """One pass; as ``FusedLlama.forward`` with every text's tokens behind one another."""
        model, (rows, n) = self._model, ids.shape
        places = self._one.places[start : start + n]
        states = model.embedding(ids.flatten())
        hidden = self._one.places > places[:, None]
        mask = hiding(hidden, states.dtype).expand(rows, 1, -1, -1)
        mask = group_mask(mask, model.layers[0].heads // model.layers[0].kv_heads)
        cos, sin = (table[places].repeat(rows, 1, 1) for table in (self._one.cos, self._one.sin))
        for layer, keys, values in zip(model.layers, self._keys, self._values, strict=False):
            states = _layer(layer, states, cos, sin, mask, keys, values, start)
        return model.head(model.norm(states)).unflatten(0, (rows, n))


def _layer(
    layer: nn.Module,
    states: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
) -> Tensor:
    """A layer of ``FusedLlama`` over several texts.

    Args:
        states: Of all texts, shape [rows · n, d].
        cos, sin: Of each state's position, shape [rows · n, 1, head size].
        mask: From ``attention.group_mask``, one for every text.
        keys, values: This layer's, shape [rows, kv_heads, capacity, head size]; written from ``start`` on.

    Returns:
        States, shape as given.
    """
    heads, turning = layer.heads, layer.heads + layer.kv_heads
    parts = layer.qkv(layer.attention_norm(states)).view(len(states), -1, layer.width)
    plain = parts[:, :turning]
    turned = torch.addcmul(plain * cos, plain.roll(layer.width // 2, -1), sin)
    query, key, value = (
        part.unflatten(0, (len(keys), -1)).transpose(1, 2)
        for part in (turned[:, :heads], turned[:, heads:], parts[:, turning:])
    )
    end = start + key.shape[2]
    keys[:, :, start:end], values[:, :, start:end] = key, value
    context = attend(query, keys, values, mask, layer.scaling)
    states = states + layer.o(context.transpose(1, 2).reshape(len(states), -1))
    gate, up = layer.gate_up(layer.mlp_norm(states)).chunk(2, -1)
    return states + layer.down(F.silu(gate) * up)
