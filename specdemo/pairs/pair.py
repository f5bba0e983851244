"""A loaded pair: a target, its drafts, and their properties. Loading is in ``load``, running in ``lanes``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch

from specdemo.models.execution import CausalLM, WholeModel, readable_positions
from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.layer_views import vocabulary_of
from specdemo.models.n_gram import NGramTable
from specdemo.pairs.calibrate import PassCosts
from specdemo.pairs.hardware import place_of
from specdemo.records.drafter_kinds import FEATURE_DRAFT, NEEDED_NAMES, PROMPT_LOOKUP, drafters_with
from specdemo.records.limits import UserError, show
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Mode, RunConfig

if TYPE_CHECKING:
    from specdemo.models.compiled.feature import CompiledFeatureDraft

Stop = Callable[[], bool]
"""A callback that is called regularly. If it returns True, the current work ends."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A target and its drafts, each on its device, with their tokenizer.

    Attributes:
        target_name: Name of the target on the page.
        draft_name: Name of the draft model on the page.
        target: The target model.
        draft: The draft model, if there is one; it may score fewer tokens (``id_map``).
        id_map: Target id of each draft output row, shape [H], on the draft's device; None if both score the
            same ids.
        tokenizer: Of transformers; both models share it.
        precision: Precision of the target.
        pieces: The bytes of each token.
        feature_draft: The head on the target's hidden states, if there is one for this target.
        n_gram: The table of n-grams of the target's text, if there is one; it may be learning.
        target_revision: Commit of a target from the hub.
        draft_revision: Commit of a draft model from the hub.
        precision_reason: A sentence that explains ``precision``.
        notes: Sentences on what differs from the target's usual decoding; often empty.
        costs: The pair's pass costs.
    """

    target_name: str
    draft_name: str
    target: WholeModel
    draft: CausalLM | None
    id_map: torch.Tensor | None
    tokenizer: Any
    precision: str
    pieces: PieceTable
    feature_draft: "FeatureDraft | CompiledFeatureDraft | None" = None
    n_gram: NGramTable | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    precision_reason: str = ""
    notes: str = ""
    costs: PassCosts = field(default_factory=PassCosts)

    @property
    def device(self) -> torch.device:
        """Device of the target's ids, logits and verdicts."""
        return next(self.target.parameters()).device

    @property
    def draft_device(self) -> torch.device:
        """Device of the draft model; the target's if there is none."""
        return self.device if self.draft is None else next(self.draft.parameters()).device

    @property
    def place(self) -> str:
        """Name of the device for the page, with the number of GPUs and the way passes run on them."""
        return place_of((self.target, self.draft), self.device)

    @property
    def names(self) -> dict[str, str]:
        """Names and revisions of the models, for a run's record."""
        names = {"target": self.target_name, "draft": self.draft_name}
        revisions = {"target_revision": self.target_revision, "draft_revision": self.draft_revision}
        return names | {key: revision for key, revision in revisions.items() if revision is not None}

    @property
    def vocab(self) -> int:
        """Number of ids of the target, V."""
        return vocabulary_of(self.target)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        return eos_ids_of(self.target, self.tokenizer)

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the drafter kinds on menus that this pair can run."""
        return drafters_with(*(name for name in NEEDED_NAMES if getattr(self, name) is not None))

    @property
    def default_drafter(self) -> str:
        """Name of the drafter kind to use if none is requested."""
        if self.draft is not None:
            return RunConfig.drafter
        return PROMPT_LOOKUP if self.feature_draft is None else FEATURE_DRAFT

    def prompt_ids(self, config: RunConfig) -> list[int]:
        """Return the ids of the prompt, with the chat template in chat mode.

        Raises:
            UserError: The mode is chat but the target has no chat template, the prompt has no tokens, or it
                fills the target's context or has a token that the target has no embedding for.
        """
        if config.mode is Mode.CHAT and self.tokenizer.chat_template is None:
            raise UserError(f"{self.target_name} has no chat template; choose raw continuation.")
        ids = encode_prompt(self.tokenizer, config.prompt, config.mode)
        if not ids:
            raise UserError("The prompt is empty; write something for the models to continue.")
        unknown = next((token for token in ids if token >= self.vocab), None)
        if unknown is not None:
            piece = show(self.tokenizer.convert_ids_to_tokens(unknown))
            raise UserError(
                f"{self.target_name} has no embedding for the token {piece} in this prompt; leave it out or "
                "choose another target."
            )
        if len(ids) >= (most := readable_positions(self.target.config)):
            raise UserError(f"The prompt has {len(ids):,} tokens, the target reads {most:,}; shorten it.")
        return ids

    def script_ids(self, script: str) -> list[int]:
        """Return the ids that the ``scripted`` drafter proposes: ``script``, without special tokens.

        They end before the first id that the target has no embedding for, since it would be rejected.
        """
        ids = self.tokenizer(script, add_special_tokens=False)["input_ids"]
        return list(takewhile(lambda token: token < self.vocab, ids))

    def drop_recordings(self) -> None:
        """Delete recordings of passes. Later runs make new ones."""
        for model in (self.target, self.draft):
            if isinstance(model, FusedLlama):
                model.execution = None


def encode_prompt(tokenizer: Any, prompt: str, mode: Mode) -> list[int]:
    """Return the ids of a prompt: as it stands, or as one chat message that awaits an answer."""
    if mode is Mode.RAW:
        return list(tokenizer(prompt)["input_ids"])
    message = [{"role": "user", "content": prompt}]
    encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])


def eos_ids_of(target: WholeModel, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end a text: the model's own and its tokenizer's."""
    configured = getattr(target.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ids, tokenizer.eos_token_id] if token is not None)
