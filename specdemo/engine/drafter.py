"""Who proposes the tokens. A drafter is asked for a draft, then told how many tokens were kept.

The two-call shape follows transformers' ``CandidateGenerator``. A drafter may be as wrong as it likes: the
target's verdict keeps the output the target's. The kinds are in ``drafters``, one module each.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specdemo.engine.draft import Draft, Pick, empty_draft
from specdemo.engine.draft_length import DraftLength
from specdemo.engine.rules import PickingRule


class Drafter(Protocol):
    """Proposes the continuation of a text for the target to judge. One object per run."""

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Start on ``prompt_ids``, of which the target's cache holds all but the last.

        The run will not hold more than ``capacity`` positions.
        """
        ...

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """Draft as many tokens after ``text`` (prompt and output so far) as ``length`` wants."""
        ...

    def observe(self, accepted: int) -> None:
        """Learn that the first ``accepted`` tokens of the last draft were kept."""
        ...


class NoDrafter:
    """Drafts nothing: every round is one plain target step, which is the baseline."""

    def __init__(self, device: torch.device):
        self._draft = empty_draft(device)

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Nothing to prepare."""

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """Always empty."""
        return self._draft

    def observe(self, accepted: int) -> None:
        """Nothing to learn."""


def write_draft(
    step: Callable[[Tensor | None], Tensor],
    position: int,
    length: DraftLength,
    rule: PickingRule,
    id_map: Tensor | None,
    device: torch.device,
    name: str,
) -> Draft:
    """The drafting loop of every kind that computes distributions.

    Args:
        step: From the token just drafted (target id, shape [1]; None at first) to the logits [H]
            of the next one.
        position: Where the first drafted token will stand.
        id_map: Target id of each logit, shape [H]; None where they are the target's own.
        name: Drafter kind, for the record.
    """
    picks: list[Pick] = []
    ids: list[Tensor] = []
    logits: list[Tensor] = []
    steps = 0
    while length.wants_step():
        scores = step(ids[-1] if ids else None)
        steps += 1
        if not length.wants_token(scores):
            break
        where = torch.tensor([position + len(ids)], device=device)
        pick = rule.pick(scores, where, rule.chances(1), id_map)
        picks.append(pick)
        ids.append(pick.row if id_map is None else id_map[pick.row])
        logits.append(scores)
    if not ids:
        return empty_draft(device, steps)
    probs = [pick.probs for pick in picks if pick.probs is not None]
    return Draft(
        ids=torch.cat(ids),
        probs=torch.stack(probs) if probs else None,
        rows=torch.cat([pick.row for pick in picks]) if probs else None,
        logits=torch.stack(logits),
        id_map=id_map,
        steps=steps,
        by=name,
    )


def copied_draft(
    tokens: Iterable[int], matched: int, length: DraftLength, device: torch.device, name: str
) -> Draft:
    """A draft of given tokens (q = 1 each), as many of them as ``length`` wants."""
    return _certain_draft(itertools.takewhile(lambda _: length.wants_copy(matched), tokens), device, name)


def guessed_draft(
    guesses: Iterable[tuple[int, float]], length: DraftLength, device: torch.device, name: str
) -> Draft:
    """A draft of tokens that took no step (q = 1 each), each with the chance it is thought to have."""
    wanted = itertools.takewhile(lambda guess: length.wants_guess(guess[1]), guesses)
    return _certain_draft((token for token, _ in wanted), device, name)


def _certain_draft(tokens: Iterable[int], device: torch.device, name: str) -> Draft:
    ids = torch.tensor(list(tokens), dtype=torch.long, device=device)
    return Draft(ids, by=name if len(ids) else "")
