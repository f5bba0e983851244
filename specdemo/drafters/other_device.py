"""Support for a draft model on another device than the target; it draws with the run's random numbers."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, Pick, PickingRule
from specdemo.records.limits import MAX_K


def draft_on_device(drafter: Drafter, drafter_device: torch.device, target_device: torch.device) -> Drafter:
    """Return a drafter that computes on ``drafter_device`` and returns drafts on ``target_device``."""
    if drafter_device == target_device:
        return drafter
    return DistantDrafter(drafter, drafter_device, target_device)


class DistantRule:
    """A wrapper of a run's rule for one draft on another device.

    Uniform random numbers come from the run's generator and are sent to the drafter's device. A second
    generator with the same seed would be wrong: it would draw draft tokens with the same numbers that decide
    whether the target accepts them.
    """

    picks_best = False

    def __init__(self, rule: PickingRule, device: torch.device):
        self._rule = rule
        uniforms = rule.uniforms(MAX_K)  # enough for the longest draft
        self._uniforms = None if uniforms is None else uniforms.to(device)

    def uniforms(self, count: int) -> Tensor | None:
        if self._uniforms is None:
            return None
        first, self._uniforms = self._uniforms[:count], self._uniforms[count:]
        return first

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        return self._rule.pick(logits, where, uniform, id_map)


class DistantDrafter(Drafter):
    """A wrapper of a drafter on another device. It sends each draft to ``device``, the target's."""

    def __init__(self, drafter: Drafter, drafter_device: torch.device, device: torch.device):
        self._drafter = drafter
        self._drafter_device = drafter_device
        self._device = device
        self._id_map: Tensor | None = None

    def begin(self, capacity: int) -> None:
        self._drafter.begin(capacity)

    def prefill(self, ids: Sequence[int]) -> None:
        self._drafter.prefill(ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        distant = DistantRule(rule, self._drafter_device)
        return self._sent(self._drafter.propose(text, length, distant))

    def observe(self, accepted: int) -> None:
        self._drafter.observe(accepted)

    def _sent(self, draft: Draft) -> Draft:
        # The id map never changes and is sent only once.
        if draft.id_map is not None and self._id_map is None:
            self._id_map = draft.id_map.to(self._device)
        moved = {
            name: tensor.to(self._device)
            for name in ("ids", "probs", "rows", "logits")
            if (tensor := getattr(draft, name)) is not None
        }
        return replace(draft, **moved, id_map=None if draft.id_map is None else self._id_map)
