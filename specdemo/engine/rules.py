"""The three verification rules. Each decides how the draft picks tokens and how the target judges them.

A rule is made for one run and may hold that run's random generator. It sees logits and ids, never
a model, a cache or text. ``verify`` with an empty draft is exactly how the target decodes alone, so
the baseline and the speculative lane cannot drift apart.
"""

from typing import Protocol

import torch
from torch import Tensor

from specdemo.engine.draft import Draft, Pick
from specdemo.engine.sampling import (
    draw,
    gumbel,
    has_numbers,
    leading_agreements,
    probabilities,
    residual,
    warp,
)
from specdemo.engine.verdicts import GreedyVerdict, RejectionVerdict, SharedNoiseVerdict, Verdict
from specdemo.records.trace import Rule, RunConfig


class PickingRule(Protocol):
    """How a draft picks its tokens."""

    def chances(self, count: int) -> Tensor | None:
        """Uniform numbers for the next ``count`` picks, shape [count], where picking takes any."""
        ...

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """Choose the draft's next token from its logits [H].

        ``where`` is the position it will stand at, shape [1], and ``chance`` one of :meth:`chances`,
        shape [1]. Nothing is read back from the device, which may record the choice with the pass.
        """
        ...


class VerificationRule(PickingRule, Protocol):
    """How a draft picks and how the target judges; one object per lane and run."""

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Judge ``draft`` by the target's logits [k + 1, V]; ``position`` is where draft token 0 stands."""
        ...


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
        return GreedyVerdict(accepted, choices.index_select(0, accepted[None]), _finite(draft, best[:, None]))


class _SamplingRule:
    """What both rules with a temperature share."""

    def __init__(self, config: RunConfig):
        self._config = config

    def warped(self, logits: Tensor) -> Tensor:
        """Log-scores by temperature, top-k and top-p of the run, shape as given, not normalised."""
        return warp(logits, self._config.temperature, self._config.top_k, self._config.top_p)


class RejectionRule(_SamplingRule):
    """Accept with probability min(1, p/q), else draw from the residual.

    The output has exactly the target's distribution. Source: Leviathan et al. 2023, algorithm 1;
    Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling",
    algorithm 2.
    """

    def __init__(self, config: RunConfig, device: torch.device):
        super().__init__(config)
        self._device = device
        self._generator = torch.Generator(device).manual_seed(config.seed)

    def chances(self, count: int) -> Tensor:
        """Drawn from the run's own generator."""
        return self._uniform(count)

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """Sample from the warped draft distribution."""
        assert chance is not None
        probs = probabilities(self.warped(logits))
        return Pick(draw(probs, chance), probs)

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Toss a coin per drafted token, then draw the target's own from the residual or from p."""
        k = len(draft)
        p = probabilities(self.warped(logits))
        p_of_draft = p[:k].gather(1, draft.ids[:, None])[:, 0]
        q_of_draft = _q_of_draft(draft, p)
        coins = self._uniform(k)
        accepted = leading_agreements(self.keeps(p_of_draft, q_of_draft, coins))
        p_here = p.index_select(0, accepted[None])[0]
        left, mass = self.leftover(p_here, self._q_at(draft, accepted, p_here))
        return RejectionVerdict(
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

    def keeps(self, p: Tensor, q: Tensor, coins: Tensor) -> Tensor:
        """Whether each drafted token passes, from its two probabilities and its coin; shapes [k]."""
        return coins < (p / q)

    def leftover(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
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

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._generator, device=self._device, dtype=torch.float64)


class SharedNoiseRule(_SamplingRule):
    """Gumbel noise keyed by (seed, position, token) moves draft, target and baseline alike.

    Every choice is argmax(log p + g). The speculative output is then token-identical to the
    baseline's sample at any temperature (Daliri et al. 2024).
    """

    def __init__(self, config: RunConfig):
        super().__init__(config)
        self._ids: dict[tuple[int, torch.device], Tensor] = {}

    def chances(self, count: int) -> None:
        """None: the noise depends on position and token alone."""

    def pick(self, logits: Tensor, where: Tensor, chance: Tensor | None, id_map: Tensor | None) -> Pick:
        """The draft's own argmax(log q + g)."""
        scores = self.warped(logits)
        ids = self._all_ids(scores) if id_map is None else id_map
        noise = gumbel(self._config.seed, where, ids, scores.dtype)[0]
        return Pick((scores.log_softmax(-1) + noise).argmax(-1, keepdim=True), scores.softmax(-1))

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        """Keep the leading tokens that equal argmax(log p + g), then add the target's next one."""
        k = len(draft)
        scores = self.warped(logits)
        where = torch.arange(position, position + k + 1, device=scores.device)
        noise = gumbel(self._config.seed, where, self._all_ids(scores), scores.dtype)
        choices = (scores.log_softmax(-1) + noise).argmax(-1)
        accepted = leading_agreements(choices[:-1] == draft.ids)
        p = scores.softmax(-1)
        return SharedNoiseVerdict(
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


def rule_for(config: RunConfig, device: torch.device) -> VerificationRule:
    """A fresh rule object for one lane of a run."""
    match config.rule:
        case Rule.GREEDY:
            return GreedyRule()
        case Rule.REJECTION:
            return RejectionRule(config, device)
        case Rule.SHARED_NOISE:
            return SharedNoiseRule(config)


def _q_of_draft(draft: Draft, p: Tensor) -> Tensor:
    if draft.probs is None or draft.rows is None:
        return torch.ones(len(draft), dtype=p.dtype, device=p.device)
    return draft.probs.gather(1, draft.rows[:, None])[:, 0].to(p.dtype)


def _finite(draft: Draft, logits: Tensor) -> Tensor:
    """Whether target's and draft's logits have numbers; of the target's the rows' maxima will do."""
    finite = has_numbers(logits)
    return finite if draft.logits is None or not len(draft) else finite & has_numbers(draft.logits)
