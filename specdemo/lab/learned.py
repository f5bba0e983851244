"""What a page that learns while it serves has learned: acceptance before and after, over its visits."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from specdemo.lab.charts import learned_chart
from specdemo.models.n_gram import Visit

LATEST = 10
"""Visits a figure is the mean of."""


def learned_answer(visits: Sequence[Visit], contexts: int) -> dict[str, Any]:
    """Figures and chart for the lab.

    Returns:
        ``before`` and ``after``: α of the table as it was shipped and with what was learned, means over the
        latest visits, null before the first one; ``sentence``; ``chart``, by theme, null likewise.
    """
    smoothed = [
        (fmean(visit.before for visit in latest), fmean(visit.after for visit in latest))
        for latest in (visits[max(0, end - LATEST) : end] for end in range(1, len(visits) + 1))
    ]
    before, after = smoothed[-1] if smoothed else (None, None)
    return {
        "before": before,
        "after": after,
        "sentence": _sentence(visits, contexts),
        "chart": learned_chart(smoothed) if smoothed else None,
    }


def _sentence(visits: Sequence[Visit], contexts: int) -> str:
    if not visits:
        return "Nobody has had anything written yet: press Run, then look again."
    runs = "1 run" if len(visits) == 1 else f"the latest {len(visits)} runs"
    tokens = sum(visit.tokens for visit in visits)
    return (
        f"{tokens:,} tokens of {runs}; {contexts:,} contexts are kept, in memory alone. "
        "α here: the share of the target's tokens that the table guesses from those before them, "
        f"a mean of up to {LATEST} runs, each taken before it was learned from."
    )
