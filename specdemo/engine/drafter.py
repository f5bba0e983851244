"""The interface of drafters: what they are asked, what they return, and the loops that they share."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength


@dataclass(frozen=True)
class Pick:
    """One token chosen by a draft model.

    Attributes:
        row: Index into the draft's vocabulary, shape [1].
        probs: The draft distribution q that the token was drawn from, shape [H]; None if the rule treats
            the choice as certain (greedy).
    """

    row: Tensor
    probs: Tensor | None


class PickingRule(Protocol):
    """The part of a verification rule that a drafter uses: how to pick a token from draft logits."""

    def chances(self, count: int) -> Tensor | None:
        """Return uniform numbers for the next ``count`` picks, shape [count]; None if picking needs none."""
        ...

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """Choose the draft's next token.

        Nothing is read back from the device, so the choice can be captured together with the pass.

        Args:
            logits: Draft logits, shape [H].
            where: Position of the token in the text, shape [1].
            chance: One of :meth:`chances`, shape [1].
            id_map: Target id of each logit, shape [H]; None if the vocabularies are the same.
        """
        ...


@dataclass(frozen=True)
class Draft:
    """The draft tokens of one round.

    Attributes:
        ids: Target ids, int64, shape [k]; k may be 0.
        probs: q over the draft's vocabulary, shape [k, H]; None for point masses (q = 1).
        rows: Index of each token in the draft's vocabulary, shape [k]; None for point masses.
        logits: Raw draft logits for display, shape [k, H]; None if no model drafted.
        id_map: Target id of each draft row, shape [H]; None if the vocabularies are the same.
        steps: Number of draft passes made.
        by: Name of the drafter kind that wrote it.
    """

    ids: Tensor
    probs: Tensor | None = None
    rows: Tensor | None = None
    logits: Tensor | None = None
    id_map: Tensor | None = None
    steps: int = 0
    by: str = ""

    def __len__(self) -> int:
        return len(self.ids)


class Drafter:
    """Proposes the continuation of a text for the target to verify. One object per run.

    The two calls per round follow transformers' ``CandidateGenerator``: propose a draft, then learn how many
    of its tokens were kept. A drafter may be wrong as often as it likes; the target's verdict keeps the
    output the target's own. Each kind is a module in ``specdemo.drafters``.
    """

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Start a run. The target's cache already holds all of ``prompt_ids`` but the last.

        Args:
            prompt_ids: At least one id.
            capacity: Maximum number of positions that the run will hold.
        """

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """Draft as many tokens after ``text`` (prompt and output so far) as ``length`` wants."""
        raise NotImplementedError

    def observe(self, accepted: int) -> None:
        """Learn that the first ``accepted`` tokens of the last draft were kept."""


class NoDrafter(Drafter):
    """Drafts nothing: every round is one plain target step, which is the baseline."""

    def __init__(self, device: torch.device):
        self._draft = empty_draft(device)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        return self._draft


def empty_draft(device: torch.device, steps: int = 0) -> Draft:
    """Return a draft of no tokens."""
    return Draft(torch.empty(0, dtype=torch.long, device=device), steps=steps)


def write_draft(
    step: Callable[[Tensor | None], Tensor],
    position: int,
    length: DraftLength,
    rule: PickingRule,
    id_map: Tensor | None,
    device: torch.device,
    name: str,
) -> Draft:
    """Draft token by token: the loop of every drafter that computes distributions.

    Args:
        step: Maps the token just drafted (target id, shape [1]; None for the first step) to the logits [H]
            of the next one.
        position: Position of the first draft token in the text.
        length: Decides after each step whether to go on.
        rule: Picks a token from the logits.
        id_map: Target id of each logit, shape [H]; None if they are the target's own.
        device: Device of the logits.
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
    """Return a draft of given ``tokens`` (q = 1 each), as many as ``length`` wants.

    ``matched`` is the number of text tokens that match the place the tokens were copied from.
    """
    return _certain_draft(itertools.takewhile(lambda _: length.wants_copy(matched), tokens), device, name)


def table_draft(
    tokens: Iterable[tuple[int, float]], length: DraftLength, device: torch.device, name: str
) -> Draft:
    """Return a draft of (token, expected acceptance) pairs (q = 1 each), as many as ``length`` wants."""
    wanted = itertools.takewhile(lambda found: length.wants_table_token(found[1]), tokens)
    return _certain_draft((token for token, _ in wanted), device, name)


def _certain_draft(tokens: Iterable[int], device: torch.device, name: str) -> Draft:
    ids = torch.tensor(list(tokens), dtype=torch.long, device=device)
    return Draft(ids, by=name if len(ids) else "")
