"""Many short runs of table models, and a test of their distribution."""

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
from helpers.tiny import TableRuntime, emitted, nearby, tiny_llama
from scipy.stats import chisquare

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.draft_length import AutoLength, DraftLength, PlannedLength
from specdemo.engine.drafter import Drafter
from specdemo.engine.sampling import probabilities, warp
from specdemo.engine.speculate import speculate
from specdemo.models.runtime import ModelRuntime
from specdemo.records.trace import Calibration, Round, RunConfig

VOCAB = 3
TOKENS = 4
PROMPT = [1, 0]
SAMPLES = 2500
FAILURE = 1e-4
"""Lower p-values fail; a correct implementation has one in 10,000 runs."""
COSTS = Calibration(step_s=0.02, c=0.1, v=(1.0, 1.02, 1.1, 1.2, *[2.0] * 9), row_floor=1)


@cache
def tables() -> tuple[dict, dict]:
    target = tiny_llama(VOCAB, seed=6, spread=0.25)
    draft = nearby(target, seed=9, noise=0.05)
    return TableRuntime.of(target, PROMPT, TOKENS).table, TableRuntime.of(draft, PROMPT, TOKENS).table


def expected(config: RunConfig) -> dict[tuple[int, ...], float]:
    """Return the exact probability of every continuation under the warped target."""
    table, _ = tables()
    found = {}
    for tail in itertools.product(range(VOCAB), repeat=TOKENS):
        chance = 1.0
        for i, token in enumerate(tail):
            scores = warp(table[(*PROMPT, *tail[:i])], config.temperature, config.top_k, config.top_p)
            chance *= probabilities(scores)[token].item()
        found[tail] = chance
    return found


def sample(
    config: RunConfig,
    length: Callable[[], DraftLength] = lambda: None,
    samples: int = SAMPLES,
    drafter: Drafter | None = None,
    target: ModelRuntime | None = None,
) -> tuple[Counter, list[Round]]:
    """Return the counts of continuations over many seeds, and all rounds."""
    table, draft = (TableRuntime(table) for table in tables())
    target, drafter = target or table, drafter or DraftModelDrafter(draft)
    counts: Counter = Counter()
    rounds: list[Round] = []
    for seed in range(samples):
        lane = list(speculate(target, drafter, PROMPT, replace(config, seed=seed), length=length()))
        counts[tuple(emitted(lane))] += 1
        rounds += lane
    return counts, rounds


def acceptance(rounds: list[Round]) -> float:
    return sum(r.accepted for r in rounds) / sum(r.compared for r in rounds)


def p_value(counts: Counter, chances: Mapping[Hashable, float]) -> float:
    """Return the p-value of a chi-square test that ``counts`` were drawn with these probabilities."""
    cells = [cell for cell, chance in chances.items() if chance > 0]
    assert counts.keys() <= set(cells), "an outcome of probability 0 was drawn"
    shares = np.array([chances[cell] for cell in cells], dtype=np.float64)
    assert abs(shares.sum() - 1) < 1e-5, f"the probabilities sum to {shares.sum()}"
    # Normalized, because scipy refuses the totals of float32; cells expected less than 5 times are merged.
    observed = np.array([counts[cell] for cell in cells], dtype=np.float64)
    wanted = shares / shares.sum() * counts.total()
    if (rare := wanted < 5).any():
        observed = np.append(observed[~rare], observed[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
    return float(chisquare(observed, wanted).pvalue)


def timed_by_verdict(kind: type[AutoLength] | type[PlannedLength]) -> Callable[[], DraftLength]:
    """Return a maker of lengths whose rounds take made-up seconds that depend on the verdict."""

    class Timed(kind):
        def observe(self, accepted, compared, emitted):
            super().observe(accepted, compared, emitted)
            self.pace = 0.02 * (0.3 if accepted else 2.0)

        def timed(self, draft_steps, rows, draft_s, verify_s):
            super().timed(draft_steps, rows, draft_steps * 0.1 * self.pace, COSTS.v[rows - 1] * 0.02)

    return lambda: Timed(COSTS)
