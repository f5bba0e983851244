"""A batch of texts that are continued together, each at a temperature of its own, until it ends."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specdemo.training.batched import BatchedDecoder


class GrowingBatch:
    """Rows that a decoder continues; those that have ended leave it now and then.

    Args:
        decoder: Begins with ``prompts`` here.
        limit: Most tokens a row gets.
        temperatures: Of each row; 0 takes the most probable token.
        eos_ids: Tokens that end a row.
        generator: Of the draws.

    Attributes:
        logits: Of the next token of every row that is still in the decoder, [rows, V].
        active: Which prompts these rows are of, [rows].
    """

    def __init__(
        self,
        decoder: BatchedDecoder,
        prompts: list[list[int]],
        limit: int,
        temperatures: Sequence[float],
        eos_ids: frozenset[int],
        generator: torch.Generator,
    ):
        device = decoder.device
        self._decoder, self._generator = decoder, generator
        self._temperatures = torch.tensor(temperatures, device=device)
        self._ends = torch.tensor(sorted(eos_ids), device=device)
        self._running = torch.ones(len(prompts), dtype=torch.bool, device=device)
        self._tokens = torch.empty(0, device=device)
        self.active = torch.arange(len(prompts), device=device)
        self.logits = decoder.begin(prompts, limit)

    def choose(self, best: Tensor) -> tuple[Tensor, Tensor]:
        """Choose the next token of every row; ``best`` [rows] are the most probable ones.

        Returns:
            Which rows had not ended before it, bool, and the tokens; [rows] both.
        """
        self._tokens = _drawn(self.logits, best, self._temperatures[self.active], self._generator)
        live = self._running[self.active]
        self.end(self.active[torch.isin(self._tokens, self._ends)])
        return live, self._tokens

    def end(self, prompts: Tensor | list[int]) -> None:
        """The texts of these prompts go no further."""
        self._running[prompts] = False

    def advance(self, shrink_at: float) -> bool:
        """Have the decoder take in the tokens chosen; False, and nothing done, where every text has ended.

        Rows that have ended leave it once no more than ``shrink_at`` of them go on.
        """
        left = self._running[self.active]
        if not left.any():
            return False
        if left.sum() <= shrink_at * len(self.active):
            rows = left.nonzero()[:, 0]
            self.active, self._tokens = self.active[rows], self._tokens[rows]
            self._decoder.keep(rows)
        self.logits = self._decoder.step(self._tokens)
        return True


def _drawn(logits: Tensor, best: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """The argmax ``best`` where the temperature is 0, a sample elsewhere; [rows]."""
    tokens = best.clone()
    warm = temperatures.nonzero()[:, 0]
    if len(warm):
        # In place: a tensor of this size is taken from the system anew each time.
        cumulative = logits[warm].float().div_(temperatures[warm, None])
        cumulative.sub_(cumulative.amax(-1, keepdim=True)).exp_().cumsum_(-1)
        u = torch.rand(len(warm), 1, generator=generator, device=logits.device)
        # Scaled by the last entry, since these are no probabilities yet.
        drawn = torch.searchsorted(cumulative, u * cumulative[:, -1:], right=True)
        tokens[warm] = drawn[:, 0].clamp_max(logits.shape[-1] - 1)
    return tokens
