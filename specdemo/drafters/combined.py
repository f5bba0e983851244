"""The drafter that combines a model with copies of earlier text and a table of n-grams."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.factory import DrafterSpec, make_local
from specdemo.drafters.feature import FeatureDrafter
from specdemo.drafters.lookup import LONGEST_MATCH, NgramIndex, PromptLookupDrafter
from specdemo.engine.draft_length import COPY_PRIORS, DraftLength
from specdemo.engine.drafter import Copy, Draft, Drafter, PickingRule
from specdemo.models.n_gram import NGramTable
from specdemo.records.drafter_kinds import PROMPT_LOOKUP

# With at least SHORTEST_COPY matching tokens, a copy is right more often than a model, and needs no step. A
# shorter match makes the copied token more likely. With fewer than SHORTEST_HINT tokens, it has no effect.
SHORTEST_COPY, SHORTEST_HINT = 6, 3
# What a copied token and a table's token add to the model's distribution, times their acceptance rates. The
# weights with the most tokens per second, of eight, on two files of prompts.
COPY_WEIGHT, TABLE_WEIGHT = 0.5, 0.2


class TextHints:
    """The ``Hints`` of earlier text and of a table; at least ``copied`` or ``hinted`` tokens must match."""

    def __init__(self, table: NGramTable | None, copied: int = SHORTEST_COPY, hinted: int = SHORTEST_HINT):
        self._table = table
        self._copied, self._hinted = copied, hinted
        self._index = NgramIndex()
        self._text: Sequence[int] = ()
        self._rows: dict[int, int] | None = None  # draft row of each target id

    def begin(self) -> None:
        self._index = NgramIndex()

    def follow(self, text: Sequence[int]) -> None:
        """Continue ``text``; earlier calls had the start of it."""
        self._text = text
        self._index.extend(text)

    def certain(self, drafted: Sequence[int]) -> Copy | None:
        match = self._index.find(self._end(drafted), self._copied)
        return match and Copy(self._text[match.next_position], match.size, PROMPT_LOOKUP)

    def mixed(self, drafted: Sequence[int], logits: Tensor, id_map: Tensor | None) -> Tensor:
        """Return the logits of q + Σ w · (1 at the hint), without dividing by the sum."""
        end = self._end(drafted)
        weights: list[tuple[int, float]] = []
        if (match := self._index.find(end, self._hinted)) is not None:
            rate = COPY_PRIORS[match.size - 1]
            weights.append((self._text[match.next_position], COPY_WEIGHT * rate))
        if self._table is not None and (found := self._table.after(end)) is not None:
            weights.append((found.token, TABLE_WEIGHT * found.probability))
        mixed, total = logits.clone(), logits.logsumexp(-1)
        for token, weight in weights:
            row = self._row(token, id_map)
            if row is not None and weight > 0:
                mixed[row] = torch.logaddexp(mixed[row], total + math.log(weight))
        return mixed

    def _end(self, drafted: Sequence[int]) -> list[int]:
        return [*self._text[-LONGEST_MATCH:], *drafted][-LONGEST_MATCH:]

    def _row(self, token: int, id_map: Tensor | None) -> int | None:
        if id_map is None:
            return token
        if self._rows is None:
            self._rows = {target_id: row for row, target_id in enumerate(id_map.tolist())}
        return self._rows.get(token)


class CombinedDrafter(Drafter):
    """Drafts with a model whose distribution is mixed with hints, and copies tokens that are nearly certain.

    The draft token is drawn from the mixture, and the mixture is the q of the verification rule. So the
    output has the target's distribution, whatever the weights are.
    """

    def __init__(self, model: DraftModelDrafter | FeatureDrafter, hints: TextHints):
        self._model = model
        self._hints = hints

    def begin(self, capacity: int) -> None:
        self._model.begin(capacity)
        self._hints.begin()

    def prefill(self, ids: Sequence[int]) -> None:
        self._model.prefill(ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        self._hints.follow(text)
        return self._model.propose(text, length, rule, self._hints)

    def observe(self, accepted: int) -> None:
        self._model.observe(accepted)


class FallbackDrafter(Drafter):
    """Copies if enough tokens match, and otherwise calls the model's drafter. For a GPU.

    There, a look at each draft token would make the CPU wait for the GPU.
    """

    def __init__(self, copies: PromptLookupDrafter, model: Drafter):
        self._copies, self._model = copies, model
        self._has_copied = False

    def begin(self, capacity: int) -> None:
        self._copies.begin(capacity)
        self._model.begin(capacity)

    def prefill(self, ids: Sequence[int]) -> None:
        self._copies.prefill(ids)
        self._model.prefill(ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        draft = self._copies.propose(text, length, rule)
        self._has_copied = len(draft) > 0
        return draft if self._has_copied else self._model.propose(text, length, rule)

    def observe(self, accepted: int) -> None:
        if not self._has_copied:  # else the model's cache stays valid
            self._model.observe(accepted)


def make(spec: DrafterSpec) -> Drafter:
    model = make_local(replace(spec, kind=spec.kind.model(spec.parts)))
    assert isinstance(model, DraftModelDrafter | FeatureDrafter)
    if model.device.type == "cpu":
        return CombinedDrafter(model, TextHints(spec.n_gram))
    return FallbackDrafter(PromptLookupDrafter(model.device, SHORTEST_COPY), model)
