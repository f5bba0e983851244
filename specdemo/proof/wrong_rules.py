"""Two ways of getting rejection sampling wrong, for tests of sameness to be tested with."""

import torch
from torch import Tensor

from specdemo.engine.rules import RejectionRule
from specdemo.engine.sampling import residual
from specdemo.proof.bounds import Control
from specdemo.records.trace import RunConfig


class WrongAcceptEverything(RejectionRule):
    """Wrong on purpose: every drafted token stays, so most of the text is the draft's."""

    def keeps(self, p: Tensor, q: Tensor, coins: Tensor) -> Tensor:
        return torch.ones_like(coins, dtype=torch.bool)


class WrongNoResidual(RejectionRule):
    """Wrong on purpose: the correction is drawn from p itself.

    Accepted drafts have already put out min(p, q) of each token; the rest of p alone is left to give.
    """

    def residual_distribution(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        return p, residual(p, q)[1]


def wrong_rule_for(control: Control, config: RunConfig, device: torch.device) -> RejectionRule:
    """A fresh rule object that breaks rejection sampling in the way named."""
    match control:
        case Control.ACCEPT_EVERYTHING:
            return WrongAcceptEverything(config, device)
        case Control.NO_RESIDUAL:
            return WrongNoResidual(config, device)
