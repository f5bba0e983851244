"""Draft on one device for a target on another.

The drafter works where its model is, with everything it needs; its draft is sent to the target once a
round, and so are the uniform numbers to the draft. Knows no models.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdemo.engine.draft import Draft, Pick
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import PickingRule
from specdemo.records.limits import MAX_K


def near(
    make: Callable[[PickingRule], Drafter],
    rule: PickingRule,
    drafter_device: torch.device,
    target_device: torch.device,
) -> Drafter:
    """A drafter whose drafts come to the target, wherever it works itself.

    Args:
        make: Makes it from the rule as it is to see it.
        rule: The run's own.
        drafter_device: Where it works.
    """
    if drafter_device == target_device:
        return make(rule)
    distant = DistantRule(rule, drafter_device)
    return DistantDrafter(make(distant), distant, target_device)


class DistantRule:
    """A run's rule as a drafter on another device sees it.

    The numbers come from the run's one generator, as always: a second one with the same seed would make
    the draft's choices depend on the coins they are judged by.

    Args:
        rule: The run's own.
        device: Of the draft.
    """

    def __init__(self, rule: PickingRule, device: torch.device):
        self._rule = rule
        self._device = device
        self._chances = self._sent(0)

    def start(self) -> None:
        """Have numbers for the longest possible draft sent."""
        self._chances = self._sent(MAX_K)

    def chances(self, count: int) -> Tensor | None:
        """The next of the numbers that were sent."""
        if self._chances is None:
            return None
        first, self._chances = self._chances[:count], self._chances[count:]
        return first

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """As the run's rule picks."""
        return self._rule.pick(logits, where, chance, id_map)

    def _sent(self, count: int) -> Tensor | None:
        chances = self._rule.chances(count)
        return None if chances is None else chances.to(self._device)


class DistantDrafter:
    """A drafter on another device than the target it drafts for.

    Args:
        drafter: Made with ``rule``.
        rule: The run's rule for the drafter's device.
        device: Of the target.
    """

    def __init__(self, drafter: Drafter, rule: DistantRule, device: torch.device):
        self._drafter = drafter
        self._rule = rule
        self._device = device
        self._id_map: Tensor | None = None

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """The drafter starts where it is."""
        self._drafter.begin(prompt_ids, capacity)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """Its draft, sent to the target."""
        self._rule.start()
        return self._sent(self._drafter.propose(text, length, self._rule))

    def observe(self, accepted: int) -> None:
        """Passed on."""
        self._drafter.observe(accepted)

    def _sent(self, draft: Draft) -> Draft:
        """A draft with its tensors on the target's device; the id map, always the same, goes there once."""
        if draft.id_map is not None and self._id_map is None:
            self._id_map = draft.id_map.to(self._device)
        moved = {
            name: tensor.to(self._device)
            for name in ("ids", "probs", "rows", "logits")
            if (tensor := getattr(draft, name)) is not None
        }
        return replace(draft, **moved, id_map=None if draft.id_map is None else self._id_map)
