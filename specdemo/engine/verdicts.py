"""The target's decision in a round: a ``Verdict`` class per rule, the effect on the text, and the record."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specdemo.engine.drafter import Draft
from specdemo.engine.sampling import probabilities
from specdemo.records.trace import Alternative, Status, TargetToken, Token

TOP = 5

Facts = dict[str, Any]  # those fields of a ``Token`` that depend on the rule, by name
TopLists = Callable[[Tensor, Tensor | None], list[tuple[Alternative, ...]]]
"""A function that returns the most likely tokens of each row of probabilities [n, H]. Its second argument is
the target id of each column, or None if columns are target ids."""


def no_tops(probs: Tensor, id_map: Tensor | None) -> list[tuple[Alternative, ...]]:
    """Return an empty tuple for each row, for runs that are not displayed."""
    return [()] * len(probs)


def top_fives(probs: Tensor, id_map: Tensor | None) -> list[tuple[Alternative, ...]]:
    """Return the five most likely tokens of each row; fewer if fewer have a probability above 0."""
    values, ids = probs.topk(min(TOP, probs.shape[-1]))
    if id_map is not None:
        ids = id_map[ids]
    return [
        tuple(Alternative(i, v) for i, v in zip(row_ids, row, strict=True) if v > 0)
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


class Outcome(NamedTuple):
    """The effect of one round on the text."""

    accepted: int  # number of draft tokens that the rule accepted
    token: int  # the target's own token after them; not emitted if an accepted token ends the text
    emitted: list[int]
    kept: int  # number of draft tokens among ``emitted``
    compared: int  # number of kept draft tokens, and the rejected one, if any
    own: bool  # whether ``emitted`` ends with the target's own token
    ended: bool  # whether ``emitted`` ends with an end-of-text id


def truncate_at_eos(accepted: int, token: int, drafted: Sequence[int], eos_ids: frozenset[int]) -> Outcome:
    """Return the effect of a round on the text, which ends with the first end-of-text id."""
    written = [*drafted[:accepted], token]
    end = next((index for index, written_id in enumerate(written) if written_id in eos_ids), None)
    emitted = written if end is None else written[: end + 1]
    kept = min(accepted, len(emitted))
    own = len(emitted) > accepted
    compared = min(len(drafted), accepted + 1) if own else kept
    return Outcome(accepted, token, emitted, kept, compared, own, end is not None)


@dataclass(frozen=True)
class Verdict(ABC):
    """The decision of a rule in one round: tensors on the device, or numbers if the pass has decided.

    The methods create the record of the round, after its timing has stopped. They do not affect the decision.
    """

    accepted: Tensor | int  # number of accepted draft tokens, scalar
    token: Tensor | int  # the target's own token after them, shape [1]
    finite: Tensor | bool  # whether target and draft logits were free of NaN and infinities, scalar bool

    @abstractmethod
    def distributions(self, logits: Tensor) -> Tensor:
        """Return the target's distributions for display, from its logits; both have shape [k + 1, V]."""

    @abstractmethod
    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        """Return the fields of each draft token's record; ``p`` [k + 1, V] is from :meth:`distributions`."""

    @abstractmethod
    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> TargetToken:
        """Return the record of the target's own token, with ``p`` from :meth:`distributions`."""


def packed(draft: Draft, verdict: Verdict) -> Tensor:
    """Return whether all logits are numbers, the accepted count, the target's token, and the draft's ids."""
    decided = (verdict.finite, verdict.accepted, verdict.token)
    return torch.cat([*(torch.as_tensor(value).long().reshape(-1) for value in decided), draft.ids])


def unpacked(draft: Draft, verdict: Verdict) -> list[int]:
    """Return the numbers of :func:`packed`, read from the device in one transfer."""
    decided = [verdict.finite, verdict.accepted, verdict.token]
    numbers = [value for value in decided if not isinstance(value, Tensor)]
    if len(numbers) < len(decided):
        return packed(draft, verdict).tolist()
    return [*numbers, *draft.ids.tolist()]


@dataclass(frozen=True)
class GreedyVerdict(Verdict):
    """A decision of the greedy rule. For display, probabilities are those at temperature 1."""

    def distributions(self, logits: Tensor) -> Tensor:
        return probabilities(logits)

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        # p, q and accept_prob are 1 or 0; raw_p and raw_q are the probabilities at temperature 1.
        k = len(draft)
        raw_p = p[:k].gather(1, draft.ids[:, None])[:, 0].tolist()
        raw_q = [None] * k if draft.logits is None else probabilities(draft.logits).amax(-1).tolist()
        agrees = (p[:k].argmax(-1) == draft.ids).tolist()
        # Up to the first rejected token, use the rule's decision. The argmax of rounded probabilities could
        # differ from it in a tie.
        agrees[: accepted + 1] = [i < accepted for i in range(min(k, accepted + 1))]
        return [
            {"q": 1.0, "p": float(agree), "accept_prob": float(agree), "raw_q": raw_q[i], "raw_p": raw_p[i]}
            for i, agree in enumerate(agrees)
        ]

    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> TargetToken:
        row = p[accepted]
        best = row.topk(min(2, len(row))).values.tolist()
        gap = best[0] - best[1] if len(best) > 1 and best[1] > 0 else None
        [top] = tops(row[None], None)
        return TargetToken(token, status, prob=1.0, raw_prob=row[token].item(), top=top, gap=gap)


@dataclass(frozen=True)
class SampledVerdict(Verdict):
    """The base of decisions at a temperature above 0."""

    p: Tensor  # the target's distributions after temperature, top-k and top-p, shape [k + 1, V]
    p_of_draft: Tensor  # p of the draft tokens, shape [k]
    q_of_draft: Tensor

    def distributions(self, logits: Tensor) -> Tensor:
        return self.p

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        both = zip(self.p_of_draft.tolist(), self.q_of_draft.tolist(), strict=True)
        return [{"q": q_of_token, "p": p_of_token} for p_of_token, q_of_token in both]


@dataclass(frozen=True)
class RejectionVerdict(SampledVerdict):
    """A decision of the rejection rule."""

    uniforms: Tensor  # u of each draft token, shape [k]
    residual: Tensor  # the unnormalized distribution that the target's own token was drawn from, shape [V]
    residual_mass: Tensor  # Σ (p − q)+ at the rejected token, scalar; recorded only after a rejection

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        facts = super().facts(draft, p, accepted)
        for i, (fact, u) in enumerate(zip(facts, self.uniforms.tolist(), strict=True)):
            # In the rule, tensors divide: p/0 is infinite, so a token with q = 0 is accepted if p > 0.
            fact["accept_prob"] = min(1.0, fact["p"] / fact["q"]) if fact["q"] else float(fact["p"] > 0)
            fact["u"] = u if i <= accepted else None
        return facts

    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> TargetToken:
        source = self.residual / self.residual.sum()
        mass = self.residual_mass.item() if status is Status.CORRECTED else None
        [top] = tops(source[None], None)
        return TargetToken(token, status, prob=source[token].item(), residual_mass=mass, top=top)


@dataclass(frozen=True)
class BlockVerdict(RejectionVerdict):
    """A decision of block verification."""

    pass_probabilities: Tensor  # h_i of each draft prefix, shape [k]

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        # Every draft token has its u, because a round decides on all of them.
        decided = zip(self.pass_probabilities.tolist(), self.uniforms.tolist(), strict=True)
        facts = SampledVerdict.facts(self, draft, p, accepted)
        return [fact | {"accept_prob": h, "u": u} for fact, (h, u) in zip(facts, decided, strict=True)]


@dataclass(frozen=True)
class SharedNoiseVerdict(SampledVerdict):
    """A decision of the shared-noise rule."""

    noise: Tensor  # Gumbel noise, shape [k + 1, V]

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        found = super().facts(draft, p, accepted)
        noises = self.noise[: len(draft)].gather(1, draft.ids[:, None])[:, 0].tolist()
        return [fact | {"noise": noise} for fact, noise in zip(found, noises, strict=True)]

    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> TargetToken:
        # The gap is the lead of the token's log p + noise.
        row, noise = p[accepted], self.noise[accepted]
        best = (row.log() + noise).topk(2).values
        [top] = tops(row[None], None)
        return TargetToken(
            token,
            status,
            prob=row[token].item(),
            noise=noise[token].item(),
            top=top,
            gap=(best[0] - best[1]).item() if torch.isfinite(best[1]) else None,
        )


def describe(
    draft: Draft, verdict: Verdict, logits: Tensor, outcome: Outcome, tops: TopLists
) -> tuple[tuple[Token, ...], TargetToken | None]:
    """Return the records of the draft tokens and of the target's own token; None if it was not emitted."""
    p = verdict.distributions(logits)
    target_tops = tops(p[: len(draft)], None)
    draft_tops: list[tuple[Alternative, ...]] = [()] * len(draft)  # copied tokens have no list
    if draft.logits is not None:
        q = probabilities(draft.logits) if draft.probs is None else draft.probs
        draft_tops = tops(q, draft.id_map)
    facts = verdict.facts(draft, p, outcome.accepted)
    drafted = tuple(
        Token(
            id=drafted_id,
            status=Status.ACCEPTED if i < outcome.kept else Status.DISCARDED,
            compared=i < outcome.compared,
            rejected=outcome.kept <= i < outcome.compared,
            draft_top=draft_tops[i],
            target_top=target_tops[i],
            **facts[i],
        )
        for i, drafted_id in enumerate(draft.ids.tolist())
    )
    if not outcome.own:
        return drafted, None
    status = Status.CORRECTED if outcome.accepted < len(draft) else Status.BONUS
    return drafted, verdict.emission(p, outcome.accepted, outcome.token, status, tops)
