"""The interface of drafters, the drafts that they return, and the drafting loops that they share."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength
from specdemo.models.decisions import first_rows


class Pick(NamedTuple):
    """One token chosen by a draft model."""

    row: Tensor  # index of the token in the draft's vocabulary, shape [1]
    probs: Tensor | None  # the distribution q that it was drawn from, shape [H]; None if q = 1 (greedy)


class PickingRule(Protocol):
    """The part of a verification rule that drafters use: the choice of a token from draft logits."""

    @property
    def picks_best(self) -> bool: ...  # whether it always picks the most likely token

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

    def __len__(self) -> int:
        return len(self.ids)


class RecordedDraft(Protocol):
    """The draft steps of a round as a part of one launch (see ``engine.recorded_round``)."""

    def begin(self, capacity: int) -> None: ...

    def place(self, text: Sequence[int], k: int) -> bool:
        """Write the inputs of the next launch to the device; return False if there can be no draft."""
        ...

    def launch(self, k: int, rule: PickingRule, position: Tensor) -> Draft:
        """Start k draft steps and read nothing back; ``position`` [1] is that of the first token."""
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

    def recorded(self) -> RecordedDraft | None:
        """Return the drafter's part of a launch; None if its steps cannot be a part of one."""
        return None


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
) -> Draft:
    """Draft token by token with a model; ``position`` is that of the first draft token in the text.

    ``step`` makes a draft pass. It takes the previous draft token (target id, shape [1]; None in the first
    step) and returns the logits [H] of the next token.
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
        pick = rule.pick(scores, where, rule.uniforms(1), id_map)
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


def write_most_likely(
    run: Callable[[int, int], tuple[Tensor, Tensor]],
    length: DraftLength,
    id_map: Tensor | None,
    device: torch.device,
    name: str,
) -> Draft:
    """Draft the most likely tokens with passes that choose them.

    ``run`` takes the number of draft steps so far and of those to make, and returns the tokens of all of them
    (target ids, shape [n]) and their logits [n, H], with decisions. If k is known, it is called once.
    """
    steps = tokens = 0
    ids = logits = torch.empty(0)
    if not length.reads_scores:
        while length.wants_step() and length.wants_token(logits):
            tokens += 1
        if tokens:
            (ids, logits), steps = run(0, tokens), tokens
    while length.reads_scores and length.wants_step():
        ids, logits = run(steps, 1)
        steps += 1
        if not length.wants_token(logits):
            ids, logits = ids[:tokens], first_rows(logits, tokens)
            break
        tokens += 1
    return (
        Draft(ids, logits=logits, id_map=id_map, steps=steps, by=name)
        if tokens
        else empty_draft(device, steps)
    )


def copied_draft(
    tokens: Iterable[int], matched: int, length: DraftLength, device: torch.device, name: str
) -> Draft:
    """Return a draft with q = 1 of the first of ``tokens``, before which ``matched`` tokens match the text's
    end."""
    return _certain_draft(itertools.takewhile(lambda _: length.wants_copy(matched), tokens), device, name)


def table_draft(
    tokens: Iterable[tuple[int, float]], length: DraftLength, device: torch.device, name: str
) -> Draft:
    """Return a draft with q = 1 of the first of ``tokens``, each with its expected acceptance rate."""
    wanted = itertools.takewhile(lambda found: length.wants_table_token(found[1]), tokens)
    return _certain_draft((token for token, _ in wanted), device, name)


def _certain_draft(tokens: Iterable[int], device: torch.device, name: str) -> Draft:
    ids = torch.tensor(list(tokens), dtype=torch.long, device=device)
    return Draft(ids, by=name if len(ids) else "")
