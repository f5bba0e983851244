"""Speculative decoding: draft, verify, correct. Token ids in, rounds out.
Algorithm 1 of Leviathan et al. 2023 over a key/value cache.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength, FixedLength, length_for
from specdemo.engine.drafter import Drafter, NoDrafter
from specdemo.engine.rules import VerificationRule, rule_for
from specdemo.engine.sampling import NO_NUMBERS
from specdemo.engine.verdicts import TopLists, describe, no_tops, truncate_at_eos
from specdemo.models.runtime import MAX_ROWS, Runtime, Stopwatch, capacity_for
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import Finish, Round, RunConfig


def never() -> bool:
    """Return False: the stop request of a run that is never stopped."""
    return False


def run_capacity(prompt_tokens: int, max_new_tokens: int) -> int:
    """Return the cache length of a run: the same in both lanes for every k, padding rows included."""
    return capacity_for(prompt_tokens + max_new_tokens + MAX_K + MAX_ROWS)


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
) -> Iterator[Round]:
    """Decode with drafts and yield one ``Round`` per target pass.

    Args:
        target: The model whose output this is.
        drafter: Proposes the draft tokens of a round.
        prompt_ids: At least one id.
        config: Rule, temperature, k, seed and the maximum number of new tokens.
        eos_ids: Ids that end the text; the one that occurs is emitted.
        stop: Called once a round; True makes the current round the last.
        length: Decides how many tokens are drafted; by default always ``config.k``. A round never drafts
            more than what is left less one, since the target always adds one token.
        rule: The run's own rule object, if the drafter shares it; by default made from ``config``.
        tops: Makes the lists of likely tokens next to each token, for display: ``verdicts.top_fives``.
        timed_pass: Called with the ids [n] of each target pass and timed in its place; the pass that gives
            the tokens is then off the clock (see ``autoregress``).

    Yields:
        Rounds in order; the last one has ``finish``.

    Raises:
        UserError: The prompt is empty or fills the context.
        FloatingPointError: The logits are not a distribution; nothing of that round is emitted.
    """
    text = list(prompt_ids)
    end, finish_at_end = _end_of_run(target, len(text), config.max_new_tokens)
    rule = rule or rule_for(config, target.device)
    length = length or length_for(config.k, None, target.device)

    # 0. Prefill. Both models process the prompt but its last token, which the first pass takes.
    capacity = run_capacity(len(text), config.max_new_tokens)
    watch = Stopwatch(target.device)
    target.begin(capacity)
    target.prefill(torch.tensor(text[:-1], dtype=torch.long, device=target.device))
    drafter.begin(text, capacity)
    watch.lap()
    [prefill_s] = watch.laps()

    index, finish = 0, None
    while finish is None:
        position = len(text)
        watch = Stopwatch(target.device)

        # 1. Draft. How many tokens is decided before each token is drawn, never after: dropping a token
        # because of what it is would change the distribution of the output.
        length.start(end - position - 1)
        draft = drafter.propose(text, length, rule)
        watch.lap()

        # 2. Verify. One pass over the last token and the k draft tokens gives the target's distribution at
        # each of the k + 1 places. A baseline may be timed on a pass without padding instead.
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

        # 3. Accept. The rule keeps a prefix of the draft and adds one token of the target's: the corrected
        # token after a rejection, the bonus token after a whole draft. This is the round's one transfer
        # from the device.
        verdict = rule.verify(draft, logits, position)
        packed = torch.cat([verdict.finite.long()[None], verdict.accepted[None], verdict.token, draft.ids])
        finite, accepted, token, *drafted_ids = packed.tolist()
        if not finite:
            raise FloatingPointError(NO_NUMBERS)
        outcome = truncate_at_eos(accepted, token, drafted_ids, eos_ids)
        text += outcome.emitted

        # 4. Roll back. The target's cache keeps the last token and what was accepted: the emitted token of
        # the target's own enters with the next pass.
        target.rollback(position + outcome.kept)
        drafter.observe(outcome.kept)
        length.observe(outcome.kept, outcome.compared, len(outcome.emitted))
        watch.lap()

        # 5. Record, off the clock.
        if outcome.ended:
            finish = Finish.EOS
        elif len(text) >= end:
            finish = finish_at_end
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
            prefill_s=prefill_s if index == 0 else 0.0,
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
) -> Iterator[Round]:
    """Decode with one model alone: the target for the baseline, or a draft model as its own target.

    This is ``speculate`` with nothing drafted, so the baseline has every optimization that the speculative
    lane has. A decoder that never verifies drafts needs no padded passes: if its passes are padded,
    ``timed_pass`` is ``ModelRuntime.run_unpadded``, and the baseline's clock counts that pass instead of
    the padded one that gives the token. Arguments, rounds and errors are those of ``speculate``.
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
    )


def _end_of_run(target: Runtime, prompt_tokens: int, max_new_tokens: int) -> tuple[int, Finish]:
    """Return the number of tokens at which the run ends, prompt included, and the name of that end."""
    if prompt_tokens == 0:
        raise UserError("The prompt is empty; write something for the models to continue.")
    if prompt_tokens >= target.max_context:
        raise UserError(
            f"The prompt has {prompt_tokens:,} tokens, the target reads {target.max_context:,}; shorten it."
        )
    wanted = prompt_tokens + max_new_tokens
    return (wanted, Finish.LENGTH) if wanted <= target.max_context else (target.max_context, Finish.CONTEXT)
