"""Learning while serving: what the pair at home writes for its visitors improves its table of n-grams.

Only drafts change by it: what is written is the target's own as ever. But drafts are shown, refused ones too,
and who follows them from word to word can read again what was written for somebody else. Hosts are told so
where they switch it on.
"""

from dataclasses import replace

from specdemo.models.n_gram import LearningTable, Visit, empty_table
from specdemo.pairs.pair import Pair
from specdemo.records.trace import SPECULATIVE, Run


class Learner:
    """Holds what was learned for as long as the program runs, and in memory alone."""

    def __init__(self) -> None:
        self._table: LearningTable | None = None

    def pupil(self, pair: Pair) -> Pair:
        """``pair`` with a table that learns: its own, or an empty one where it has none.

        Loaded once more, the same pair goes on with what was learned.
        """
        if self._table is None:
            assert not isinstance(pair.n_gram, LearningTable)
            self._table = LearningTable(pair.n_gram or empty_table(pair.vocab))
        return replace(pair, n_gram=self._table)

    @property
    def visits(self) -> list[Visit]:
        """The latest, the oldest first."""
        return self._table.visits if self._table else []

    @property
    def contexts(self) -> int:
        """How many were learned and are kept."""
        return len(self._table) if self._table else 0


def learn_from(pair: Pair, run: Run) -> None:
    """Have the pair's table learn from a run that is over, if it is one that learns."""
    if isinstance(pair.n_gram, LearningTable):
        pair.n_gram.learn([*run.prompt_ids, *run.lanes[SPECULATIVE].ids], len(run.prompt_ids))
