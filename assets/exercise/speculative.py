"""An exercise: write speculative decoding. Fill in `draft`, `residual` and `verify`, then run the tests:

    python -m pytest assets/exercise

The models are tiny and random, so nothing is downloaded. All distributions are tensors of probabilities. At
temperature 0, the most likely token has probability 1, so greedy decoding needs no code of its own.
"""

import torch
from torch import Tensor

VOCABULARY = 12
END = 0  # the token that ends a text


class Model:
    """One layer of causal attention with random weights, and a cache of what it has read.

    Models of the same seed are equal; ``noise`` makes a draft model that resembles its target.
    """

    def __init__(self, seed: int, noise: float = 0.0, width: int = 16):
        self.width = width
        self.weights = self._random(seed) + noise * self._random(seed + 1)
        self.cut(0)

    def _random(self, seed: int) -> Tensor:
        rng = torch.Generator().manual_seed(seed)
        return torch.randn(5, max(VOCABULARY, self.width), self.width, generator=rng, dtype=torch.float64)

    @property
    def length(self) -> int:
        """The number of tokens in the cache."""
        return len(self.keys)

    def cut(self, length: int) -> None:
        """Forget all tokens after the first ``length``."""
        empty = torch.empty(0, self.width, dtype=torch.float64)
        self.keys, self.values = (empty, empty) if length == 0 else (self.keys[:length], self.values[:length])

    def read(self, tokens: list[int]) -> Tensor:
        """Read the next tokens of the text, at least one; return the logits after each, [tokens, vocabulary].

        The tokens must follow those in the cache, and are added to it.
        """
        assert tokens, "rollback: the cache has all these tokens already; cut it first"
        embedding, wide = self.weights[0][:VOCABULARY], self.weights[:, : self.width]
        hidden = embedding[tokens]
        self.keys = torch.cat([self.keys, hidden @ wide[1]])
        self.values = torch.cat([self.values, hidden @ wide[2]])
        ahead = torch.ones(len(tokens), self.length, dtype=torch.bool).triu(self.length - len(tokens) + 1)
        scores = (hidden @ wide[3] @ self.keys.T / self.width).masked_fill(ahead, -torch.inf)
        return (hidden + scores.softmax(-1) @ self.values) @ embedding.T / self.width


def distribution(logits: Tensor, temperature: float) -> Tensor:
    """Return the probabilities of the next token; at temperature 0, 1 for the most likely one."""
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    return (logits / temperature).softmax(-1)


def draw(probabilities: Tensor, rng: torch.Generator) -> int:
    """Return a random token."""
    return int(torch.multinomial(probabilities, 1, generator=rng))


def draft(
    model: Model, ids: list[int], k: int, temperature: float, rng: torch.Generator
) -> tuple[list[int], Tensor]:
    """Propose k tokens after the text ``ids``.

    The cache may still have rejected tokens of the last round, in place of the last token of ``ids`` and
    after it: forget them first. Then read the tokens of ``ids`` that are missing.

    Returns:
        The k draft tokens, and the distributions q from which they were drawn, [k, vocabulary].
    """
    raise NotImplementedError("Write draft.")


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Return the distribution of the token that replaces a rejected one: max(0, p − q), normalized.

    If p and q are equal, nothing remains; return p.
    """
    raise NotImplementedError("Write residual.")


def verify(drafted: list[int], p: Tensor, q: Tensor, rng: torch.Generator) -> list[int]:
    """Return the tokens that a round adds to the text.

    From left to right, accept draft token t with probability min(1, p[i, t] / q[i, t]). At the first
    rejected token, add one from the residual distribution and stop. If all were accepted, add one from the
    last row of p. An accepted ``END`` ends the text: nothing may follow it.

    Args:
        drafted: The k draft tokens.
        p: The target's distributions, [k + 1, vocabulary].
        q: The draft model's distributions, [k, vocabulary].
        rng: ``torch.rand((), generator=rng)`` is a random number from 0 to 1.
    """
    raise NotImplementedError("Write verify.")


def generate(
    target: Model, draft_model: Model, prompt: list[int], k: int, tokens: int, temperature: float, seed: int
) -> list[int]:
    """Return the text after the prompt: up to ``tokens`` tokens, or fewer if the text ends with ``END``."""
    rng = torch.Generator().manual_seed(seed)
    ids = [*prompt]
    while len(ids) < len(prompt) + tokens and ids[-1] != END:
        target.cut(min(target.length, len(ids) - 1))  # forget the rejected tokens of the last round
        drafted, q = draft(draft_model, ids, k, temperature, rng)
        logits = target.read([*ids[target.length :], *drafted])[-k - 1 :]
        ids += verify(drafted, distribution(logits, temperature), q, rng)
    return ids[len(prompt) : len(prompt) + tokens]
