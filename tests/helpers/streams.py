"""Simulated runs from seeded random numbers: the speed of a draft length on them, for given costs."""

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
    "cliff": (0.06, (1.0, 1.05, 1.1, 1.2, 2.03, 2.05, 2.1, 2.2, 3.0, 3.05, 3.1, 3.2, 4.0)),
    "avx2": (0.08, (1.0, 1.0, 1.0, 1.17, 1.2, 1.3, 2.0, 2.0, 2.05, 2.1, 2.15, 2.2, 2.3)),
}
"""c and v of three machines: verification nearly free, a cliff after four rows, one after six."""


def costs(c: float, v: tuple[float, ...]) -> Calibration:
    return Calibration(step_s=0.02, c=c, v=v, row_floor=1)


def table(name: str) -> Calibration:
    return costs(*TABLES[name])


@dataclass(frozen=True)
class Stream:
    """A text and the draft tokens proposed for it; every draft length gets the same luck."""

    luck: tuple[float, ...]  # in [0, 1), for each token: a draft token is right if this is below its chance
    chance: tuple[float, ...]  # probability that a token is drafted right, as the first of a draft
    confidence: tuple[float, ...]  # the draft's confidence in each token, near its chance
    fading: float = 1.0  # factor of the chance for every later place of a draft

    def right(self, token: int, place: int) -> bool:
        return self.luck[token] < self.chance[token] * self.fading**place


def stream(alpha: Callable[[int], float], seed: int, fading: float = 1.0, tokens: int = TOKENS) -> Stream:
    """Return a text in which token i is drafted right with mean chance ``alpha(i)``, spread at random."""
    rng = random.Random(seed)
    luck, chance, confidence = [], [], []
    for token in range(tokens):
        mean = alpha(token)
        easy = 0.0 < mean < 1.0
        chance.append(rng.betavariate(1.2 * mean, 1.2 * (1 - mean)) if easy else mean)
        luck.append(rng.random())
        confidence.append(min(max(chance[-1] + rng.gauss(0.0, 0.15), 0.01), 0.999))
    return Stream(tuple(luck), tuple(chance), tuple(confidence), fading)


@cache
def scores(confidence: float) -> Tensor:
    """Return logits whose highest probability is about ``confidence``."""
    rest = (1.0 - confidence) / (WORDS - 1)
    return torch.tensor([max(confidence, 1.0 / WORDS), *[rest] * (WORDS - 1)]).log()


@dataclass
class Outcome:
    tokens: int = 0
    cost: float = 0.0  # in single-token target passes
    drafted: list[int] = ()

    @property
    def rate(self) -> float:
        return self.tokens / self.cost


def decode(
    length: DraftLength, text: Stream, true: Calibration, slowdown: Callable[[], float] = lambda: 1.0
) -> Outcome:
    """Simulate one run on a machine with the costs ``true``; ``slowdown`` only disturbs what is measured."""
    at, cost, drafted = 0, 0.0, []
    while at < len(text.luck):
        left = len(text.luck) - at
        length.start(left - 1)
        k, steps = write(length, text, at)
        right = next((place for place in range(k) if not text.right(at + place, place)), k)
        length.observe(right, min(right + 1, k), right + 1)
        draft_s, verify_s = (cost * true.step_s * slowdown() for cost in (steps * true.c, true.v[k]))
        length.timed(steps, k + 1, draft_s, verify_s)
        cost += steps * true.c + true.v[k]
        drafted.append(k)
        at += right + 1
    return Outcome(at, cost, drafted)


def write(length: DraftLength, text: Stream, at: int) -> tuple[int, int]:
    k = steps = 0
    while length.wants_step():
        steps += 1
        if not length.wants_token(scores(round(text.confidence[at + k], 2))):
            break
        k += 1
    return k, steps


def rate(make: Callable[[], DraftLength], texts: list[Stream], true: Calibration) -> float:
    """Return the tokens per single-token target pass over several runs, each with a fresh length."""
    played = [decode(make(), text, true) for text in texts]
    return sum(one.tokens for one in played) / sum(one.cost for one in played)
