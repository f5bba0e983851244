"""The drafter that runs a feature draft: a head on the target's hidden states (``models.feature_draft``)."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdemo.drafters.factory import DrafterSpec
from specdemo.drafters.recorded_steps import launch_steps
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, PickingRule, empty_draft, write_draft, write_most_likely
from specdemo.models.feature_draft import FeatureRuntime
from specdemo.models.runtime import MAX_ROWS, ModelRuntime
from specdemo.records.drafter_kinds import FEATURE_DRAFT

if TYPE_CHECKING:
    from specdemo.models.compiled.feature import CompiledFeatureRuntime
    from specdemo.models.gpu.feature import GpuFeatureRuntime


class FeatureDrafter(Drafter):
    """Drafts from the hidden states of the target's own passes.

    The runtime ``target`` must keep the outputs of the layers in the draft's ``taps``.
    """

    def __init__(
        self, draft: "FeatureRuntime | CompiledFeatureRuntime | GpuFeatureRuntime", target: ModelRuntime
    ):
        self._draft = draft
        self._target = target
        self._prompt: list[int] = []
        self._true_pairs = 0

    def begin(self, capacity: int) -> None:
        self._draft.begin(capacity)
        self._prompt = []

    def prefill(self, ids: Sequence[int]) -> None:
        # Process the (state, token) pairs whose token is known.
        self._prompt += ids
        first, known = self._draft.length, len(self._prompt) - 1
        if known > first:
            self._draft.read(self._target.features(first, known), self._ids(self._prompt[first + 1 :]))

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        draft, known = self._draft, len(text) - 1
        self._true_pairs = known
        if known == 0:
            return empty_draft(self._draft.device)
        write: Any = getattr(draft, "write", None)
        if rule.picks_best and write is not None:
            new = self._ids(text[draft.length + 1 :])
            features = self._target.features(draft.length, known)
            run = partial(write, features, new)
            return write_most_likely(run, length, draft.id_map, draft.device, FEATURE_DRAFT)
        state = torch.empty(0)

        def step(previous: Tensor | None) -> Tensor:
            nonlocal state
            if previous is None:  # the first step reads the pairs that the last target pass completed
                new = self._ids(text[draft.length + 1 :])
                state, logits = draft.read(self._target.features(draft.length, known), new)
            else:
                state, logits = draft.append(state, previous)
            return logits

        return write_draft(step, len(text), length, rule, draft.id_map, draft.device, FEATURE_DRAFT)

    def observe(self, accepted: int) -> None:
        # Forget the pairs made from the draft's own output; the target's states will replace them.
        self._draft.rollback(min(self._draft.length, self._true_pairs))

    def recorded(self) -> "FeatureDrafter | None":
        fit = hasattr(self._draft, "stack") and self._target.device == self._draft.device
        return self if fit else None

    def place(self, text: Sequence[int], k: int) -> bool:
        draft: Any = self._draft
        known = self._true_pairs = len(text) - 1
        if known == 0:
            return False
        if known - draft.length > MAX_ROWS:  # after many rounds without a draft
            draft.read(self._target.features(draft.length, known - 1), self._ids(text[draft.length + 1 : -1]))
        missing = text[draft.length + 1 :]
        draft.stack.place(draft.cache, draft.length, missing)
        draft.length += len(missing) + k - 1
        return True

    def launch(self, k: int, rule: PickingRule, position: Tensor) -> Draft:
        draft: Any = self._draft
        start = draft.cache.buffers.control[:1].long()
        where = (start + torch.arange(MAX_ROWS, device=draft.device)).clamp_max(draft.cache.capacity - 1)
        draft.fuse(self._target.features_at(where))
        return launch_steps(draft.stack, draft.cache, k, rule, position, draft.id_map, FEATURE_DRAFT)

    def _ids(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self._draft.device)


def make(spec: DrafterSpec) -> FeatureDrafter:
    assert spec.feature_draft is not None
    runtime: Any = spec.feature_draft.runtime()
    if hasattr(runtime, "prepare"):  # on a GPU
        runtime.prepare(spec.target.capacity)
    return FeatureDrafter(runtime, spec.target)
