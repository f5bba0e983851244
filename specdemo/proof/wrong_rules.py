"""Two wrong versions of rejection sampling, which the distribution test must detect."""

import torch
from torch import Tensor

from specdemo.engine.rules import RejectionRule
from specdemo.engine.sampling import residual
from specdemo.proof.proof_request import Control
from specdemo.records.trace import RunConfig


class WrongAcceptEverything(RejectionRule):
    """Wrong on purpose: every draft token is accepted, so the draft chooses most of the text."""

    def keeps(self, p: Tensor, q: Tensor, coins: Tensor) -> Tensor:
        return torch.ones_like(coins, dtype=torch.bool)


class WrongNoResidual(RejectionRule):
    """Wrong on purpose: the corrected token is drawn from p, not from the residual distribution.

    Accepted draft tokens already contribute min(p, q), so corrected tokens must follow (p − q)+ only.
    """

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return p, residual(p, q)[1]


def wrong_rule_for(control: Control, config: RunConfig, device: torch.device) -> RejectionRule:
    """Return a new instance of the wrong rule that ``control`` names."""
    match control:
        case Control.ACCEPT_EVERYTHING:
            return WrongAcceptEverything(config, device)
        case Control.NO_RESIDUAL:
            return WrongNoResidual(config, device)
