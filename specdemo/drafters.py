"""Who proposes the tokens. A drafter is asked for k tokens, then told how many of them were kept.

The two-call shape follows transformers' ``CandidateGenerator``. A drafter may be as wrong as it
likes: the target's verdict keeps the output the target's. A new kind is one class here.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from specdemo.rules import Draft, VerificationRule
from specdemo.runtime import Runtime


class Drafter(Protocol):
    """Proposes the continuation of a text for the target to judge."""

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Start a run on ``prompt_ids`` that will hold at most ``capacity`` positions."""

    def propose(self, text: Sequence[int], k: int, rule: VerificationRule) -> Draft:
        """Draft up to ``k`` tokens after ``text`` (prompt and output so far)."""

    def observe(self, accepted: int) -> None:
        """Learn that the first ``accepted`` tokens of the last draft were kept."""


class DraftModelDrafter:
    """A small language model that writes k tokens one by one over its own cache."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self._base = 0

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Process the prompt but its last token, which the first draft step takes."""
        self._runtime.begin(capacity)
        self._runtime.prefill(torch.tensor(prompt_ids[:-1], dtype=torch.long, device=self._runtime.device))

    def propose(self, text: Sequence[int], k: int, rule: VerificationRule) -> Draft:
        """Draft exactly ``k`` tokens.

        The first pass takes whatever the cache lacks: the target's last token and, after a fully
        accepted draft, the last drafted one, which was never fed back.
        """
        runtime = self._runtime
        self._base = len(text)
        pending = torch.tensor(text[runtime.length :], dtype=torch.long, device=runtime.device)
        ids, rows, probs, logits = [], [], [], []
        for step in range(k):
            scores = runtime.forward(pending)[-1]
            pick = rule.pick(scores, len(text) + step, runtime.id_map)
            pending = pick.row if runtime.id_map is None else runtime.id_map[pick.row]
            ids.append(pending)
            rows.append(pick.row)
            logits.append(scores)
            if pick.probs is not None:
                probs.append(pick.probs)
        if not ids:
            return empty_draft(runtime.device)
        return Draft(
            ids=torch.cat(ids),
            probs=torch.stack(probs) if probs else None,
            rows=torch.cat(rows) if probs else None,
            logits=torch.stack(logits),
            id_map=runtime.id_map,
        )

    def observe(self, accepted: int) -> None:
        """Forget the cache entries of tokens that were thrown away."""
        self._runtime.rollback(min(self._runtime.length, self._base + accepted))


class ScriptedDrafter:
    """Drafts a given token list, position by position: for tests, and for people who play the draft."""

    def __init__(self, script: Sequence[int], device: torch.device):
        self._script = list(script)
        self._device = device
        self._prompt_length = 0

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Line the script up with the end of the prompt."""
        self._prompt_length = len(prompt_ids)

    def propose(self, text: Sequence[int], k: int, rule: VerificationRule) -> Draft:
        """The script's tokens at this position, fewer than ``k`` where it ends."""
        start = len(text) - self._prompt_length
        ids = self._script[start : start + k]
        return Draft(torch.tensor(ids, dtype=torch.long, device=self._device))

    def observe(self, accepted: int) -> None:
        """The script does not change."""


class NoDrafter:
    """Drafts nothing: every round is one plain target step, which is the baseline."""

    def __init__(self, device: torch.device):
        self._draft = empty_draft(device)

    def begin(self, prompt_ids: Sequence[int], capacity: int) -> None:
        """Nothing to prepare."""

    def propose(self, text: Sequence[int], k: int, rule: VerificationRule) -> Draft:
        """Always empty."""
        return self._draft

    def observe(self, accepted: int) -> None:
        """Nothing to learn."""


def empty_draft(device: torch.device) -> Draft:
    """A draft of no tokens."""
    return Draft(torch.empty(0, dtype=torch.long, device=device))
