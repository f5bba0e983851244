"""Eight conditions on which speculation wins or loses, each shown by a run that helps and one that hurts.

The two sides of a contrast differ in as little as possible. Says what is compared; measuring is in
``contrasts``. No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdemo.lab.handicap import NONE, Handicap
from specdemo.lab.points import BEST, LESS
from specdemo.records.limits import MAX_K, SCRIPTED

K = 3
"""Draft length of both sides, where that is not what they differ in."""
PROMPTS = 2
"""Of each side."""
PLAIN, STOCK, INVENTED = "facts", "boilerplate", "creative"
"""Categories of the shipped prompts."""


@dataclass(frozen=True)
class Side:
    """One side of a contrast.

    Attributes:
        label: What is special about it.
        category: Of the shipped prompts, whose first ``PROMPTS`` are written.
        handicap: What is done to the pair.
        change: Settings of a run that are not those of the other contrasts.
    """

    label: str
    category: str
    handicap: Handicap = NONE
    change: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contrast:
    """One condition and how it is shown.

    Attributes:
        name, group, title, expected: As in ``ContrastPoint``.
        helps, hurts: The two sides.
    """

    name: str
    group: str
    title: str
    expected: str
    helps: Side
    hurts: Side


CONTRASTS = (
    Contrast(
        "cheap-draft",
        BEST,
        "drafting is cheap",
        "Every drafted token costs a draft step, kept or not. With each step made eight times over, the same "
        "guesses cost more than the target passes they save.",
        Side("each step made once", STOCK),
        Side("each step made 8 times", STOCK, Handicap(repeats=8)),
    ),
    Contrast(
        "aligned-draft",
        BEST,
        "the draft thinks like the target",
        "A guess that the target shares is a target pass saved. Noise in the draft's scores turns such "
        "guesses into others at the same price.",
        Side("the draft as it is", STOCK),
        Side("60% noise in the draft", STOCK, Handicap(noise=0.6)),
    ),
    Contrast(
        "predictable-text",
        BEST,
        "the next tokens are predictable",
        "Where one continuation stands out both models find it. At temperature 1.5 the target draws from "
        "many, and which it will be is not for a draft to know.",
        Side("always the likeliest token", STOCK),
        Side("drawn at temperature 1.5", STOCK, change={"temperature": 1.5}),
    ),
    Contrast(
        "parallel-verification",
        BEST,
        "many tokens are checked in one pass",
        "A pass over a few tokens reads the target's weights once, like a pass over one. Where every token "
        "needs a pass of its own to be checked, no draft can ever save anything.",
        Side("one pass for all", STOCK),
        Side("one pass for each", STOCK, Handicap(one_by_one=True)),
    ),
    Contrast(
        "creative-task",
        LESS,
        "the task is creative",
        "A stock letter can go on in few ways, an invented story in many. Told at temperature 1, it takes "
        "turns that the draft does not foresee.",
        Side("stock letters", STOCK),
        Side("a poem and a story, at temperature 1", INVENTED, change={"temperature": 1.0}),
    ),
    Contrast(
        "different-distribution",
        LESS,
        "draft and target weigh tokens differently",
        "A drawn token is kept with probability min(1, p/q), so what counts is how far the two distributions "
        "overlap. A draft whose scores are divided by 3 has the same favourites and bets too little on them.",
        Side("as sure as it has learnt to be", STOCK, change={"temperature": 0.8}),
        Side("its scores divided by 3", STOCK, Handicap(temperature=3.0), {"temperature": 0.8}),
    ),
    Contrast(
        "wrong-guesses",
        LESS,
        "the draft guesses wrong",
        "Wrong words are proposed here at no cost at all. Still each round puts out a single token, after a "
        "pass that checked them in vain: at best as fast as the target alone.",
        Side("the draft's guesses", PLAIN),
        Side("always wrong", PLAIN, change={"drafter": SCRIPTED, "script": "banana umbrella " * 100}),
    ),
    Contrast(
        "overhead",
        LESS,
        "drafting and checking eat up the gain",
        f"The guess at place {MAX_K} counts only if all before it were right. Most of a long draft is thrown "
        "away, but all of it is drafted and checked.",
        Side("k = 2", PLAIN, change={"k": 2}),
        Side(f"k = {MAX_K}", PLAIN, change={"k": MAX_K}),
    ),
)

CONDITIONS = tuple(contrast.name for contrast in CONTRASTS)
"""By these names one contrast can be asked for."""
