"""The two kinds of draft as things to be trained: from a batch of sequences to log-probabilities.

A student says, for each labelled position, how likely it holds every token of its head; for a
feature draft once per unrolled step. What is done with that is ``distil``'s business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.models.reduced_draft import ReducedHeadDraft
from specdemo.training.write import LabelledSequence


@dataclass(frozen=True)
class Prediction:
    """A student's view of the positions of one batch that it could predict.

    Attributes:
        log_q: Log-probabilities over the draft's head, [positions, H].
        rows: Which of the batch's labelled positions these are, int64, [positions].
    """

    log_q: Tensor
    rows: Tensor


class Student(Protocol):
    """A draft in training."""

    @property
    def module(self) -> nn.Module:
        """The draft."""
        ...

    @property
    def id_map(self) -> Tensor:
        """Target ids of its head's rows, shape [H]."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it is trained."""
        ...

    def own_state(self) -> dict[str, Tensor]:
        """What is trained and stored."""
        ...

    def predict(self, batch: Sequence[LabelledSequence]) -> Iterator[Prediction]:
        """One prediction per drafted step, each of as many labelled positions as that step reaches."""
        ...


class ModelStudent:
    """A draft model predicts every token from the text alone."""

    def __init__(self, draft: ReducedHeadDraft):
        self.module = draft
        self.id_map = draft.id_map
        self.device = draft.lm_head.weight.device
        self.own_state = draft.own_state

    def predict(self, batch: Sequence[LabelledSequence]) -> Iterator[Prediction]:
        """One step."""
        ids = pad(batch, self.device)
        embeddings = self.module.model.get_input_embeddings()(ids).float()
        hidden = self.module.model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        kept = torch.cat([hidden[row, item.start : len(item.ids) - 1] for row, item in enumerate(batch)])
        log_q = self.module.lm_head(kept).float().log_softmax(-1)
        yield Prediction(log_q, torch.arange(len(log_q), device=self.device))


class FeatureStudent:
    """A feature draft predicts from the target's states, then from its own output, step by step.

    "Training-time test" of EAGLE-3 (Li et al. 2025): step s reads true pairs up to s positions back
    and its own earlier steps' pairs since then, exactly as decoding will.

    Args:
        draft: The student.
        target: Gives the states; not trained.
        steps: Unrolled steps.
    """

    def __init__(self, draft: FeatureDraft, target: PreTrainedModel, steps: int):
        self.module = draft
        self.id_map = draft.id_map
        self.device = draft.fuse.weight.device
        self.own_state = draft.own_state
        self._target = target
        self._layers = [decoder_layers(target)[index] for index in draft.config.taps]
        self._steps = steps

    def predict(self, batch: Sequence[LabelledSequence]) -> Iterator[Prediction]:
        """``steps`` steps; pair j predicts token j + 2, so the label at position j + 1."""
        ids = pad(batch, self.device)
        labelled = torch.cat([torch.arange(i.start, len(i.ids) - 1, device=self.device) for i in batch])
        row_of = torch.cat(
            [torch.full((len(i.ids) - 1 - i.start,), n, device=self.device) for n, i in enumerate(batch)]
        )
        states = self.module.fuse(self._states(batch, ids))
        attention = UnrolledAttention(self.module.config.head_dim)
        positions = torch.arange(states.shape[1], device=self.device)[None]
        for step in range(self._steps):
            output = self.module.step(states, ids[:, 1:], positions, attention)
            reached = (labelled - 1 >= step).nonzero()[:, 0]
            chosen = output[row_of[reached], labelled[reached] - 1]
            yield Prediction(self.module.logits(chosen).float().log_softmax(-1), reached)
            states = output.roll(1, dims=1)

    @torch.no_grad()
    def _states(self, batch: Sequence[LabelledSequence], ids: Tensor) -> Tensor:
        """The target's states behind the tapped layers, [batch, n − 1, taps·d]: kept ones, or made now."""
        kept = [item.states[: len(item.ids) - 1] for item in batch if item.states is not None]
        if len(kept) == len(batch):
            return nn.utils.rnn.pad_sequence(kept, batch_first=True).to(self.device).float()
        with torch.autocast(self.device.type, enabled=False), hidden_states(self._layers) as found:
            self._target.base_model(input_ids=ids, use_cache=False)
        return torch.cat(found, -1)[:, :-1].float()


class UnrolledAttention:
    """Attention of unrolled steps: call it once a step, in order; it remembers earlier steps' pairs."""

    def __init__(self, head_dim: int):
        self._scale = head_dim**-0.5
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Shapes as ``feature.Attend``; padding is behind the text and never looked at."""
        step, n, group = len(self._keys), key.shape[2], query.shape[1] // key.shape[1]
        self._keys.append(key.repeat_interleave(group, 1))
        self._values.append(value.repeat_interleave(group, 1))
        ahead = torch.ones(n, n, dtype=torch.bool, device=key.device).triu(1 - step)
        scores = (query @ self._keys[0].transpose(-1, -2)).float() * self._scale
        parts = [scores.masked_fill(ahead, -1e4)]
        for back, own in self._own_steps(self._keys):
            same = (query * own.roll(back, dims=2)).sum(-1, keepdim=True).float() * self._scale
            parts.append(same)
        weights = torch.cat(parts, -1).softmax(-1).to(value.dtype)
        context = weights[..., :n] @ self._values[0]
        for column, (back, own) in enumerate(self._own_steps(self._values)):
            context = context + weights[..., n + column, None] * own.roll(back, dims=2)
        return context

    @staticmethod
    def _own_steps(tensors: list[Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Each earlier step's pairs with how far back the one on this query's chain lies."""
        for step in range(1, len(tensors)):
            yield len(tensors) - 1 - step, tensors[step]


def pad(batch: Sequence[LabelledSequence], device: torch.device) -> Tensor:
    """Right-padded ids [batch, longest]; causal attention never looks at the padding."""
    width = max(len(item.ids) for item in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    for row, item in enumerate(batch):
        ids[row, : len(item.ids)] = item.ids
    return ids.to(device)
