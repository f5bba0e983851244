"""Students (drafts in training): how to create or load them, predict a batch, and save them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from specdemo.models.feature_draft import (
    FeatureDraft,
    default_taps,
    feature_draft_for,
    load_feature_draft,
    save_feature_draft,
)
from specdemo.models.reduced_draft import (
    ReducedHeadDraft,
    fit_screen,
    load_draft,
    save_draft,
    slice_of_target,
)
from specdemo.pairs.compatible import require_known_ids
from specdemo.records.limits import UserError, reason_of
from specdemo.training.budget import FEATURE
from specdemo.training.labelled_text import LabelledSequence

ATTENTION = "sdpa"
UNROLLED_STEPS = 3
SCREEN_STATES = 70_000  # hidden states to which a screen is fitted
Draft = TypeVar("Draft", ReducedHeadDraft, FeatureDraft)


class Prediction(NamedTuple):
    """A student's predictions in one unrolled step, for the labeled positions that the step reaches."""

    log_q: Tensor  # over the draft's head, [positions, H]
    rows: Tensor  # indices of these positions among all labeled positions of the batch, [positions]


class ModelStudent:
    """A draft model in training. It predicts every token from the text before it."""

    def __init__(self, draft: ReducedHeadDraft):
        self.module = draft
        self.id_map = draft.id_map
        self.device = draft.lm_head.weight.device
        self.own_state = draft.own_state

    def predict(self, batch: Sequence[LabelledSequence]) -> Iterator[Prediction]:
        ids = padded_ids(batch, self.device)
        embeddings = self.module.model.get_input_embeddings()(ids).float()
        hidden = self.module.model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        kept = torch.cat([hidden[row, item.start : len(item.ids) - 1] for row, item in enumerate(batch)])
        log_q = self.module.lm_head(kept).float().log_softmax(-1)
        yield Prediction(log_q, torch.arange(len(log_q), device=self.device))


class FeatureStudent:
    """A feature draft in training. Its first step reads the target's states, later ones its own output.

    This is the "training-time test" of EAGLE-3 (Li et al. 2025). In step s, counted from 0, each position
    attends to true pairs of state and token at least s positions back. For the nearer positions it attends to
    the pairs of the draft's own steps, exactly as in decoding.
    """

    def __init__(self, draft: FeatureDraft, steps: int = UNROLLED_STEPS):
        self.module = draft
        self.id_map = draft.id_map
        self.device = draft.fuse.weight.device
        self.own_state = draft.own_state
        self._steps = steps

    def predict(self, batch: Sequence[LabelledSequence]) -> Iterator[Prediction]:
        """Yield one prediction per step.

        Pair j, the state at position j and token j + 1, predicts token j + 2. Its label is at position j + 1.
        """
        ids = padded_ids(batch, self.device)
        labelled = torch.cat([torch.arange(i.start, len(i.ids) - 1, device=self.device) for i in batch])
        row_of = torch.cat(
            [torch.full((len(i.ids) - 1 - i.start,), n, device=self.device) for n, i in enumerate(batch)]
        )
        kept = [item.states[: len(item.ids) - 1] for item in batch if item.states is not None]
        states = self.module.fuse(pad_sequence(kept, batch_first=True).to(self.device).float())
        attention = UnrolledAttention(self.module.config.head_dim)
        positions = torch.arange(states.shape[1], device=self.device)[None]
        for step in range(self._steps):
            output = self.module.step(states, ids[:, 1:], positions, attention)
            reached = (labelled - 1 >= step).nonzero()[:, 0]
            chosen = output[row_of[reached], labelled[reached] - 1]
            yield Prediction(self.module.logits(chosen).float().log_softmax(-1), reached)
            states = output.roll(1, dims=1)


class UnrolledAttention:
    """Attention that keeps the keys and values of all unrolled steps; call it once per step, in order."""

    def __init__(self, head_dim: int):
        self._scale = head_dim**-0.5
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        step, n, group = len(self._keys), key.shape[2], query.shape[1] // key.shape[1]
        self._keys.append(key.repeat_interleave(group, 1))
        self._values.append(value.repeat_interleave(group, 1))
        ahead = torch.ones(n, n, dtype=torch.bool, device=key.device).triu(1 - step)
        scores = (query @ self._keys[0].transpose(-1, -2)).float() * self._scale
        parts = [scores.masked_fill(ahead, -1e4)]
        # A query also attends to the draft's own steps: to step ``own`` at ``step - own`` positions back.
        earlier = [(step - own, own) for own in range(1, step + 1)]
        for back, own in earlier:
            same = (query * self._keys[own].roll(back, dims=2)).sum(-1, keepdim=True).float() * self._scale
            parts.append(same)
        weights = torch.cat(parts, -1).softmax(-1).to(value.dtype)
        context = weights[..., :n] @ self._values[0]
        for column, (back, own) in enumerate(earlier, n):
            context = context + weights[..., column, None] * self._values[own].roll(back, dims=2)
        return context


def padded_ids(batch: Sequence[LabelledSequence], device: torch.device) -> Tensor:
    """Return the ids [batch, longest], padded on the right so that causal attention never reads padding."""
    return pad_sequence([item.ids.long() for item in batch], batch_first=True).to(device)


Student = ModelStudent | FeatureStudent


def new_student(kind: str, target: PreTrainedModel, layers: int, id_map: Tensor, seed: int) -> Student:
    """Return an untrained student in fp32, built from parts of ``target``."""
    target.set_attn_implementation(ATTENTION)
    torch.manual_seed(seed)
    if kind == FEATURE:
        return FeatureStudent(_in_fp32(feature_draft_for(target, id_map)))
    depth = target.config.get_text_config().num_hidden_layers
    if layers > depth:
        name = target.config._name_or_path
        raise UserError(f"The target {name} has {depth} layers; set --layers to a number from 1 to {depth}.")
    # Take layers from both ends: the first ones read the text, the last ones prepare the output.
    first = (layers + 1) // 2
    chosen = [*range(first), *range(depth - (layers - first), depth)]
    return ModelStudent(_in_fp32(slice_of_target(target, chosen, id_map)))


def load_student(folder: Path, kind: str, target: PreTrainedModel) -> Student:
    """Load the draft in ``folder`` in fp32, to train it further."""
    target.set_attn_implementation(ATTENTION)
    try:
        student: Student
        if kind == FEATURE:
            student = FeatureStudent(_in_fp32(load_feature_draft(folder, target)))
        else:
            student = ModelStudent(_in_fp32(load_draft(folder, target, ATTENTION)))
        taps = getattr(student.module.config, "taps", None)
        if taps not in (None, default_taps(target.config.get_text_config().num_hidden_layers)):
            raise ValueError(f"made for a target with taps {taps}")
    except (OSError, ValueError, KeyError, IndexError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"Cannot continue from {folder} ({reason_of(error)}); choose the folder of a draft "
            f"that `specdemo train --kind {kind}` made for this target."
        ) from error
    require_known_ids(student.id_map, target)
    return student


@torch.inference_mode()
def fit_student_screen(student: Student, text: Iterable[LabelledSequence]) -> None:
    """Fit a screen of the student's head to its hidden states on ``text``, and put it into the draft."""
    found: list[Tensor] = []
    head = student.module.lm_head
    hook = head.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].float().cpu()))
    try:
        for item in text:
            for _ in student.predict([item]):
                pass
            if sum(map(len, found)) >= SCREEN_STATES:
                break
    finally:
        hook.remove()
    student.module.screen = fit_screen(head.weight.cpu(), torch.cat(found)).to(head.weight.device)


def save_student(student: Student, out: Path) -> None:
    if isinstance(student, ModelStudent):
        save_draft(student.module, out)
    else:
        save_feature_draft(student.module, out)


def _in_fp32(draft: Draft) -> Draft:
    """Convert the draft's own weights to fp32 for the optimizer, but not the target's embedding."""
    for tensor in draft.own_state().values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.float()
    return draft
