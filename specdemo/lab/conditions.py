"""The lab's conditions, each a contrast of two sides, and ablations. Does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdemo.records.limits import MAX_K, SCRIPTED, UserError

K = 3
PROMPTS = 2
BEST, LESS = "works best when", "works less well when"
"""The groups of contrasts. The page shows a group followed by the titles of its contrasts."""
PLAIN, STOCK, LISTED, CODE, INVENTED = "facts", "boilerplate", "lists", "code", "creative"
"""Categories of the built-in prompts."""
MAX_REPEATS = 16


@dataclass(frozen=True)
class Ablation:
    """A change to a draft model, or to how its target verifies."""

    noise: float = 0.0  # share of seeded noise in the draft's logits, 0 to 1
    temperature: float = 1.0  # divisor of the draft's logits, above 0, before the run's own temperature
    repeats: int = 1  # times that each draft pass is computed, 1 to ``MAX_REPEATS``
    one_by_one: bool = False  # the target verifies each token in a separate pass

    def __post_init__(self) -> None:
        if not 0.0 <= self.noise <= 1.0:
            raise UserError(
                f"The share of noise in the draft model's logits must be from 0 to 1, got {self.noise:g}."
            )
        if not self.temperature > 0.0:
            raise UserError(f"The draft model's own temperature must be above 0, got {self.temperature:g}.")
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise UserError(
                f"The repeats of each draft step must be from 1 to {MAX_REPEATS}, got {self.repeats}."
            )

    @property
    def of_draft(self) -> bool:
        return replace(self, one_by_one=False) != NONE


NONE = Ablation()


@dataclass(frozen=True)
class Side:
    """One side of a contrast."""

    label: str
    category: str  # the side uses its first ``PROMPTS`` prompts
    ablation: Ablation = NONE
    change: Mapping[str, Any] = field(default_factory=dict)  # run settings of this side only


@dataclass(frozen=True)
class Contrast:
    """One condition and its two sides, which differ in as little as possible."""

    name: str
    group: str
    title: str  # completes the sentence that ``group`` begins
    expected: str
    helps: Side
    hurts: Side


CONTRASTS = (
    Contrast(
        "cheap-draft",
        BEST,
        "drafting is cheap",
        "Every draft token costs a draft step, accepted or not. If each step is computed eight times, the "
        "same draft tokens cost more than the target passes that they save.",
        Side("each step computed once", STOCK),
        Side("each step computed 8 times", STOCK, Ablation(repeats=8)),
    ),
    Contrast(
        "aligned-draft",
        BEST,
        "the draft model agrees with the target",
        "A draft token that the target agrees with saves a target pass. Noise in the draft model's logits "
        "makes the two models disagree more often, at the same cost.",
        Side("the unchanged draft model", STOCK),
        Side("60% noise in the draft model", STOCK, Ablation(noise=0.6)),
    ),
    Contrast(
        "predictable-text",
        BEST,
        "the next tokens are predictable",
        "If one continuation stands out, both models find the same one. At temperature 1.5, both spread "
        "their probability over many tokens, and the two distributions overlap less.",
        Side("always the most likely token", LISTED),
        Side("sampled at temperature 1.5", LISTED, change={"temperature": 1.5}),
    ),
    Contrast(
        "parallel-verification",
        BEST,
        "one pass verifies many tokens",
        "A pass over a few tokens reads the target's weights once, like a pass over one token. If every "
        "token needed a separate pass, no draft could save a pass.",
        Side("one pass for all", STOCK),
        Side("one pass for each", STOCK, Ablation(one_by_one=True)),
    ),
    Contrast(
        "creative-task",
        LESS,
        "the task is creative",
        "A Python function has few continuations, an invented story many. At temperature 1, the target "
        "often chooses words that the draft model does not expect.",
        Side("two Python functions", CODE),
        Side("a poem and a story, at temperature 1", INVENTED, change={"temperature": 1.0}),
    ),
    Contrast(
        "different-distribution",
        LESS,
        "draft model and target assign different probabilities",
        "A sampled token is accepted with probability min(1, p/q), so the overlap of the two distributions "
        "counts. If the draft model's logits are divided by 3, the most likely tokens stay the same, but "
        "their probabilities become too low.",
        Side("the unchanged draft model", STOCK, change={"temperature": 0.8}),
        Side("logits divided by 3", STOCK, Ablation(temperature=3.0), {"temperature": 0.8}),
    ),
    Contrast(
        "wrong-guesses",
        LESS,
        "the draft tokens are wrong",
        "Here every draft token is wrong, but costs no time to draft. Each round then emits only one "
        "token, after a pass that rejected the draft. At best, the run is as fast as the target alone.",
        Side("the draft model's tokens", PLAIN),
        Side("always wrong", PLAIN, change={"drafter": SCRIPTED, "script": "banana umbrella " * 100}),
    ),
    Contrast(
        "overhead",
        LESS,
        "drafting and verifying cost more than they save",
        f"Draft token {MAX_K} is useful only if all {MAX_K - 1} draft tokens before are accepted. Most of "
        "a long draft is discarded, but drafting and verifying the discarded tokens takes time too.",
        Side("k = 2", PLAIN, change={"k": 2}),
        Side(f"k = {MAX_K}", PLAIN, change={"k": MAX_K}),
    ),
)

CONDITIONS = tuple(contrast.name for contrast in CONTRASTS)
