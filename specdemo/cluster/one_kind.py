"""Whether timings of several replicas belong in one table."""

from collections.abc import Sequence
from typing import Any

from specdemo.records.limits import UserError

KIND = ("device", "processor_flags", "played", "precision", "arithmetic", "threads")
"""What has to be the same of two replicas for their timings to belong in one table."""


def one_kind(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts that all replicas share, and how many there are.

    Raises:
        UserError: They are of different kinds.
    """
    for name in KIND:
        if len(values := sorted({str(one[name]) for one in facts})) > 1:
            raise UserError(
                f"The replicas differ in {name.replace('_', ' ')} ({'; '.join(values)[:200]}), so their "
                "timings do not belong in one table; ask for devices of one kind."
            )
    return {**facts[0], "replicas": len(facts)}
