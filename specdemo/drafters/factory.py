"""Creation of the drafter for a run. ``records.drafter_kinds`` lists the kinds of drafters."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdemo.drafters.other_device import draft_on_device
from specdemo.engine.drafter import Drafter
from specdemo.models.execution import CausalLM
from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.n_gram import NGramTable
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.records.drafter_kinds import DRAFT, DrafterKind, parts_of
from specdemo.records.limits import UserError, missing_part

if TYPE_CHECKING:
    from specdemo.models.compiled.feature import CompiledFeatureDraft


@dataclass(frozen=True)
class DrafterSpec:
    """The kind of drafter for a run, and the models and tables of the pair."""

    kind: DrafterKind
    target: ModelRuntime  # the prepared runtime of the lane that the drafter drafts for
    draft: CausalLM | None = None
    draft_device: torch.device | None = None  # None for the target's device
    # The target id of each output row of the draft model, shape [H]; None if both have the same vocabulary.
    id_map: Tensor | None = None
    feature_draft: "FeatureDraft | CompiledFeatureDraft | None" = None
    n_gram: NGramTable | None = None
    script: tuple[int, ...] = ()  # ids that the scripted drafter proposes
    # For experiments: returns the runtime to use instead of the draft model's own.
    wrap_draft: Callable[[Runtime], Runtime] | None = None


def make_drafter(spec: DrafterSpec) -> Drafter:
    """Return a new drafter whose drafts are on the target's device, wherever the draft model is."""
    target_device = drafter_device = spec.target.device
    if spec.kind.drafting_kind(parts_of(spec)).needs == DRAFT and spec.draft_device is not None:
        drafter_device = spec.draft_device
    return draft_on_device(make_local(spec), drafter_device, target_device)


def make_local(spec: DrafterSpec) -> Drafter:
    """Return a new drafter whose drafts are on its model's device."""
    kind = spec.kind
    if not kind.module:
        raise UserError(
            f'The drafter "{kind.name}" works only when specdemo watches a model server; choose another '
            "drafter."
        )
    parts = parts_of(spec)
    if (needed := kind.drafting_kind(parts).needs) and needed not in parts:
        raise missing_part(kind)
    return import_module(f"specdemo.drafters.{kind.module}").make(spec)
