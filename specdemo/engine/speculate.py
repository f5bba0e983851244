"""Speculative decoding: draft first, verify second. Token ids in, rounds out; no text, no UI.

Algorithm 1 of Leviathan et al. 2023 over a key/value cache. The target sees each round once, as a
pass over its last own token and the k drafted ones; whatever it refuses is rolled back.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from specdemo.engine.draft import Draft
from specdemo.engine.draft_length import DraftLength, FixedLength, length_for
from specdemo.engine.drafter import Drafter, NoDrafter
from specdemo.engine.rules import VerificationRule, rule_for
from specdemo.engine.sampling import NO_NUMBERS
from specdemo.engine.settle import settle
from specdemo.engine.verdicts import TopLists, Verdict, describe, no_tops
from specdemo.models.runtime import MOST_ROWS, Runtime, Stopwatch, capacity_for
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import Finish, Round, RunConfig


def never() -> bool:
    """A stop request that does not come."""
    return False


def run_capacity(prompt_tokens: int, max_new_tokens: int) -> int:
    """Cache length of a run: the same in both lanes, whatever k is, with room for the rows of padding."""
    return capacity_for(prompt_tokens + max_new_tokens + MAX_K + MOST_ROWS)


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
    """Decode with drafts, one ``Round`` per target pass.

    Args:
        target: The model whose output this is.
        drafter: Proposes the tokens of a round.
        prompt_ids: At least one id.
        eos_ids: Ids that end the text; the one that occurs is emitted.
        stop: Asked once a round; True makes the current round the last.
        length: Decides how many tokens are drafted; by default always ``config.k``. Never more than
            what is left less one, since the target always adds one.
        rule: The run's own rule object, where the drafter knows it too; made from ``config`` otherwise.
        tops: Makes the lists of likely tokens beside each token, for those who show them: ``top_fives``.
        timed_pass: Called with the ids [n] of each target pass and timed in its place; the pass that gives
            the tokens is then off the clock (see ``autoregress``).

    Raises:
        UserError: The prompt is empty or fills the context.
        FloatingPointError: Logits are no distribution; nothing of that round is emitted.
    """
    text = list(prompt_ids)
    end, at_end = _end_of_run(target, len(text), config.max_new_tokens)
    rule = rule or rule_for(config, target.device)
    length = length or length_for(config.k, None, target.device)
    prefill_s = _prefill(target, drafter, text, run_capacity(len(text), config.max_new_tokens))
    index, finish = 0, None
    while finish is None:
        position = len(text)
        watch = Stopwatch(target.device)
        length.start(end - position - 1)
        draft = drafter.propose(text, length, rule)
        watch.lap()
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
        verdict = rule.verify(draft, logits, position)
        accepted, token, drafted_ids = _transfer(verdict, draft)
        settled = settle(accepted, token, drafted_ids, eos_ids)
        text += settled.emitted
        target.rollback(position + settled.kept)
        drafter.observe(settled.kept)
        length.observe(settled.kept, settled.compared, len(settled.emitted))
        watch.lap()

        if settled.ended:
            finish = Finish.EOS
        elif len(text) >= end:
            finish = at_end
        elif stop():
            finish = Finish.STOPPED
        draft_s, verify_s, other_s = watch.laps()
        length.timed(draft.steps, len(draft) + 1, draft_s, verify_s)
        drafted, emission = describe(draft, verdict, logits, settled, tops)
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
    """Decode with one model alone: the target for the baseline, or a draft that is its own target.

    It is ``speculate`` with nothing drafted, so the baseline has every optimisation that the speculative
    lane has. A decoder that never verifies drafts needs no padded passes either: where padding costs time,
    ``timed_pass`` is ``ModelRuntime.run_unpadded``, and the baseline's clock counts that pass in place of
    the padded one that gives the token. Arguments, rounds and errors as for ``speculate``.
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


def _prefill(target: Runtime, drafter: Drafter, text: list[int], capacity: int) -> float:
    """Process the prompt but its last token in both models; returns the seconds it took."""
    watch = Stopwatch(target.device)
    target.begin(capacity)
    target.prefill(torch.tensor(text[:-1], dtype=torch.long, device=target.device))
    drafter.begin(text, capacity)
    watch.lap()
    return watch.laps()[0]


def _end_of_run(target: Runtime, prompt_tokens: int, max_new_tokens: int) -> tuple[int, Finish]:
    """Length of prompt and output at which the run ends, and what to call that end."""
    if prompt_tokens == 0:
        raise UserError("The prompt is empty; write something for the models to continue.")
    if prompt_tokens >= target.max_context:
        raise UserError(
            f"The prompt has {prompt_tokens:,} tokens, the target reads {target.max_context:,}; shorten it."
        )
    wanted = prompt_tokens + max_new_tokens
    return (wanted, Finish.LENGTH) if wanted <= target.max_context else (target.max_context, Finish.CONTEXT)


def _transfer(verdict: Verdict, draft: Draft) -> tuple[int, int, list[int]]:
    """The round's one transfer from the device: accepted count, the target's token, the drafted ids."""
    packed: Tensor = torch.cat(
        [verdict.finite.long()[None], verdict.accepted[None], verdict.token, draft.ids]
    )
    finite, accepted, token, *ids = packed.tolist()
    if not finite:
        raise FloatingPointError(NO_NUMBERS)
    return accepted, token, ids
