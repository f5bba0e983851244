"""Wrong versions of rejection sampling, which the distribution test must detect."""

import torch
from torch import Tensor

from specdemo.engine.drafter import Draft, Pick
from specdemo.engine.rules import BlockRule, RejectionRule
from specdemo.engine.sampling import probabilities, residual
from specdemo.engine.verdicts import Verdict
from specdemo.proof.proof_request import Control
from specdemo.records.trace import RunConfig

TYPICAL_EPSILON, TYPICAL_DELTA = 0.09, 0.3
"""The values in Medusa's published configuration: the threshold ε, and the factor δ = √ε."""


class WrongAcceptEverything(RejectionRule):
    """Wrong on purpose: every draft token is accepted, so the draft chooses most of the text."""

    def keeps(self, p: Tensor, q: Tensor, uniforms: Tensor) -> Tensor:
        return torch.ones_like(uniforms, dtype=torch.bool)


class WrongNoResidual(RejectionRule):
    """Wrong on purpose: the corrected token is drawn from p, not from the residual distribution.

    Accepted draft tokens already contribute min(p, q), so corrected tokens must follow (p − q)+ only.
    """

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return p, residual(p, q)[1]


class WrongBlockCoins(BlockRule):
    """Wrong on purpose: block verification as vllm-ascend once shipped it (issue 7807, corrected since).

    The random numbers were multiplied along the draft and compared with the weights, and the residual had no
    weight. So prefixes pass with wrong probabilities, and corrected tokens follow a wrong distribution.
    """

    def passes(self, probabilities: Tensor, weights: Tensor, uniforms: Tensor) -> Tensor:
        return uniforms.cumprod(0) <= weights

    def block_residual(self, weight: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return residual(p, q)


class WrongTypical(RejectionRule):
    """Lossy on purpose: typical acceptance (Medusa, Cai et al. 2024), which keeps every plausible token.

    A draft token is accepted if p exceeds min(ε, δ · exp(−H)), with H the entropy of p.
    """

    def verify(self, draft: Draft, logits: Tensor, position: int) -> Verdict:
        p = probabilities(self.warped(logits[: len(draft)]))
        entropy = torch.special.entr(p).sum(-1)
        self._threshold = (TYPICAL_DELTA * (-entropy).exp()).clamp_max(TYPICAL_EPSILON)
        return super().verify(draft, logits, position)

    def keeps(self, p: Tensor, q: Tensor, uniforms: Tensor) -> Tensor:
        return p > self._threshold

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return p, residual(p, q)[1]


class WrongRawQ(RejectionRule):
    """Wrong on purpose: q is not the distribution that the draft was drawn from.

    Drafts are drawn with temperature, top-k and top-p, but verified with the softmax of the raw logits, as in
    some candidate generators of transformers 5 (issue 47932).
    """

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        picked = super().pick(logits, where, uniform, id_map)
        return picked._replace(probs=probabilities(logits))


class WrongMatchingGreedy(RejectionRule):
    """Wrong on purpose: greedy drafts are accepted if they are the target's most likely token, at any T.

    Only where they are not, a token is drawn from p. So the most likely tokens come too often.
    """

    def pick(self, logits: Tensor, where: Tensor, uniform: Tensor | None, id_map: Tensor | None) -> Pick:
        best = logits.max(-1, keepdim=True).indices
        return Pick(best, torch.zeros_like(probabilities(logits)).scatter_(-1, best, 1.0))

    def verify(self, draft: Draft, logits: Tensor, position: int | Tensor) -> Verdict:
        self._highest = probabilities(self.warped(logits[: len(draft)])).max(-1).values
        return super().verify(draft, logits, position)

    def keeps(self, p: Tensor, q: Tensor, uniforms: Tensor) -> Tensor:
        return p == self._highest

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return p, residual(p, q)[1]


def wrong_rule_for(control: Control, config: RunConfig, device: torch.device) -> RejectionRule:
    match control:
        case Control.ACCEPT_EVERYTHING:
            return WrongAcceptEverything(config, device)
        case Control.NO_RESIDUAL:
            return WrongNoResidual(config, device)
        case Control.BLOCK_COINS:
            return WrongBlockCoins(config, device)
        case Control.TYPICAL:
            return WrongTypical(config, device)
        case Control.RAW_Q:
            return WrongRawQ(config, device)
        case Control.MATCHING_GREEDY:
            return WrongMatchingGreedy(config, device)
