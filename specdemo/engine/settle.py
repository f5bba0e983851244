"""What a verdict means for the text. Plain numbers: no tensors, no models."""

from collections.abc import Sequence
from typing import NamedTuple


class Settled(NamedTuple):
    """One round as the text sees it.

    Attributes:
        accepted: Leading drafted tokens that the rule accepted.
        token: The target's own token after them, whether it entered the text or not.
        emitted: Ids that enter the text.
        kept: How many of them were drafted.
        compared: Drafted tokens that count as compared: the kept ones and the first refused.
        own: Whether the target's own token is the last of ``emitted``.
        ended: Whether an end-of-text id is.
    """

    accepted: int
    token: int
    emitted: list[int]
    kept: int
    compared: int
    own: bool
    ended: bool


def settle(accepted: int, token: int, drafted: Sequence[int], eos_ids: frozenset[int]) -> Settled:
    """Cut a round at the first end-of-text id; what comes behind it was never written.

    Args:
        accepted, token: As in :class:`Settled`.
        drafted: All drafted ids.
        eos_ids: Ids that end the text; the one that occurs is emitted.
    """
    written = [*drafted[:accepted], token]
    end = next((place for place, written_id in enumerate(written) if written_id in eos_ids), None)
    emitted = written if end is None else written[: end + 1]
    kept = min(accepted, len(emitted))
    own = len(emitted) > accepted
    compared = min(len(drafted), accepted + 1) if own else kept
    return Settled(accepted, token, emitted, kept, compared, own, end is not None)
