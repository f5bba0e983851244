"""Feature drafts on a CPU, with a whole step as one compiled function."""

import torch
from torch import Tensor, nn

from specdemo.models.compiled.linear import CompiledLinear
from specdemo.models.compiled.llama import mlp_matrices, screen_of
from specdemo.models.compiled.product import Matrix, pack
from specdemo.models.compiled.stack import Layer, Sizes, Stack, StackCache, rotations_of
from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.runtime import MAX_ROWS
from specdemo.models.threads import choice


class CompiledFeatureDraft(nn.Module):
    """A copy of a ``FeatureDraft`` with weights in int8; ``embedding`` is the target's."""

    id_map: Tensor

    def __init__(self, draft: FeatureDraft, embedding: Matrix):
        super().__init__()
        config = draft.config
        self.config = config
        self.register_buffer("id_map", draft.id_map)
        self.fuse = CompiledLinear(draft.fuse.weight, rounded=True)
        joined = torch.cat([draft.q.weight, draft.k.weight, draft.v.weight])
        layer = Layer(
            draft.state_norm.weight,
            pack(joined, parts=2, rounded=True),
            pack(draft.o.weight, rounded=True),
            draft.mlp_norm.weight,
            *mlp_matrices(draft.mlp, rounded=True),
        )
        self.stack = Stack(
            Sizes(
                config.hidden_size,
                config.heads,
                config.kv_heads,
                config.head_dim,
                config.intermediate_size,
                config.norm_eps,
                config.head_dim**-0.5,
            ),
            [layer],
            draft.norm.weight,
            embedding,
            pack(draft.lm_head.weight, rounded=True),
            rotations_of(draft.rotary, config.positions),
            screen_of(draft.screen),
            draft.embedding_norm.weight,
        )

    def runtime(self) -> "CompiledFeatureRuntime":
        return CompiledFeatureRuntime(self)


class CompiledFeatureRuntime:
    """A ``CompiledFeatureDraft`` and its cache of pairs, like ``feature_draft.FeatureRuntime``."""

    def __init__(self, draft: CompiledFeatureDraft):
        self._draft = draft
        self.id_map = draft.id_map
        self.device = draft.id_map.device
        self.length = 0
        self._cache: StackCache | None = None

    def begin(self, capacity: int) -> None:
        self.length = 0
        if self._cache is None or self._cache.capacity != capacity:
            self._cache = self._draft.stack.open(capacity)

    @torch.inference_mode()
    def read(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.append(self._draft.fuse(features), ids)

    @torch.inference_mode()
    def append(self, states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        assert self._cache is not None
        stack, length = self._draft.stack, self.length
        logits, _, last = stack.run(self._cache, ids, length, 1, choice(len(ids)).count, given=states)
        assert last is not None
        self.length += len(ids)
        return last, logits[0]

    @torch.inference_mode()
    def write(self, features: Tensor, ids: Tensor, first: int, steps: int) -> tuple[Tensor, Tensor]:
        """Make steps of a draft, see ``Stack.write``; the first one reads ``features`` [n, taps · d]."""
        assert self._cache is not None
        stack, threads = self._draft.stack, choice().count
        states = None if first else self._draft.fuse(features).contiguous()
        if states is not None and len(ids) > MAX_ROWS:
            self.append(states[:-1], ids[:-1])
            states, ids = states[-1:], ids[-1:]
        start, id_map = self.length, self.id_map
        written = stack.write(self._cache, ids, start, first, steps, threads, id_map, given=states)
        self.length += steps if first else len(ids) + steps - 1
        return written

    def rollback(self, length: int) -> None:
        self.length = length
