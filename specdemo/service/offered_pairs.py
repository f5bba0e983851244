"""The pairs of models that visitors may ask for by name. This module does not load models."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdemo.asset_paths import BUILT_IN
from specdemo.records.limits import unknown_pair

HUB_ID = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"
ANY_PAIR = re.compile(rf"({HUB_ID}), ?({HUB_ID})", re.ASCII)
"""The name of a pair of any two hub models: ``TARGET/ID, DRAFT/ID``. It never names a local folder."""
OWN = "own"
"""The name of the default pair if it is not a preset."""


@dataclass(frozen=True)
class OfferedPairs:
    """The pairs that one app offers.

    Attributes:
        default: The name of the default pair.
        titles: The name of each pair, the default one included, mapped to its title on the page.
        any_model: True if a request may name any two models of the hub.
        watched: The names in ``titles`` that are watched servers. These accept only jobs of kind ``RUN``.
    """

    default: str = BUILT_IN
    titles: Mapping[str, str] = field(default_factory=dict)
    any_model: bool = False
    watched: frozenset[str] = frozenset()

    def named(self, asked: Any) -> str:
        """Return the name of the pair that a request asks for.

        Args:
            asked: The untrusted name; None and the empty string mean the default pair.

        Raises:
            UserError: No pair of this name is offered.
        """
        if asked is None or asked in ("", self.default):
            return self.default
        if isinstance(asked, str):
            if asked in self.titles:
                return asked
            if self.any_model and (found := two_models(asked)):
                return ", ".join(found)
        any_two = ["or any two models as TARGET/ID, DRAFT/ID"] if self.any_model else []
        raise unknown_pair(asked, [*{self.default: "", **self.titles}, *any_two])


def two_models(name: str) -> tuple[str, str] | None:
    """Return target id and draft id if the name has the form ``TARGET/ID, DRAFT/ID``, else None."""
    found = ANY_PAIR.fullmatch(name)
    return found and (found[1], found[2])
