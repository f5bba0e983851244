"""What a draft is trained to minimise, from the target's kept probabilities at each position.

All take the draft's log-probabilities and the target's probabilities of the same tokens, so they
see only tokens that the draft can say and the label keeps; the rest of the mass is nobody's to win.
"""

from collections.abc import Callable

from torch import Tensor

Objective = Callable[[Tensor, Tensor], Tensor]
"""(log q [n, kept], p [n, kept]; both 0 mass where the draft has no such token) -> loss per position [n]."""


def forward_kl(log_q: Tensor, p: Tensor) -> Tensor:
    """−Σ p log q: forward KL up to a constant (DistillSpec, Zhou et al. 2024)."""
    return -(p * log_q).sum(-1)


def negative_log_acceptance(log_q: Tensor, p: Tensor) -> Tensor:
    """−log Σ min(p, q): the log of the acceptance rate itself ("LK losses").

    Its gradient is that of the total variation, divided by the acceptance, so hard positions count.
    """
    return -log_q.exp().minimum(p).sum(-1).clamp_min(1e-6).log()


def hybrid(log_q: Tensor, p: Tensor) -> Tensor:
    """Both in equal parts: KL to learn from afar, acceptance to finish."""
    return 0.5 * forward_kl(log_q, p) + 0.5 * negative_log_acceptance(log_q, p)


OBJECTIVES: dict[str, Objective] = {
    "kl": forward_kl,
    "acceptance": negative_log_acceptance,
    "hybrid": hybrid,
}
