"""The target's verdicts on many drafts of one text, reached in passes over whole batches of them.

The prompt is read once, its keys and values are copied to the rows of a batch, and one pass goes over the
last token of the prompt and a draft in each row. What comes of its logits the engine itself decides, draft by
draft (``speculate`` over a pass that has been made), so that every verdict is a ``Round`` like any other.

A batch is another shape of pass than the one a draft alone gets, and rounding makes its logits a little
different ones. Where the best two of a compared position lie so close that this could decide, the draft is
judged by a pass of its own. What such a pass says of a position goes for all drafts that have the same
tokens before it and whose own pass would have the same shape: the same kernels over the same numbers. So a
near tie at the first token does not send a whole class through passes of their own.

Knows token ids only: no text, no events.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdemo.drafters.scripted import ScriptedDrafter
from specdemo.engine.speculate import speculate
from specdemo.engine.verdicts import top_fives
from specdemo.models.batch import Batch, batch_of
from specdemo.models.runtime import Stopwatch
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.records.limits import MAX_K
from specdemo.records.trace import Round, RunConfig

ROWS = 32
"""Drafts in one pass at most: more make it no faster, and their logits would take more memory."""
POSITIONS = 8192
"""Positions of all rows' caches together at most; a long prompt leaves room for fewer rows."""
MARGIN = 512
"""How close the best two count as close, in roundings of the largest logit (its size times the type's eps).

Between a batch's pass and a draft's own no logit of the embedded target was seen to differ by more than 28.4
such roundings in fp32 or packed fp16 and by 4.4 in bf16 (84 drafts behind six prompts). Two logits can move
towards each other, which makes 57: this is nine times as much, and in fp32 still only some 0.002 of a logit,
so that few positions are that close. In bf16 all are, and up to a dozen passes of single drafts decide.
"""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class _Scored:
    """What a batch's pass says of one draft.

    Attributes:
        logits: Of every position, shape [k + 1, V].
        gaps: How far apart the best two lie at each position.
        margin: How far they have to, for a pass of any shape to choose the same.
        seconds: This row's share of the pass.
    """

    logits: Tensor
    gaps: list[float]
    margin: float
    seconds: float


class BatchJudge:
    """Judges drafts of one text, each as the ``scripted`` lane would by itself.

    Args:
        pair: The models.
        config: A greedy run of one round with the ``scripted`` drafter and the longest draft.
        prompt_ids: At least one id, and no more than the target reads.
    """

    @torch.inference_mode()
    def __init__(self, pair: Pair, config: RunConfig, prompt_ids: list[int]):
        self._pair = pair
        self._config = config
        self._prompt_ids = prompt_ids
        self._target = Lanes(pair).verifier(config, len(prompt_ids))
        watch = Stopwatch(pair.device)
        self._target.prefill(self._tensor(prompt_ids[:-1]))
        watch.lap()
        [self._prefill_s] = watch.laps()
        self._read = len(prompt_ids) - 1
        self._most = max(0, min(MAX_K, self._target.max_context - len(prompt_ids) - 1))
        self._settled: dict[tuple[int, Ids], Tensor] = {}

    @torch.inference_mode()
    def batches(self, drafts: Sequence[Ids]) -> Iterator[Mapping[Ids, Round]]:
        """Judge all drafts, a batch at a time, those of about one length together.

        Args:
            drafts: Different ones, of any length; tokens behind the longest draft there may be are left out.

        Yields:
            The rounds of a batch by draft. ``verify_s`` is the batch's pass divided by its rows, to which
            the draft's own pass is added where it had one; ``prefill_s`` is the prompt's, divided by all
            ``drafts``.

        Raises:
            UserError: The prompt fills the context.
            FloatingPointError: Logits are no distribution.
        """
        rows = max(1, min(ROWS, POSITIONS // (self._read + MAX_K + 1)))
        rows = -(-len(drafts) // -(-len(drafts) // rows))  # as many in the last batch as in the others
        batch = batch_of(self._pair.target, rows, self._read + MAX_K + 1)
        batch.begin_with(self._target.keys_and_values())
        prefill_s = self._prefill_s / len(drafts)
        ordered = sorted(drafts, key=len)
        for start in range(0, len(ordered), rows):
            some = ordered[start : start + rows]
            scored = self._scored(batch, [draft[: self._most] for draft in some], rows)
            yield {
                draft: replace(self._judged(draft[: self._most], one), prefill_s=prefill_s)
                for draft, one in zip(some, scored, strict=True)
            }

    def _scored(self, batch: Batch, drafts: list[Ids], rows: int) -> Iterator[_Scored]:
        """One pass over all ``drafts``; rows that are left over repeat the last of them."""
        width = max(map(len, drafts)) + 1
        texts = [[self._prompt_ids[-1], *draft, *[0] * width][:width] for draft in drafts]
        watch = Stopwatch(self._pair.device)
        logits = batch.run(self._tensor(texts + texts[-1:] * (rows - len(texts))), self._read)
        best = logits.topk(2).values
        gaps = (best[..., 0] - best[..., 1]).tolist()
        watch.lap()
        [seconds] = watch.laps()
        margin = margin_of(logits)
        for row, draft in enumerate(drafts):
            kept = len(draft) + 1
            yield _Scored(logits[row, :kept], gaps[row][:kept], margin, seconds / rows)

    def _judged(self, draft: Ids, scored: _Scored) -> Round:
        """The verdict by the batch's pass, or by one of the draft's own where that is too close to tell."""
        shape = self._target.padded(len(draft) + 1)
        for place in range(len(draft) + 1):
            known = self._settled.get((shape, draft[:place]))
            if known is not None:
                scored.logits[place] = known
                scored.gaps[place] = float("inf")
        round_ = self._round(draft, scored.logits)
        decided = len(round_.emitted)  # one position each: what is behind them was not compared
        if all(gap > scored.margin for gap in scored.gaps[:decided]):
            return replace(round_, verify_s=scored.seconds)
        logits, seconds = self._alone(draft)
        round_ = self._round(draft, logits)
        self._settled |= {(shape, draft[:place]): logits[place] for place in range(len(round_.emitted))}
        return replace(round_, verify_s=scored.seconds + seconds)

    def _alone(self, draft: Ids) -> tuple[Tensor, float]:
        """The pass that the ``scripted`` lane makes over a draft: logits [k + 1, V], and its seconds."""
        watch = Stopwatch(self._pair.device)
        logits = self._target.forward(self._tensor([self._prompt_ids[-1], *draft]))
        watch.lap()
        self._target.rollback(self._read)
        return logits, watch.laps()[0]

    def _round(self, draft: Ids, logits: Tensor) -> Round:
        """What the engine makes of a draft and the target's logits [k + 1, V]."""
        made = _PassMade(logits, self._target.max_context)
        drafter = ScriptedDrafter(draft, made.device)
        [round_] = speculate(
            made,
            drafter,
            self._prompt_ids,
            self._config,
            self._pair.eos_ids,
            stop=lambda: True,
            tops=top_fives,
        )
        return round_

    def _tensor(self, ids: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self._pair.device)


class _PassMade:
    """A target whose one pass has been made already: a ``Runtime`` that hands over its logits.

    Args:
        logits: Shape [k + 1, V].
        max_context: Of the target.
    """

    def __init__(self, logits: Tensor, max_context: int):
        self._logits = logits
        self.device = logits.device
        self.id_map = None
        self.max_context = max_context
        self.length = 0

    def begin(self, capacity: int) -> None:
        """The prompt has been read."""

    def prefill(self, ids: Tensor) -> None:
        """The prompt has been read."""
        self.length = len(ids)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits after each of ``ids`` [k + 1]."""
        self.length += len(ids)
        return self._logits

    def rollback(self, length: int) -> None:
        """Nothing is held."""
        self.length = length


def margin_of(logits: Tensor) -> float:
    """How far apart the best two logits have to be for a pass of another shape to choose the same.

    Rounding errors grow with the numbers they are made on, so that the margin goes by the largest logit and
    the precision of the pass. A logit of −inf makes it infinite: every draft is then judged alone.
    """
    low, high = logits.aminmax()
    return MARGIN * torch.finfo(logits.dtype).eps * max(-low.item(), high.item())
