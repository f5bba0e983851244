"""Support for a draft model on another device than the target."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Draft, Drafter, Pick, PickingRule
from specdemo.records.limits import MAX_K


def draft_on_device(
    make: Callable[[PickingRule], Drafter],
    rule: PickingRule,
    drafter_device: torch.device,
    target_device: torch.device,
) -> Drafter:
    """Return a drafter that computes on ``drafter_device`` and returns drafts on ``target_device``.

    ``make`` creates the drafter; its argument is the rule that the drafter must use.
    """
    if drafter_device == target_device:
        return make(rule)
    distant = DistantRule(rule, drafter_device)
    return DistantDrafter(make(distant), distant, target_device)


class DistantRule:
    """A wrapper of a run's rule for a drafter on another device.

    Uniform random numbers come from the run's generator and are sent to the drafter's device. A second
    generator with the same seed would be wrong: it would draw draft tokens with the same numbers that decide
    whether the target accepts them.
    """

    picks_best = False

    def __init__(self, rule: PickingRule, device: torch.device):
        self._rule = rule
        self._device = device
        self._uniforms = self._sent(0)

    def start(self) -> None:
        """Draw enough uniform random numbers for the longest draft and send them to the drafter's device."""
        self._uniforms = self._sent(MAX_K)

    def uniforms(self, count: int) -> Tensor | None:
        if self._uniforms is None:
            return None
        first, self._uniforms = self._uniforms[:count], self._uniforms[count:]
        return first

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        return self._rule.pick(logits, where, uniform, id_map)

    def _sent(self, count: int) -> Tensor | None:
        uniforms = self._rule.uniforms(count)
        return None if uniforms is None else uniforms.to(self._device)


class DistantDrafter(Drafter):
    """A wrapper of a drafter on another device. It sends each draft to ``device``, the target's."""

    def __init__(self, drafter: Drafter, rule: DistantRule, device: torch.device):
        self._drafter = drafter
        self._rule = rule
        self._device = device
        self._id_map: Tensor | None = None

    def begin(self, capacity: int) -> None:
        self._drafter.begin(capacity)

    def prefill(self, ids: Sequence[int]) -> None:
        self._drafter.prefill(ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        self._rule.start()
        return self._sent(self._drafter.propose(text, length, self._rule))

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
