"""What the target decided in a round, one class per rule, and how each is written down as plain data.

Deciding is in ``rules``; its tensors stay on the device until the engine's one transfer. Describing runs
after the round's clock has stopped, reads what was decided with, and computes nothing that a decision
depends on: only lists of likely tokens, and under greedy the probabilities at temperature 1, are made
here, because they exist only to be shown.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdemo.engine.draft import Draft
from specdemo.engine.sampling import probabilities
from specdemo.engine.settle import Settled
from specdemo.records.trace import Alternative, Emission, Status, Token

TOP = 5

Facts = dict[str, Any]
"""Some fields of a ``Token``."""
TopLists = Callable[[Tensor, Tensor | None], list[tuple[Alternative, ...]]]
"""From probabilities [n, H] and the id map of their columns to the most probable tokens of each row."""


def no_tops(probs: Tensor, id_map: Tensor | None) -> list[tuple[Alternative, ...]]:
    """Empty lists, where nobody looks at them."""
    return [()] * len(probs)


def top_fives(probs: Tensor, id_map: Tensor | None) -> list[tuple[Alternative, ...]]:
    """Top five of each row, impossible tokens left out."""
    values, ids = probs.topk(min(TOP, probs.shape[-1]))
    if id_map is not None:
        ids = id_map[ids]
    return [
        tuple(Alternative(i, v) for i, v in zip(row_ids, row, strict=True) if v > 0)
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class Verdict(ABC):
    """What every rule decides.

    Attributes:
        accepted: Number of leading draft tokens kept, scalar.
        token: The target's own token after them, shape [1].
        finite: Whether every row of logits involved was a distribution, scalar bool.
    """

    accepted: Tensor
    token: Tensor
    finite: Tensor

    @abstractmethod
    def distributions(self, logits: Tensor) -> Tensor:
        """The target's distributions as they are shown, shape [k + 1, V]; ``logits`` are its own, as wide."""

    @abstractmethod
    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        """What there is to say of each drafted token; ``p`` are its :meth:`distributions`."""

    @abstractmethod
    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> Emission:
        """The target's own token after ``accepted`` drafted ones; ``p`` as for :meth:`facts`."""


@dataclass(frozen=True)
class GreedyVerdict(Verdict):
    """The target's first choices. Its probabilities decided nothing, so they are those at temperature 1."""

    def distributions(self, logits: Tensor) -> Tensor:
        """Softmax at temperature 1."""
        return probabilities(logits)

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        """p and q are 1 or 0, as the rule has them; what the models thought is beside them as raw."""
        k = len(draft)
        raw_p = p[:k].gather(1, draft.ids[:, None])[:, 0].tolist()
        raw_q = [None] * k if draft.logits is None else probabilities(draft.logits).amax(-1).tolist()
        agrees = (p[:k].argmax(-1) == draft.ids).tolist()
        # Up to the first rejection the rule's own verdict counts; behind it the argmax is only informative.
        agrees[: accepted + 1] = [i < accepted for i in range(min(k, accepted + 1))]
        return [
            {"q": 1.0, "p": float(agree), "accept_prob": float(agree), "raw_q": raw_q[i], "raw_p": raw_p[i]}
            for i, agree in enumerate(agrees)
        ]

    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> Emission:
        """Chosen with certainty."""
        row = p[accepted]
        best = row.topk(min(2, len(row))).values.tolist()
        gap = best[0] - best[1] if len(best) > 1 and best[1] > 0 else None
        [top] = tops(row[None], None)
        return Emission(token, status, prob=1.0, raw_prob=row[token].item(), top=top, gap=gap)


@dataclass(frozen=True)
class SampledVerdict(Verdict):
    """A verdict reached with distributions.

    Attributes:
        p: The rule's target distribution, shape [k + 1, V].
        p_of_draft, q_of_draft: Probabilities of the drafted tokens, shape [k].
    """

    p: Tensor
    p_of_draft: Tensor
    q_of_draft: Tensor

    def distributions(self, logits: Tensor) -> Tensor:
        """Those the rule decided with."""
        return self.p

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        """p and q of each drafted token."""
        both = zip(self.p_of_draft.tolist(), self.q_of_draft.tolist(), strict=True)
        return [{"q": q_of_token, "p": p_of_token} for p_of_token, q_of_token in both]


@dataclass(frozen=True)
class RejectionVerdict(SampledVerdict):
    """Coins, and what the target's own token was drawn from.

    Attributes:
        coins: Uniform draws u, shape [k].
        residual: Unnormalised distribution the token was drawn from, shape [V].
        residual_mass: Σ (p − q)+ at the rejection, scalar.
    """

    coins: Tensor
    residual: Tensor
    residual_mass: Tensor

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        """And the chance of acceptance with the coin, as far as one counted."""
        found = super().facts(draft, p, accepted)
        for i, (fact, coin) in enumerate(zip(found, self.coins.tolist(), strict=True)):
            # As tensors divide: what was drawn with a q that rounds to 0 stays, unless p is 0 as well.
            fact["accept_prob"] = min(1.0, fact["p"] / fact["q"]) if fact["q"] else float(fact["p"] > 0)
            fact["u"] = coin if i <= accepted else None
        return found

    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> Emission:
        """Drawn from the residual, or from p after a draft that was accepted whole."""
        source = self.residual / self.residual.sum()
        mass = self.residual_mass.item() if status is Status.CORRECTED else None
        [top] = tops(source[None], None)
        return Emission(token, status, prob=source[token].item(), residual_mass=mass, top=top)


@dataclass(frozen=True)
class SharedNoiseVerdict(SampledVerdict):
    """The noise that moved target and draft alike.

    Attributes:
        noise: Gumbel noise, shape [k + 1, V].
    """

    noise: Tensor

    def facts(self, draft: Draft, p: Tensor, accepted: int) -> list[Facts]:
        """And the noise of each drafted token at its place."""
        found = super().facts(draft, p, accepted)
        noises = self.noise[: len(draft)].gather(1, draft.ids[:, None])[:, 0].tolist()
        return [fact | {"noise": noise} for fact, noise in zip(found, noises, strict=True)]

    def emission(self, p: Tensor, accepted: int, token: int, status: Status, tops: TopLists) -> Emission:
        """The largest log p + noise; the gap is to the second largest."""
        row, noise = p[accepted], self.noise[accepted]
        best = (row.log() + noise).topk(2).values
        [top] = tops(row[None], None)
        return Emission(
            token,
            status,
            prob=row[token].item(),
            noise=noise[token].item(),
            top=top,
            gap=(best[0] - best[1]).item() if torch.isfinite(best[1]) else None,
        )


def describe(
    draft: Draft,
    verdict: Verdict,
    logits: Tensor,
    settled: Settled,
    tops: TopLists,
) -> tuple[tuple[Token, ...], Emission | None]:
    """A round's drafted tokens with their verdicts, and the target's own token if it entered the text.

    Args:
        draft, verdict, logits: As the engine used them; ``logits`` is [k + 1, V].
        settled: What entered the text.
        tops: Makes the lists of likely tokens.
    """
    p = verdict.distributions(logits)
    drafted = _describe_draft(draft, verdict, p, settled, tops) if len(draft) else ()
    if not settled.own:
        return drafted, None
    status = Status.CORRECTED if settled.accepted < len(draft) else Status.BONUS
    return drafted, verdict.emission(p, settled.accepted, settled.token, status, tops)


def _describe_draft(
    draft: Draft, verdict: Verdict, p: Tensor, settled: Settled, tops: TopLists
) -> tuple[Token, ...]:
    target_tops = tops(p[: len(draft)], None)
    facts = verdict.facts(draft, p, settled.accepted)
    return tuple(
        Token(
            id=drafted_id,
            status=Status.ACCEPTED if i < settled.kept else Status.DISCARDED,
            compared=i < settled.compared,
            rejected=settled.kept <= i < settled.compared,
            draft_top=draft_top,
            target_top=target_tops[i],
            **facts[i],
        )
        for i, (drafted_id, draft_top) in enumerate(
            zip(draft.ids.tolist(), _draft_tops(draft, tops), strict=True)
        )
    )


def _draft_tops(draft: Draft, tops: TopLists) -> list[tuple[Alternative, ...]]:
    """Of the distributions the draft drew from, or would have; none where it copied."""
    if draft.logits is None:
        return [()] * len(draft)
    return tops(probabilities(draft.logits) if draft.probs is None else draft.probs, draft.id_map)
