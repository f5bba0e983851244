"""The interface of drafters, the drafts that they return, and the drafting loops that they share."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength


class Pick(NamedTuple):
    """One token chosen by a draft model."""

    row: Tensor  # index of the token in the draft's vocabulary, shape [1]
    probs: Tensor | None  # the distribution q that it was drawn from, shape [H]; None if q = 1 (greedy)


class PickingRule(Protocol):
    """The part of a verification rule that drafters use: the choice of a token from draft logits."""

    def uniforms(self, count: int) -> Tensor | None:
        """Draw uniform random numbers [count] for the next picks; None if the rule picks without them."""
        ...

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        """Choose the next draft token. A CUDA graph can record this, because nothing is read from the device.

        Args:
            logits: Draft logits, shape [H].
            where: Position of the token in the text, shape [1].
            uniform: The next number from :meth:`uniforms`, shape [1]; None if that method returns None.
            id_map: Target id of each logit, shape [H]; None if both models have the same vocabulary.
        """
        ...


@dataclass(frozen=True)
class Draft:
    """The draft tokens of one round."""

    ids: Tensor  # target ids, int64, shape [k]; k may be 0
    # The draft distributions q over the draft's vocabulary, shape [k, H]; None if q = 1 for every token.
    probs: Tensor | None = None
    # The index of each token in the draft's vocabulary, shape [k]; None without ``probs``.
    rows: Tensor | None = None
    logits: Tensor | None = None  # raw draft logits for display, shape [k, H]; None if no model drafted
    # The target id of each id of the draft, shape [H]; None if both models have the same vocabulary.
    id_map: Tensor | None = None
    steps: int = 0  # number of draft passes
    by: str = ""  # name of the drafter kind; empty if there are no tokens
    # Name of the kind that copied each token, "" for a model's tokens; empty if ``by`` drafted all tokens.
    copied_by: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


class Copy(NamedTuple):
    """A next token that was copied from earlier text."""

    token: int
    matched: int  # number of matching tokens before it
    by: str  # name of the drafter kind


class Hints(Protocol):
    """Sources of next tokens that need no passes. They help a model to draft."""

    def certain(self, drafted: Sequence[int]) -> Copy | None:
        """Return a token that is nearly certain to follow the text and ``drafted``, or None."""
        ...

    def mixed(self, drafted: Sequence[int], logits: Tensor, id_map: Tensor | None) -> Tensor:
        """Return draft logits [H] in which likely next tokens have a higher probability."""
        ...


class Drafter:
    """Base class of drafters. A drafter proposes draft tokens for the target to verify.

    Each run has its own object. A round calls :meth:`propose`, and then :meth:`observe` with the number of
    draft tokens that were kept, like transformers' ``CandidateGenerator``. Wrong draft tokens cost time but
    never change the output's distribution. Each kind of drafter is a module in ``specdemo.drafters``.
    """

    def begin(self, capacity: int) -> None:
        """Start a run; ``capacity`` is its cache length in positions."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Process a part of the prompt, after the target. All parts together lack the prompt's last token."""

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        """Return a draft that continues ``text``.

        Args:
            text: Ids of the prompt and the output so far.
            length: Decides how many tokens to draft.
            rule: Picks tokens from draft logits.
        """
        raise NotImplementedError

    def observe(self, accepted: int) -> None:
        """Learn that the text kept the first ``accepted`` tokens of the last draft."""


class NoDrafter(Drafter):
    """Drafts nothing, so that every round is a target pass over one token. The baseline uses it."""

    def __init__(self, device: torch.device):
        self._draft = empty_draft(device)

    def propose(self, text: Sequence[int], length: DraftLength, rule: PickingRule) -> Draft:
        return self._draft


def empty_draft(device: torch.device, steps: int = 0) -> Draft:
    return Draft(torch.empty(0, dtype=torch.long, device=device), steps=steps)


def write_draft(
    step: Callable[[Tensor | None], Tensor],
    position: int,
    length: DraftLength,
    rule: PickingRule,
    id_map: Tensor | None,
    device: torch.device,
    name: str,
    hints: Hints | None = None,
    skips: bool = False,
) -> Draft:
    """Draft token by token with a model; ``position`` is that of the first draft token in the text.

    ``step`` makes a draft pass. It takes the draft tokens since the last step (target ids, shape [n]; None if
    there are none) and returns the logits [H] of the next token. A token that is certain by ``hints`` needs
    no step. If the model cannot skip a step (``skips``), it makes no more steps after such a token.
    """
    tokens: list[_Token] = []
    unread: list[Tensor] = []
    drafted: list[int] = []  # filled only with hints, because reading a token can make the device wait
    steps, has_copies = 0, False
    while True:
        if hints is not None and (copy := hints.certain(drafted)) and length.wants_copy(copy.matched):
            tokens.append(_Token(torch.tensor([copy.token], device=device), None, None, copy.by))
            unread.append(tokens[-1].id)
            drafted.append(copy.token)
            has_copies = True
            continue
        if (has_copies and not skips) or not length.wants_step():
            break
        scores = step(torch.cat(unread) if unread else None)
        steps += 1
        if hints is not None:
            scores = hints.mixed(drafted, scores, id_map)
        if not length.wants_token(scores):
            break
        where = torch.tensor([position + len(tokens)], device=device)
        pick = rule.pick(scores, where, rule.uniforms(1), id_map)
        tokens.append(_Token(pick.row if id_map is None else id_map[pick.row], pick, scores))
        unread = [tokens[-1].id]
        if hints is not None:
            drafted.append(int(tokens[-1].id))
    if not tokens:
        return empty_draft(device, steps)
    ids = torch.cat([token.id for token in tokens])
    copied_by = tuple(token.copied_by for token in tokens) if has_copies else ()
    logits = [token.logits for token in tokens if token.logits is not None]
    if not logits:
        return Draft(ids, by=copied_by[0])
    if has_copies:
        tokens, id_map = _with_copies_in_vocabulary(tokens, id_map)
    picks = [token.pick for token in tokens if token.pick is not None]
    probs = [pick.probs for pick in picks if pick.probs is not None]
    return Draft(
        ids=ids,
        probs=torch.stack(probs) if probs else None,
        rows=torch.cat([pick.row for pick in picks]) if probs else None,
        # Copied tokens have no logits; their zeros are not shown.
        logits=torch.stack([torch.zeros_like(logits[0]) if t.logits is None else t.logits for t in tokens]),
        id_map=id_map,
        steps=steps,
        by=name,
        copied_by=copied_by,
    )


class _Token(NamedTuple):
    """A draft token while its draft is written."""

    id: Tensor  # target id, shape [1]
    pick: Pick | None  # None if the token is copied
    logits: Tensor | None
    copied_by: str = ""


def _with_copies_in_vocabulary(
    tokens: list[_Token], id_map: Tensor | None
) -> tuple[list[_Token], Tensor | None]:
    """Return the tokens with a ``Pick`` for each copy, with q = 1, and the id map that the picks need.

    The draft's vocabulary is extended by copied ids that it lacks.
    """
    likes = [token.pick.probs for token in tokens if token.pick is not None and token.pick.probs is not None]
    if not likes:
        return tokens, id_map
    copies = torch.cat([token.id for token in tokens if token.pick is None])
    width = len(likes[0])
    if id_map is not None:
        id_map = torch.cat([id_map, copies[~torch.isin(copies, id_map)].unique()])
    extended = width if id_map is None else len(id_map)
    found = []
    for token in tokens:
        row = token.id if id_map is None else (id_map == token.id).nonzero()[0]
        probs = likes[0].new_zeros(extended)
        if token.pick is None:
            probs[row] = 1.0
        elif token.pick.probs is not None:
            row, probs[:width] = token.pick.row, token.pick.probs
        found.append(token._replace(pick=Pick(row, probs)))
    return found, id_map


def copied_draft(
    tokens: Iterable[int], matched: int, length: DraftLength, device: torch.device, name: str
) -> Draft:
    """Return a draft with q = 1 of the first of ``tokens``, before which ``matched`` tokens match the text's
    end."""
    matches = itertools.count(matched)
    copied = itertools.takewhile(lambda _: length.wants_copy(next(matches)), tokens)
    return _certain_draft(copied, device, name)


def table_draft(
    tokens: Iterable[tuple[int, float]], length: DraftLength, device: torch.device, name: str
) -> Draft:
    """Return a draft with q = 1 of the first of ``tokens``, each with its expected acceptance rate."""
    wanted = itertools.takewhile(lambda found: length.wants_table_token(found[1]), tokens)
    return _certain_draft((token for token, _ in wanted), device, name)


def _certain_draft(tokens: Iterable[int], device: torch.device, name: str) -> Draft:
    ids = torch.tensor(list(tokens), dtype=torch.long, device=device)
    return Draft(ids, by=name if len(ids) else "")
