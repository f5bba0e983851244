"""The verification rules. Each rule picks draft tokens and decides which of them the target accepts."""

from typing import Protocol

import torch
from torch import Tensor

from specdemo.engine.drafter import Draft, Pick, PickingRule
from specdemo.engine.sampling import (
    draw,
    gumbel,
    has_numbers,
    leading_agreements,
    probabilities,
    residual,
    warp,
)
from specdemo.engine.verdicts import (
    BlockVerdict,
    GreedyVerdict,
    RejectionVerdict,
    SharedNoiseVerdict,
    Verdict,
)
from specdemo.models.decisions import decisions_of
from specdemo.records.trace import Rule, RunConfig


class VerificationRule(PickingRule, Protocol):
    """A verification rule for one lane of one run. It may own the random generator of that lane.

    The baseline calls ``verify`` with empty drafts, so both lanes share the same sampling code.
    """

    @property
    def generator(self) -> torch.Generator | None: ...  # of the random numbers; None if it needs none

    def verify(self, draft: Draft, logits: Tensor, position: int | Tensor) -> Verdict:
        """Decide which of k draft tokens to accept, and choose the target's own token after them.

        Args:
            logits: The target's logits, shape [k + 1, V].
            position: Position of the first draft token in the text; a tensor [1] in a recorded round.
        """
        ...


class GreedyRule:
    """Temperature 0: a draft token is accepted if it is the target's own argmax."""

    picks_best = True
    generator = None

    def uniforms(self, count: int) -> None:
        return None

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        return Pick(logits.max(-1, keepdim=True).indices, None)

    def verify(self, draft: Draft, logits: Tensor, position: int | Tensor) -> Verdict:
        if (found := decisions_of(logits)) is not None:
            drafted = draft.ids.tolist()
            accepted = next((i for i, token in enumerate(drafted) if found.best[i] != token), len(drafted))
            return GreedyVerdict(accepted, found.best[accepted], _finite(draft, logits))
        # max returns the best token and reveals NaN. In bf16 on CPU it is four times as fast as argmax.
        best, choices = logits.max(-1)
        accepted = leading_agreements(choices[:-1] == draft.ids)
        return GreedyVerdict(accepted, choices.index_select(0, accepted[None]), _finite(draft, best[:, None]))


class _SamplingRule:
    """The base of the rules with a temperature above 0: temperature, top-k and top-p."""

    picks_best = False
    generator: torch.Generator | None = None

    def __init__(self, config: RunConfig):
        self._config = config

    def warped(self, logits: Tensor) -> Tensor:
        return warp(logits, self._config.temperature, self._config.top_k, self._config.top_p)


class RejectionRule(_SamplingRule):
    """Speculative sampling: the output has exactly the target's distribution.

    A draft token is accepted with probability min(1, p/q). After a rejection, the corrected token is drawn
    from the residual distribution, proportional to (p − q)+. References: Leviathan et al. 2023, algorithm 1;
    Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling", algorithm 2.

    Wrong rules, for lessons and tests, override :meth:`keeps` or :meth:`residual_distribution`.
    """

    def __init__(self, config: RunConfig, device: torch.device):
        super().__init__(config)
        self._device = device
        self.generator = torch.Generator(device).manual_seed(config.seed)

    def uniforms(self, count: int) -> Tensor:
        return self._drawn(count)

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        assert uniform is not None
        probs = probabilities(self.warped(logits))
        return Pick(draw(probs, uniform), probs)

    def verify(self, draft: Draft, logits: Tensor, position: int | Tensor) -> Verdict:
        p = probabilities(self.warped(logits))

        # 1. Accept each draft token with probability min(1, p/q), up to the first rejection.
        p_of_draft, q_of_draft = _of_draft(draft, p)
        uniforms = self._acceptance_uniforms(p_of_draft / q_of_draft)
        accepted = leading_agreements(self.keeps(p_of_draft, q_of_draft, uniforms))

        # 2. Draw the target's own token from the residual. If all draft tokens were accepted, q is 0 here and
        # the residual is p.
        p_here = p.index_select(0, accepted[None])[0]
        left, mass = self.residual_distribution(p_here, self._q_at(draft, accepted, p_here))
        return RejectionVerdict(
            accepted,
            draw(left, self._drawn(1)),
            _finite(draft, logits),
            p=p,
            q_of_draft=q_of_draft,
            p_of_draft=p_of_draft,
            uniforms=uniforms,
            residual=left,
            residual_mass=mass,
        )

    def keeps(self, p: Tensor, q: Tensor, uniforms: Tensor) -> Tensor:
        """Return whether u < p/q for each draft token, bool; p, q and uniform numbers u have shape [k]."""
        return uniforms < (p / q)

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unnormalized distribution of the target's own token, and its mass Σ (p − q)+.

        ``p`` and ``q`` [V] are the distributions at the first rejected token.
        """
        return residual(p, q)

    def _q_at(self, draft: Draft, accepted: Tensor, like: Tensor) -> Tensor:
        """Return q over the target's vocabulary at the first rejected token; zeros if all were accepted."""
        q = torch.zeros_like(like)
        if len(draft) == 0:
            return q
        at = accepted.clamp_max(len(draft) - 1)[None]
        rejected = (accepted < len(draft)).to(q.dtype)
        if draft.probs is None:
            return q.scatter_(0, draft.ids.index_select(0, at), rejected[None])
        row = draft.probs.index_select(0, at)[0].to(q.dtype) * rejected
        return row if draft.id_map is None else q.scatter_(0, draft.id_map, row)

    def _acceptance_uniforms(self, acceptance: Tensor) -> Tensor:
        # The probabilities matter only to a test that visits all outcomes.
        return self._drawn(len(acceptance))

    def _drawn(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, device=self._device, dtype=torch.float64)


class BlockRule(RejectionRule):
    """Block verification: rejection sampling that decides on all draft tokens of a round together.

    The output has exactly the target's distribution, and on average at least as many tokens are accepted as
    by rejection sampling. With w_0 = 1 and w_i = min(1, w_{i−1} · p_i/q_i) for draft token i, the rule keeps
    the longest draft prefix of i tokens for which a uniform number is below

        h_i = r_i / (r_i + 1 − w_i),    r_i = Σ (w_i · p − q)+ over the next token,

    where q is 0 after the last draft token, so that h_k = w_k. The target's own token is drawn from
    (w_i · p − q)+. Reference: Sun et al. 2024, "Block Verification Accelerates Speculative Decoding",
    algorithm 2. A draft's length may depend on its earlier tokens, but not on a token that is dropped.
    """

    def verify(self, draft: Draft, logits: Tensor, position: int | Tensor) -> Verdict:
        k = len(draft)
        p = probabilities(self.warped(logits))
        q = self._q(draft, p)
        p_of_draft, q_of_draft = _of_draft(draft, p)

        # 1. The weight of each draft prefix, from the empty one to the whole draft.
        weights = [p.new_ones(())]
        for ratio in p_of_draft / q_of_draft:
            weights.append((weights[-1] * ratio).clamp_max(1.0))
        weights = torch.stack(weights)

        # 2. Keep the longest prefix whose random number passes.
        masses = (weights[:, None] * p - q).clamp_min(0).sum(-1)
        # If w_i is 1 and the next q equals p, both terms are 0. A longer prefix is then kept anyway.
        pass_probabilities = (masses / (masses + 1 - weights)).nan_to_num(1.0)[1:]
        uniforms = self._acceptance_uniforms(pass_probabilities)
        lengths = torch.arange(1, k + 1, device=p.device)
        passed = lengths * self.passes(pass_probabilities, weights[1:], uniforms)
        accepted = torch.cat([lengths.new_zeros(1), passed]).max()

        # 3. Draw the target's own token from the weighted residual.
        left, mass = self.block_residual(
            *(values.index_select(0, accepted[None])[0] for values in (weights, p, q))
        )
        return BlockVerdict(
            accepted,
            draw(left, self._drawn(1)),
            _finite(draft, logits),
            p=p,
            q_of_draft=q_of_draft,
            p_of_draft=p_of_draft,
            uniforms=uniforms,
            residual=left,
            residual_mass=mass,
            pass_probabilities=pass_probabilities,
        )

    def passes(self, probabilities: Tensor, weights: Tensor, uniforms: Tensor) -> Tensor:
        """Return whether each draft prefix passes, bool [k], given h_1, …, h_k and w_1, …, w_k."""
        return uniforms < probabilities

    def block_residual(self, weight: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unnormalized distribution of the target's own token, and its mass Σ (w · p − q)+.

        ``weight`` is w of the kept prefix; ``p`` and ``q`` [V] are the distributions after it.
        """
        return residual(weight * p, q)

    def _q(self, draft: Draft, like: Tensor) -> Tensor:
        """Return q over the target's vocabulary, with a last row of zeros [k + 1, V]."""
        k, q = len(draft), torch.zeros_like(like)
        if draft.probs is None:
            q[:k].scatter_(1, draft.ids[:, None], 1.0)
        elif draft.id_map is None:
            q[:k] = draft.probs
        else:
            q[:k, draft.id_map] = draft.probs.to(q.dtype)
        return q


class SharedNoiseRule(_SamplingRule):
    """Sampling by argmax(log p + g), with Gumbel noise g that depends only on seed, position and token.

    The draft, the target and the baseline use the same noise. Therefore the speculative output equals the
    sampled baseline token for token, at any temperature (Daliri et al. 2024).
    """

    def uniforms(self, count: int) -> None:
        return None  # the noise replaces uniform random numbers

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        scores = self.warped(logits)
        ids = _all_ids(scores) if id_map is None else id_map
        noise = gumbel(self._config.seed, where, ids, scores.dtype)[0]
        return Pick((scores.log_softmax(-1) + noise).argmax(-1, keepdim=True), scores.softmax(-1))

    def verify(self, draft: Draft, logits: Tensor, position: int | Tensor) -> Verdict:
        k = len(draft)
        scores = self.warped(logits)
        where = position + torch.arange(k + 1, device=scores.device)
        noise = gumbel(self._config.seed, where, _all_ids(scores), scores.dtype)
        choices = (scores.log_softmax(-1) + noise).argmax(-1)
        accepted = leading_agreements(choices[:-1] == draft.ids)
        p = scores.softmax(-1)
        p_of_draft, q_of_draft = _of_draft(draft, p)
        return SharedNoiseVerdict(
            accepted,
            choices.index_select(0, accepted[None]),
            _finite(draft, logits),
            p=p,
            p_of_draft=p_of_draft,
            q_of_draft=q_of_draft,
            noise=noise,
        )


def rule_for(config: RunConfig, device: torch.device) -> VerificationRule:
    match config.rule:
        case Rule.GREEDY:
            return GreedyRule()
        case Rule.REJECTION:
            return RejectionRule(config, device)
        case Rule.BLOCK:
            return BlockRule(config, device)
        case Rule.SHARED_NOISE:
            return SharedNoiseRule(config)


def _all_ids(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[-1], device=scores.device)


def _of_draft(draft: Draft, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the target's and the draft's probabilities of the draft tokens, each [k]."""
    p_of_draft = p[: len(draft)].gather(1, draft.ids[:, None])[:, 0]
    if draft.probs is None or draft.rows is None:
        return p_of_draft, torch.ones_like(p_of_draft)
    return p_of_draft, draft.probs.gather(1, draft.rows[:, None])[:, 0].to(p.dtype)


def _finite(draft: Draft, logits: Tensor) -> Tensor | bool:
    # The target's logits are whole rows, or only the maximum of each row.
    finite = has_numbers(logits)
    return finite if draft.logits is None or not len(draft) else finite & has_numbers(draft.logits)
