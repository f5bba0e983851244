"""The decoding loop: draft, verify, accept (Leviathan et al. 2023, algorithm 1, over a key/value cache)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength, FixedLength, length_for
from specdemo.engine.drafter import Drafter, NoDrafter
from specdemo.engine.rules import VerificationRule, rule_for
from specdemo.engine.sampling import NO_NUMBERS
from specdemo.engine.verdicts import TopLists, describe, no_tops, truncate_at_eos, unpacked
from specdemo.models.runtime import MAX_ROWS, Runtime, Stopwatch, capacity_for
from specdemo.models.threads import one_torch_thread
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import Finish, Round, RunConfig

if TYPE_CHECKING:  # needs Triton
    from specdemo.engine.recorded_round import RecordedRounds

P = ParamSpec("P")
T = TypeVar("T")

# Maximum number of prompt tokens in one pass, in every lane. A run can be stopped between two passes. A
# compiled pass has 48 rows anyway. On a GPU, every pass reads the weights again, and passes are short.
PROMPT_PART, PROMPT_PART_ON_GPU = 96, 1024


def never() -> bool:
    return False


def run_capacity(prompt_tokens: int, max_new_tokens: int) -> int:
    """Return the cache length of a run, padding rows included. It is the same in all lanes and for all k."""
    return capacity_for(prompt_tokens + max_new_tokens + MAX_K + MAX_ROWS)


def _in_one_thread(rounds: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Let torch's own operations use one thread if the first argument, a target or a prefill, is compiled."""

    @wraps(rounds)
    def limited(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        first = args[0] if args else kwargs["target"]
        found = rounds(*args, **kwargs)
        while True:
            with one_torch_thread() if getattr(first, "is_compiled", False) else nullcontext():
                item = next(found, None)
            if item is None:
                return
            yield item

    return limited


class Prefill:
    """The first phase of a lane: target and drafter process the prompt without its last token, part by part.

    Iterating continues where an earlier iteration ended.
    """

    def __init__(self, target: Runtime, drafter: Drafter, prompt_ids: Sequence[int], max_new_tokens: int):
        if not prompt_ids:
            raise UserError("The prompt is empty; write something for the models to continue.")
        tokens, limit = len(prompt_ids), target.max_context
        if tokens >= limit:
            raise UserError(
                f"The prompt has {tokens:,} tokens, but the target can read at most {limit - 1:,}; "
                "shorten the prompt."
            )
        ids = list(prompt_ids[:-1])
        self._target, self._drafter = target, drafter
        self._capacity = run_capacity(tokens, max_new_tokens)
        size = PROMPT_PART_ON_GPU if target.device.type == "cuda" else PROMPT_PART
        self._left = [ids[start : start + size] for start in range(0, len(ids), size)]
        self.parts = len(self._left)
        self._watch = Stopwatch(target.device)
        self._has_begun = False

    @property
    def is_compiled(self) -> bool:
        return getattr(self._target, "is_compiled", False)

    @_in_one_thread
    @torch.inference_mode()
    def __iter__(self) -> Iterator[float]:
        """Process the remaining parts. After each, yield the share of the prompt that has been processed."""
        target, watch = self._target, self._watch
        if not self._has_begun:
            watch.skip()
            target.begin(self._capacity)
            self._drafter.begin(self._capacity)
            watch.lap()
            self._has_begun = True
        while self._left:
            part = self._left.pop(0)
            watch.skip()
            target.prefill(torch.tensor(part, dtype=torch.long, device=target.device))
            self._drafter.prefill(part)
            watch.lap()
            yield 1 - len(self._left) / self.parts

    @property
    def seconds(self) -> float:
        return sum(self._watch.laps())


@_in_one_thread
@torch.inference_mode()
def speculate(
    target: Runtime,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    config: RunConfig,
    eos_ids: frozenset[int] = frozenset(),
    stop: Callable[[], bool] = never,
    length: DraftLength | None = None,
    rule: VerificationRule | None = None,
    tops: TopLists = no_tops,
    timed_pass: Callable[[Tensor], None] | None = None,
    prefill: Prefill | None = None,
    recorded: "RecordedRounds | None" = None,
) -> Iterator[Round]:
    """Decode speculatively and yield one ``Round`` per target pass.

    Args:
        target: The target model.
        drafter: Proposes the draft tokens of each round.
        prompt_ids: At least one id.
        config: Rule, temperature, k, seed and the maximum number of new tokens.
        eos_ids: End-of-text ids. The first one that occurs is emitted and ends the run.
        stop: Called once per round, and between two parts of the prompt. If it returns True, the current
            round is the last; in the prompt, the run then has no rounds.
        length: Decides how many tokens to draft; by default ``config.k`` per round. If n tokens of the run
            remain, a round drafts at most n − 1, because the target always adds one token.
        rule: The rule object, if the drafter uses the same one; by default created from ``config``.
        tops: Returns the most likely tokens at each position, for display; by default empty lists.
        timed_pass: If given, it is called with the ids [n] of each target pass, and its time counts as the
            time of verification. The pass that computes the logits is then not timed (see ``autoregress``).
        prefill: The prefill of this run, if the caller has begun it; by default a new one.
        recorded: The device's part of this run's rounds, recorded; by default it is started step by step.

    Yields:
        The rounds in order. Only the last one has a ``finish``.

    Raises:
        UserError: The prompt is empty or fills the target's context.
        FloatingPointError: The logits are NaN or infinite. That round emits no tokens.
    """
    text = list(prompt_ids)
    rule = rule or rule_for(config, target.device)
    length = length or length_for(config.k, None, target.device)

    # 0. Prefill. Both models process all of the prompt except its last token, which is in the first pass.
    prefill = prefill or Prefill(target, drafter, text, config.max_new_tokens)
    for share in prefill:
        if share < 1 and stop():
            return

    end = min(len(text) + config.max_new_tokens, target.max_context)
    index, finish = 0, None
    while finish is None:
        position = len(text)
        watch = Stopwatch(target.device)

        length.start(end - position - 1)
        if recorded is not None:
            # Steps 1 to 3 are one launch.
            draft, logits, verdict, packed = recorded.run(text, length, watch)
            results = packed.tolist()
        else:
            # 1. Draft. The drafter decides before each draw whether to go on, never after it: dropping a
            # token that was drawn would change the distribution of the output.
            draft = drafter.propose(text, length, rule)
            watch.lap()

            # 2. Verify. One pass over the last token and the k draft tokens computes the target's logits at
            # k + 1 positions. For a baseline with padded passes, an extra pass without padding is timed.
            last = torch.tensor(text[-1:], dtype=torch.long, device=target.device)
            ids = torch.cat([last, draft.ids])
            if timed_pass is None:
                logits = target.forward(ids)
                watch.lap()
            else:
                timed_pass(ids)
                watch.lap()
                logits = target.forward(ids)
                watch.skip()

            # 3. Accept. The rule accepts a prefix of the draft and adds one token of the target: the
            # corrected token after a rejection, else the bonus token.
            verdict = rule.verify(draft, logits, position)
            results = unpacked(draft, verdict)

        # Results have left the device only here, in one transfer.
        finite, accepted, token, *drafted_ids = results
        if not finite:
            raise FloatingPointError(NO_NUMBERS)
        outcome = truncate_at_eos(accepted, token, drafted_ids, eos_ids)
        text += outcome.emitted

        # 4. Roll back. The target's cache keeps the entries of accepted draft tokens and forgets the others.
        # The target's own token is not in the cache yet; it is the first token of the next pass.
        target.rollback(position + outcome.kept)
        drafter.observe(outcome.kept)
        length.observe(outcome.kept, outcome.compared, len(outcome.emitted))
        watch.lap()

        # 5. Record. This part is not timed.
        if outcome.ended:
            finish = Finish.EOS
        elif len(text) >= end:
            wrote_all = len(text) == len(prompt_ids) + config.max_new_tokens
            finish = Finish.LENGTH if wrote_all else Finish.CONTEXT
        elif stop():
            finish = Finish.STOPPED
        draft_s, verify_s, other_s = watch.laps()
        length.timed(draft.steps, len(draft) + 1, draft_s, verify_s)
        drafted, emission = describe(draft, verdict, logits, outcome, tops)
        yield Round(
            index=index,
            position=position,
            drafted=drafted,
            emission=emission,
            draft_s=draft_s,
            verify_s=verify_s,
            other_s=other_s,
            prefill_s=prefill.seconds if index == 0 else 0.0,
            finish=finish,
            drafted_by=draft.by,
            draft_steps=draft.steps,
        )
        index += 1


def autoregress(
    target: Runtime,
    prompt_ids: Sequence[int],
    config: RunConfig,
    eos_ids: frozenset[int] = frozenset(),
    stop: Callable[[], bool] = never,
    tops: TopLists = no_tops,
    timed_pass: Callable[[Tensor], None] | None = None,
    prefill: Prefill | None = None,
    recorded: "RecordedRounds | None" = None,
) -> Iterator[Round]:
    """Decode with one model alone: the target as the baseline, or the draft model by itself.

    This calls ``speculate`` without drafts, so the baseline has every optimization of the speculative lane.
    Padded passes give the baseline the same bits, but a decoder that never verifies drafts would not pad. So
    if passes are padded, ``timed_pass`` should be ``ModelRuntime.run_unpadded``: each token comes from a
    padded pass, and an extra pass without padding is timed.
    """
    return speculate(
        target,
        NoDrafter(target.device),
        prompt_ids,
        config,
        eos_ids,
        stop,
        length=FixedLength(0),
        tops=tops,
        timed_pass=timed_pass,
        prefill=prefill,
        recorded=recorded,
    )
