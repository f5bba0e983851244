"""Where a student begins: cut from the target's own parts, or a draft that was trained before."""

from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel

from specdemo.models.feature_draft import (
    FeatureDraft,
    default_taps,
    feature_draft_for,
    load_feature_draft,
    save_feature_draft,
)
from specdemo.models.reduced_draft import ReducedHeadDraft, load_draft, save_draft, slice_of_target
from specdemo.pairs.compatible import require_known_ids
from specdemo.records.limits import UserError
from specdemo.training.students import FeatureStudent, ModelStudent

MODEL, FEATURE, N_GRAM = "model", "feature", "n-gram"
ATTENTION = "sdpa"
UNROLLED_STEPS = 3
AnyStudent = ModelStudent | FeatureStudent
Draft = TypeVar("Draft", ReducedHeadDraft, FeatureDraft)


def cut_student(kind: str, target: PreTrainedModel, layers: int, id_map: Tensor, seed: int) -> AnyStudent:
    """An untrained student in fp32 made of parts of ``target``, whose head holds the tokens ``id_map``.

    Args:
        kind: ``MODEL`` or ``FEATURE``.
        layers: Depth of a draft model.

    Raises:
        UserError: The target has fewer layers, or is of another make than drafts can be cut from.
    """
    target.set_attn_implementation(ATTENTION)
    torch.manual_seed(seed)
    if kind == FEATURE:
        return FeatureStudent(_in_fp32(feature_draft_for(target, id_map)), target, UNROLLED_STEPS)
    depth = target.config.get_text_config().num_hidden_layers
    if layers > depth:
        name = target.config._name_or_path
        raise UserError(f"{name} has {depth} layers; choose --layers from 1 to {depth}.")
    # The first layers read the text, the last speak the head's language.
    first = (layers + 1) // 2
    chosen = [*range(first), *range(depth - (layers - first), depth)]
    return ModelStudent(_in_fp32(slice_of_target(target, chosen, id_map)))


def student_from(folder: Path, kind: str, target: PreTrainedModel) -> AnyStudent:
    """The draft in ``folder`` in fp32, to be trained further.

    Raises:
        UserError: It is none of this kind and for this target.
    """
    target.set_attn_implementation(ATTENTION)
    try:
        student: AnyStudent
        if kind == FEATURE:
            student = FeatureStudent(_in_fp32(load_feature_draft(folder, target)), target, UNROLLED_STEPS)
        else:
            student = ModelStudent(_in_fp32(load_draft(folder, target, ATTENTION)))
        _require_fitting(student, target)
    except (OSError, ValueError, KeyError, IndexError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"Cannot go on from {folder}; name a {kind} draft that specdemo train made for this target."
        ) from error
    require_known_ids(student.id_map, target)
    return student


def _require_fitting(student: AnyStudent, target: PreTrainedModel) -> None:
    """Raise ``ValueError`` for a draft of another target's size, or one that reads other layers' states."""
    text = target.config.get_text_config()
    config = student.module.config
    taps = getattr(config, "taps", None)
    if config.hidden_size != text.hidden_size or taps not in (None, default_taps(text.num_hidden_layers)):
        raise ValueError(f"made for a target of width {config.hidden_size} that is tapped at {taps}")


def save_student(student: AnyStudent, out: Path) -> None:
    """Write the draft as the app loads it."""
    if isinstance(student, ModelStudent):
        save_draft(student.module, out)
    else:
        save_feature_draft(student.module, out)


def _in_fp32(draft: Draft) -> Draft:
    """Own weights in fp32 for the optimiser; the borrowed embedding stays the target's."""
    for tensor in draft.own_state().values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.float()
    return draft
