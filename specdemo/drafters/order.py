"""Make a drafter of any kind for a run. The kinds themselves are in ``records.drafter_kinds``, one line each.

Each kind's module has a function ``make``, from an :class:`Order` to a ``Drafter``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

import torch
from torch import Tensor

from specdemo.drafters.other_device import near
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import PickingRule
from specdemo.models.runtime import ModelRuntime, Runtime
from specdemo.records.drafter_kinds import DRAFT, KINDS, NEEDED_NAMES, Kind
from specdemo.records.limits import UserError
from specdemo.records.trace import RunConfig


class Parts(Protocol):
    """What drafters are made of: a pair, as far as they look at it."""

    @property
    def draft(self) -> Any:
        """The draft model, if there is one."""
        ...

    @property
    def id_map(self) -> Tensor | None:
        """Target id of each of its output rows, shape [H]; None where both score the same ids."""
        ...

    @property
    def feature_draft(self) -> Any:
        """The head on the target's states, if there is one."""
        ...

    @property
    def n_gram(self) -> Any:
        """The table of what usually follows, if there is one."""
        ...

    @property
    def draft_device(self) -> torch.device:
        """Where the draft model is."""
        ...

    def script_ids(self, script: str) -> list[int]:
        """The tokens of a text by itself."""
        ...


@dataclass(frozen=True)
class Order:
    """A drafter that is wanted.

    Attributes:
        kind: Of the drafter.
        config: The run it is for.
        parts: What it is made of.
        target: The runtime of the lane it drafts for, prepared.
        rule: The run's own.
        wrap_draft: What is put between the draft model's runtime and who asks it, if anything.
    """

    kind: Kind
    config: RunConfig
    parts: Parts
    target: ModelRuntime
    rule: PickingRule
    wrap_draft: Callable[[Runtime], Runtime] | None = None


def drafter_for(order: Order) -> Drafter:
    """A fresh drafter whose drafts come to the target, wherever the draft model is.

    Raises:
        UserError: The pair lacks what it is made of.
    """
    here = order.target.device
    place = order.parts.draft_device if order.kind.required == DRAFT else here
    return near(lambda seen: make(replace(order, rule=seen)), order.rule, place, here)


def make(order: Order) -> Drafter:
    """A fresh drafter on the device of what it is made of; errors as for :func:`drafter_for`."""
    if not order.kind.module:
        raise UserError("Only a server that is watched has a drafter of its own; choose another drafter.")
    needed = order.kind.required
    if needed and getattr(order.parts, needed) is None:
        raise UserError(f"This pair has no {NEEDED_NAMES[needed]}; choose another drafter.")
    return import_module(f"specdemo.drafters.{order.kind.module}").make(order)


def make_otherwise(order: Order) -> Drafter | None:
    """A drafter of the kind that this one asks where it has nothing to propose; None where it asks nobody."""
    name = order.kind.otherwise
    return make(replace(order, kind=KINDS[name])) if name else None
