"""Creation of the drafter for a run. ``records.drafter_kinds`` lists the kinds of drafters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdemo.drafters.other_device import draft_on_device
from specdemo.engine.drafter import Drafter, PickingRule
from specdemo.models.execution import CausalLM
from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.n_gram import NGramTable
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.records.drafter_kinds import DRAFT, NEEDED_NAMES, DrafterKind
from specdemo.records.limits import UserError

if TYPE_CHECKING:
    from specdemo.models.compiled.feature import CompiledFeatureDraft


@dataclass(frozen=True)
class DrafterSpec:
    """The kind of drafter for a run, and the models and tables that it can use.

    Attributes:
        kind: Kind of the drafter.
        target: The target's runtime in the lane that the drafter drafts for, prepared.
        rule: The rule object of that lane.
        draft: The draft model; None if the pair has none.
        draft_device: Device of the draft model; None for the target's device.
        id_map: Target id of each output row of the draft model, shape [H]; None if both models have the same
            vocabulary.
        feature_draft: The head on the target's hidden states; None if the pair has none.
        n_gram: The n-gram table; None if the pair has none.
        script: Ids that the ``scripted`` drafter proposes.
        wrap_draft: For experiments: returns the runtime to use instead of the draft model's own.
    """

    kind: DrafterKind
    target: ModelRuntime
    rule: PickingRule
    draft: CausalLM | None = None
    draft_device: torch.device | None = None
    id_map: Tensor | None = None
    feature_draft: "FeatureDraft | CompiledFeatureDraft | None" = None
    n_gram: NGramTable | None = None
    script: tuple[int, ...] = ()
    wrap_draft: Callable[[Runtime], Runtime] | None = None


def make_drafter(spec: DrafterSpec) -> Drafter:
    """Return a new drafter. Its drafts are on the target's device, even if the draft model is on another one.

    Raises:
        UserError: The pair lacks a model or table that this kind needs.
    """
    here = place = spec.target.device
    if spec.kind.required == DRAFT and spec.draft_device is not None:
        place = spec.draft_device
    return draft_on_device(lambda rule: make_local(replace(spec, rule=rule)), spec.rule, place, here)


def make_local(spec: DrafterSpec) -> Drafter:
    """Return a new drafter whose drafts are on its model's device; errors as for :func:`make_drafter`."""
    kind = spec.kind
    if not kind.module:
        raise UserError("Only a server that is watched has a drafter of its own; choose another drafter.")
    if kind.needs and getattr(spec, kind.needs) is None:
        raise UserError(f"This pair has no {NEEDED_NAMES[kind.needs]}; choose another drafter.")
    return import_module(f"specdemo.drafters.{kind.module}").make(spec)
