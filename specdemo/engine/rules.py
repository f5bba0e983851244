"""The three verification rules. Each decides how the draft picks tokens and how the target judges them.

Beside the rejection rule stand two that are wrong on purpose, for tests of sameness to be tested with.

A rule is made for one run and may hold that run's random generator. It sees logits and ids, never
a model, a cache or text. ``verify`` with an empty draft is exactly how the target decodes alone, so
the baseline and the speculative lane cannot drift apart.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from specdemo.engine.sampling import (
    draw,
    gumbel,
    has_numbers,
    leading_agreements,
    probabilities,
    residual,
    warp,
)
from specdemo.records.trace import Rule, RunConfig


@dataclass(frozen=True)
class Pick:
    """One token chosen by a draft: its row in the draft's own vocabulary, and what it came from.

    Attributes:
        row: Index into the draft's vocabulary, shape [1].
        probs: The draft distribution q the token was drawn from, shape [H]; None where the rule
            treats the choice as certain (greedy).
    """

    row: Tensor
    probs: Tensor | None


@dataclass(frozen=True)
class Draft:
    """Tokens proposed for one round.

    Attributes:
        ids: Target ids, int64, shape [k]; k may be 0.
        probs: q over the draft's vocabulary, shape [k, H]; None for point masses (q = 1).
        rows: Index of each token in the draft's vocabulary, shape [k]; None for point masses.
        logits: Raw draft logits, shape [k, H], kept to be shown; None where no model drafted.
        id_map: Target id of each draft row, shape [H]; None where both vocabularies are the same.
        steps: Passes of a draft made for it.
        by: Kind of the drafter that wrote it.
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


@dataclass(frozen=True)
class Verdict:
    """What the target decided. All tensors stay on the device until the engine's one transfer.

    Attributes:
        accepted: Number of leading draft tokens kept, scalar.
        token: The target's own token after them, shape [1].
        finite: Whether every row of logits involved was a distribution, scalar bool.
        p: The rule's target distribution, shape [k + 1, V]; None under greedy.
        q_of_draft, p_of_draft: Probabilities of the drafted tokens, shape [k]; None under greedy.
        coins: Uniform draws u, shape [k] (rejection).
        residual: Unnormalised distribution the token was drawn from, shape [V] (rejection).
        residual_mass: Σ (p − q)+ at the rejection, scalar (rejection).
        noise: Gumbel noise, shape [k + 1, V] (shared noise).
    """

    accepted: Tensor
    token: Tensor
    finite: Tensor
    p: Tensor | None = None
    q_of_draft: Tensor | None = None
    p_of_draft: Tensor | None = None
    coins: Tensor | None = None
    residual: Tensor | None = None
    residual_mass: Tensor | None = None
    noise: Tensor | None = None


class VerificationRule(Protocol):
    """How a draft picks and how the target judges; one object per lane and run."""

    def chances(self, count: int) -> Tensor | None:
        """Uniform numbers for the next ``count`` picks, shape [count], where picking takes any."""

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """Choose the draft's next token from its logits [H].

        ``where`` is the position it will stand at, shape [1], and ``chance`` one of :meth:`chances`,
        shape [1]. Nothing is read back from the device, which may record the choice with the pass.
        """

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Judge ``draft`` by the target's logits [k + 1, V]; ``position`` is where draft token 0 stands."""


class GreedyRule:
    """Temperature 0: a drafted token stays while it is the target's own argmax."""

    def chances(self, count: int) -> None:
        """None: nothing is left to chance."""

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """The draft's argmax."""
        return Pick(logits.max(-1, keepdim=True).indices, None)

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Keep the leading tokens that equal the target's argmax, then add its next one."""
        # One search for both answers, and on CPU four times as fast as argmax in bf16.
        best, choices = logits.max(-1)
        accepted = leading_agreements(choices[:-1] == draft.ids)
        return Verdict(accepted, choices.index_select(0, accepted[None]), _finite(draft, best[:, None]))


class RejectionRule:
    """Accept with probability min(1, p/q), else draw from the residual.

    The output has exactly the target's distribution. Source: Leviathan et al. 2023, algorithm 1;
    Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling",
    algorithm 2.
    """

    def __init__(self, config: RunConfig, device: torch.device):
        self._config = config
        self._device = device
        self._generator = torch.Generator(device).manual_seed(config.seed)

    def chances(self, count: int) -> Tensor:
        """Drawn from the run's own generator."""
        return self._uniform(count)

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """Sample from the warped draft distribution."""
        probs = probabilities(self._warp(logits))
        return Pick(draw(probs, chance), probs)

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Toss a coin per drafted token, then draw the target's own from the residual or from p."""
        k = len(draft)
        p = probabilities(self._warp(logits))
        p_of_draft = p[:k].gather(1, draft.ids[:, None])[:, 0]
        q_of_draft = _q_of_draft(draft, p)
        coins = self._uniform(k)
        accepted = leading_agreements(self._kept(p_of_draft, q_of_draft, coins))
        p_here = p.index_select(0, accepted[None])[0]
        left, mass = self._left(p_here, self._q_at(draft, accepted, p_here))
        return Verdict(
            accepted,
            draw(left, self._uniform(1)),
            _finite(draft, logits),
            p=p,
            q_of_draft=q_of_draft,
            p_of_draft=p_of_draft,
            coins=coins,
            residual=left,
            residual_mass=mass,
        )

    def _kept(self, p: Tensor, q: Tensor, coins: Tensor) -> Tensor:
        """Whether each drafted token passes, from its two probabilities and its coin; shapes [k]."""
        return coins < (p / q)

    def _left(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """What the target's own token is drawn from, and Σ (p − q)+; q is 0 where nothing was refused."""
        return residual(p, q)

    def _q_at(self, draft: Draft, accepted: Tensor, like: Tensor) -> Tensor:
        """q over the target's vocabulary at the first rejection; all zero after a fully accepted draft."""
        q = torch.zeros_like(like)
        if len(draft) == 0:
            return q
        at = accepted.clamp_max(len(draft) - 1)[None]
        rejected = (accepted < len(draft)).to(q.dtype)
        if draft.probs is None:
            return q.scatter_(0, draft.ids.index_select(0, at), rejected[None])
        row = draft.probs.index_select(0, at)[0].to(q.dtype) * rejected
        return row if draft.id_map is None else q.scatter_(0, draft.id_map, row)

    def _warp(self, logits: Tensor) -> Tensor:
        return warp(logits, self._config.temperature, self._config.top_k, self._config.top_p)

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._generator, device=self._device, dtype=torch.float64)


class Control(StrEnum):
    """Ways of getting rejection sampling wrong. No request names one: a test of sameness must notice them."""

    ACCEPT_EVERYTHING = "accept-everything"
    NO_RESIDUAL = "no-residual"


class WrongAcceptEverything(RejectionRule):
    """Wrong on purpose: every drafted token stays, so most of the text is the draft's."""

    def _kept(self, p: Tensor, q: Tensor, coins: Tensor) -> Tensor:
        return torch.ones_like(coins, dtype=torch.bool)


class WrongNoResidual(RejectionRule):
    """Wrong on purpose: the correction is drawn from p itself.

    Accepted drafts have already put out min(p, q) of each token; the rest of p alone is left to give.
    """

    def _left(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return p, residual(p, q)[1]


class SharedNoiseRule:
    """Gumbel noise keyed by (seed, position, token) moves draft, target and baseline alike.

    Every choice is argmax(log p + g). The speculative output is then token-identical to the
    baseline's sample at any temperature (Daliri et al. 2024).
    """

    def __init__(self, config: RunConfig):
        self._config = config
        self._ids: dict[tuple[int, torch.device], Tensor] = {}

    def chances(self, count: int) -> None:
        """None: the noise depends on position and token alone."""

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """The draft's own argmax(log q + g)."""
        scores = self._warp(logits)
        ids = self._all_ids(scores) if id_map is None else id_map
        noise = gumbel(self._config.seed, where, ids, scores.dtype)[0]
        return Pick((scores.log_softmax(-1) + noise).argmax(-1, keepdim=True), scores.softmax(-1))

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Keep the leading tokens that equal argmax(log p + g), then add the target's next one."""
        k = len(draft)
        scores = self._warp(logits)
        where = torch.arange(position, position + k + 1, device=scores.device)
        noise = gumbel(self._config.seed, where, self._all_ids(scores), scores.dtype)
        choices = (scores.log_softmax(-1) + noise).argmax(-1)
        accepted = leading_agreements(choices[:-1] == draft.ids)
        p = scores.softmax(-1)
        return Verdict(
            accepted,
            choices.index_select(0, accepted[None]),
            _finite(draft, logits),
            p=p,
            q_of_draft=_q_of_draft(draft, p),
            p_of_draft=p[:k].gather(1, draft.ids[:, None])[:, 0],
            noise=noise,
        )

    def _all_ids(self, scores: Tensor) -> Tensor:
        # Draft and target may differ in both.
        key = (scores.shape[-1], scores.device)
        if key not in self._ids:
            self._ids[key] = torch.arange(scores.shape[-1], device=scores.device)
        return self._ids[key]

    def _warp(self, logits: Tensor) -> Tensor:
        return warp(logits, self._config.temperature, self._config.top_k, self._config.top_p)


def rule_for(config: RunConfig, device: torch.device) -> VerificationRule:
    """A fresh rule object for one lane of a run."""
    match config.rule:
        case Rule.GREEDY:
            return GreedyRule()
        case Rule.REJECTION:
            return RejectionRule(config, device)
        case Rule.SHARED_NOISE:
            return SharedNoiseRule(config)


def wrong_rule_for(control: Control, config: RunConfig, device: torch.device) -> VerificationRule:
    """A fresh rule object that breaks rejection sampling in the way named."""
    match control:
        case Control.ACCEPT_EVERYTHING:
            return WrongAcceptEverything(config, device)
        case Control.NO_RESIDUAL:
            return WrongNoResidual(config, device)


def _q_of_draft(draft: Draft, p: Tensor) -> Tensor:
    if draft.probs is None or draft.rows is None:
        return torch.ones(len(draft), dtype=p.dtype, device=p.device)
    return draft.probs.gather(1, draft.rows[:, None])[:, 0].to(p.dtype)


def _finite(draft: Draft, logits: Tensor) -> Tensor:
    """Whether target's and draft's logits have numbers; of the target's the rows' maxima will do."""
    finite = has_numbers(logits)
    return finite if draft.logits is None or not len(draft) else finite & has_numbers(draft.logits)
