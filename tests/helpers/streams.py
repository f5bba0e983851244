"""Texts and drafts made of seeded random numbers: how fast a draft length is on them, by given costs.

Where a draft is right is settled beforehand, of each place of the text, so that every draft length is
judged by the same luck and nothing depends on time.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength
from specdemo.records.trace import Calibration

TOKENS = 128
WORDS = 400

TABLES = {
    "bf16": (0.047, (1.0, 1.0, 1.0, 1.0, 1.01, 1.01, 1.02, 1.02, 1.03, 1.15, 1.2, 1.25, 1.3)),
    "int4": (0.06, (1.0, 1.05, 1.1, 1.2, 2.03, 2.05, 2.1, 2.2, 3.0, 3.05, 3.1, 3.2, 4.0)),
    "avx2": (0.08, (1.0, 1.0, 1.0, 1.17, 1.2, 1.3, 2.0, 2.0, 2.05, 2.1, 2.15, 2.2, 2.3)),
}
"""c and v of three machines: verification nearly free, a cliff behind four rows, one behind six."""


def costs(c: float, v: tuple[float, ...]) -> Calibration:
    """Costs on a machine whose pass takes 20 ms."""
    return Calibration(step_s=0.02, c=c, v=v, row_floor=1)


def table(name: str) -> Calibration:
    """One of ``TABLES``."""
    return costs(*TABLES[name])


@dataclass(frozen=True)
class Stream:
    """A text and what a draft would make of it.

    Attributes:
        luck: Of each token of the text a number in [0, 1): a draft gets it right if that is below its chance.
        chance: Chance of each token to be drafted right, as the first of a draft.
        told: The draft's confidence in each token, near its chance.
        fading: What the chance is multiplied by for every place further back in a draft.
    """

    luck: tuple[float, ...]
    chance: tuple[float, ...]
    told: tuple[float, ...]
    fading: float = 1.0

    def right(self, token: int, place: int) -> bool:
        """Whether the text's token would be drafted right at this place of a draft, all before it right."""
        return self.luck[token] < self.chance[token] * self.fading**place


def stream(alpha: Callable[[int], float], seed: int, fading: float = 1.0, tokens: int = TOKENS) -> Stream:
    """A text in which token i is drafted right with mean chance ``alpha(i)``, some easy and some hard.

    Chances spread as a draft's confidences do (a beta distribution that is wide and has its weight at both
    ends); what the draft says of them is right on average and off by 0.15 or so.
    """
    rng = random.Random(seed)
    luck, chance, told = [], [], []
    for token in range(tokens):
        mean = alpha(token)
        easy = 0.0 < mean < 1.0
        chance.append(rng.betavariate(1.2 * mean, 1.2 * (1 - mean)) if easy else mean)
        luck.append(rng.random())
        told.append(min(max(chance[-1] + rng.gauss(0.0, 0.15), 0.01), 0.999))
    return Stream(tuple(luck), tuple(chance), tuple(told), fading)


@cache
def scores(confidence: float) -> Tensor:
    """Logits whose highest probability is about ``confidence``."""
    rest = (1.0 - confidence) / (WORDS - 1)
    return torch.tensor([max(confidence, 1.0 / WORDS), *[rest] * (WORDS - 1)]).log()


@dataclass
class Outcome:
    """What a draft length made of a text, its cost in single-token target passes."""

    tokens: int = 0
    cost: float = 0.0
    drafted: list[int] = ()

    @property
    def rate(self) -> float:
        """Tokens per target pass's time."""
        return self.tokens / self.cost


def decode(length: DraftLength, text: Stream, true: Calibration) -> Outcome:
    """Play the rounds of one run on a machine of the costs ``true``."""
    at, cost, drafted = 0, 0.0, []
    while at < len(text.luck):
        left = len(text.luck) - at
        length.start(left - 1)
        k, steps = write(length, text, at)
        right = next((place for place in range(k) if not text.right(at + place, place)), k)
        length.observe(right, min(right + 1, k), right + 1)
        length.timed(steps, k + 1, steps * true.c * true.step_s, true.v[k] * true.step_s)
        cost += steps * true.c + true.v[k]
        drafted.append(k)
        at += right + 1
    return Outcome(at, cost, drafted)


def write(length: DraftLength, text: Stream, at: int) -> tuple[int, int]:
    """Tokens drafted and steps made for a round that begins at token ``at``."""
    k = steps = 0
    while length.wants_step():
        steps += 1
        if not length.wants_token(scores(round(text.told[at + k], 2))):
            break
        k += 1
    return k, steps


def rate(make: Callable[[], DraftLength], texts: list[Stream], true: Calibration) -> float:
    """Tokens per target pass's time over several runs, each with a length of its own."""
    played = [decode(make(), text, true) for text in texts]
    return sum(one.tokens for one in played) / sum(one.cost for one in played)
