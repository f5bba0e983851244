"""Who proposes the tokens. A drafter is asked for a draft, then told how many tokens were kept.

The two-call shape follows transformers' ``CandidateGenerator``. A drafter may be as wrong as it
likes: the target's verdict keeps the output the target's. A new kind is one class: here if it needs
nothing but runtimes, in a module of its own (``lookup``, ``feature_draft``) if it brings machinery.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specdemo.engine.draft_length import DraftLength
from specdemo.engine.rules import Draft, Pick, VerificationRule
from specdemo.models.runtime import ExitRuntime, Runtime


class Drafter(Protocol):
    """Proposes the continuation of a text for the target to judge. One object per run."""

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Start on ``prompt_ids``, of which the target's cache holds all but the last.

        The run will not hold more than ``capacity`` positions.
        """

    def propose(self, text: Sequence[int], length: DraftLength, rule: VerificationRule) -> Draft:
        """Draft as many tokens after ``text`` (prompt and output so far) as ``length`` wants."""

    def observe(self, accepted: int) -> None:
        """Learn that the first ``accepted`` tokens of the last draft were kept."""


class DraftLoop(Protocol):
    """All steps of a draft without a look in between."""

    def draft(self, missing: Tensor, length: DraftLength) -> Draft:
        """Take the tokens the cache lacks, at least one, and draft as many as ``length`` wants."""


class DraftModelDrafter:
    """A small language model that writes tokens one by one over its own cache.

    Args:
        runtime: The model.
        loop: The same model with pass and choice recorded, where the device can replay.
    """

    def __init__(self, runtime: Runtime, loop: DraftLoop | None = None):
        self._runtime = runtime
        self._loop = loop
        self._base = 0

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Process the prompt but its last token, which the first draft step takes."""
        self._runtime.begin(capacity)
        self._runtime.prefill(torch.tensor(prompt_ids[:-1], dtype=torch.long, device=self._runtime.device))

    def propose(self, text: Sequence[int], length: DraftLength, rule: VerificationRule) -> Draft:
        """Draft token by token.

        The first pass takes whatever the cache lacks: the target's last token and, after a fully
        accepted draft, the last drafted one, which was never fed back.
        """
        runtime = self._runtime
        self._base = len(text)
        missing = torch.tensor(text[runtime.length :], dtype=torch.long, device=runtime.device)
        if self._loop is not None:
            return self._loop.draft(missing, length)

        def step(previous: Tensor | None) -> Tensor:
            return runtime.forward(missing if previous is None else previous)[-1]

        return write_draft(step, len(text), length, rule, runtime.id_map, runtime.device, "draft-model")

    def observe(self, accepted: int) -> None:
        """Forget the cache entries of tokens that were thrown away."""
        self._runtime.rollback(min(self._runtime.length, self._base + accepted))


class EarlyExitDrafter:
    """The target's own first layers and head, over the first layers of the target's own cache.

    Self-speculation (Elhoushi et al. 2024, "LayerSkip"; Zhang et al. 2024, "Draft & Verify"): no
    second model, no second cache. The verifying pass writes the same entries again.
    """

    def __init__(self, runtime: ExitRuntime):
        self._runtime = runtime

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """The target has processed the prompt already."""
        self._runtime.begin(capacity)

    def propose(self, text: Sequence[int], length: DraftLength, rule: VerificationRule) -> Draft:
        """Draft token by token from where the target stands."""
        runtime = self._runtime
        runtime.follow()
        last = torch.tensor(text[-1:], dtype=torch.long, device=runtime.device)

        def step(previous: Tensor | None) -> Tensor:
            return runtime.forward(last if previous is None else previous)[-1]

        return write_draft(step, len(text), length, rule, None, runtime.device, "early-exit")

    def observe(self, accepted: int) -> None:
        """Nothing is kept between rounds."""


class ScriptedDrafter:
    """Drafts a given token list, position by position: for tests, and for people who play the draft."""

    def __init__(self, script: Sequence[int], device: torch.device):
        self._script = list(script)
        self._device = device
        self._prompt_length = 0

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Line the script up with the end of the prompt."""
        self._prompt_length = len(prompt_ids)

    def propose(self, text: Sequence[int], length: DraftLength, rule: VerificationRule) -> Draft:
        """The script's tokens at this position, as far as it reaches."""
        start = len(text) - self._prompt_length
        return copied_draft(self._script[start:], 3, length, self._device, "scripted")

    def observe(self, accepted: int) -> None:
        """The script does not change."""


class NoDrafter:
    """Drafts nothing: every round is one plain target step, which is the baseline."""

    def __init__(self, device: torch.device):
        self._draft = empty_draft(device)

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Nothing to prepare."""

    def propose(self, text: Sequence[int], length: DraftLength, rule: VerificationRule) -> Draft:
        """Always empty."""
        return self._draft

    def observe(self, accepted: int) -> None:
        """Nothing to learn."""


def write_draft(
    step: Callable[[Tensor | None], Tensor],
    position: int,
    length: DraftLength,
    rule: VerificationRule,
    id_map: Tensor | None,
    device: torch.device,
    name: str,
) -> Draft:
    """The drafting loop of every kind that computes distributions.

    Args:
        step: From the token just drafted (target id, shape [1]; None at first) to the logits [H]
            of the next one.
        position: Where the first drafted token will stand.
        id_map: Target id of each logit, shape [H]; None where they are the target's own.
        name: Drafter kind, for the record.
    """
    picks: list[Pick] = []
    ids: list[Tensor] = []
    logits: list[Tensor] = []
    steps = 0
    while length.wants_step():
        scores = step(ids[-1] if ids else None)
        steps += 1
        if not length.wants_token(scores):
            break
        where = torch.tensor([position + len(ids)], device=device)
        pick = rule.pick(scores, where, rule.chances(1), id_map)
        picks.append(pick)
        ids.append(pick.row if id_map is None else id_map[pick.row])
        logits.append(scores)
    if not ids:
        return empty_draft(device, steps)
    probs = [pick.probs for pick in picks if pick.probs is not None]
    return Draft(
        ids=torch.cat(ids),
        probs=torch.stack(probs) if probs else None,
        rows=torch.cat([pick.row for pick in picks]) if probs else None,
        logits=torch.stack(logits),
        id_map=id_map,
        steps=steps,
        by=name,
    )


def copied_draft(
    tokens: Iterable[int], matched: int, length: DraftLength, device: torch.device, name: str
) -> Draft:
    """A draft of given tokens (q = 1 each), as many of them as ``length`` wants."""
    wanted = []
    for token in tokens:
        if not length.wants_copy(matched):
            break
        wanted.append(token)
    ids = torch.tensor(wanted, dtype=torch.long, device=device)
    return Draft(ids, by=name if wanted else "")


def empty_draft(device: torch.device, steps: int = 0) -> Draft:
    """A draft of no tokens."""
    return Draft(torch.empty(0, dtype=torch.long, device=device), steps=steps)
