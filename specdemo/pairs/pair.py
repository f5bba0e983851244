"""A target and a draft that fit each other: the facts. Loading is in ``load``, running in ``lanes``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from specdemo.models.execution import CausalLM, WholeModel, readable_positions
from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.layer_views import input_embedding
from specdemo.models.learning_table import LearningTable
from specdemo.models.n_gram import NGramTable
from specdemo.pairs.hardware import hardware_of, passes_of
from specdemo.pairs.pass_costs import PassCosts
from specdemo.records.drafter_kinds import FEATURE_DRAFT, NEEDED_NAMES, PROMPT_LOOKUP, drafters_with
from specdemo.records.limits import UserError
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Mode, RunConfig

Stop = Callable[[], bool]
"""Asked now and then; True ends what is under way."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A target and a draft, each on its device, with their tokeniser.

    Attributes:
        target_name, draft_name: What the page calls them.
        target, draft: The modules; the draft may score fewer tokens (``id_map``).
        id_map: Target id of each draft output row, shape [H], beside the draft; None where both score the
            same ids.
        feature_draft: The head on the target's states, if there is one for this target.
        n_gram: The table of what usually follows in the target's text, if there is one; it may be learning.
        target_revision, draft_revision: Commits of models that came from the hub.
        precision_reason: Why the models compute in ``precision``, a sentence.
        costs: Of its passes.
    """

    target_name: str
    draft_name: str
    target: WholeModel
    draft: CausalLM | None
    id_map: torch.Tensor | None
    tokenizer: Any
    precision: str
    pieces: PieceTable
    feature_draft: FeatureDraft | None = None
    n_gram: NGramTable | LearningTable | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    precision_reason: str = ""
    costs: PassCosts = field(default_factory=PassCosts)

    @property
    def device(self) -> torch.device:
        """Where the target reads ids and gives its logits; verdicts are reached there."""
        return next(self.target.parameters()).device

    @property
    def draft_device(self) -> torch.device:
        """Where the draft model is; the target's device where there is none."""
        return self.device if self.draft is None else next(self.draft.parameters()).device

    @property
    def hardware(self) -> str:
        """Name of the device, or of the first of several and their number."""
        return hardware_of((self.target, self.draft), self.device)

    @property
    def place(self) -> str:
        """What the page calls the device, with the way its passes are run where there are several."""
        return self.hardware + passes_of((self.target, self.draft))

    @property
    def names(self) -> dict[str, str]:
        """What a run records of its models."""
        names = {"target": self.target_name, "draft": self.draft_name}
        revisions = {"target_revision": self.target_revision, "draft_revision": self.draft_revision}
        return names | {key: revision for key, revision in revisions.items() if revision is not None}

    @property
    def vocab(self) -> int:
        """How many ids the target has, V."""
        return input_embedding(self.target).num_embeddings

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        return eos_ids_of(self.target, self.tokenizer)

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafter kinds on menus that this pair can run."""
        return drafters_with(*(name for name in NEEDED_NAMES if getattr(self, name) is not None))

    @property
    def default_drafter(self) -> str:
        """The drafter to use where none is asked for."""
        if self.draft is not None:
            return RunConfig.drafter
        return PROMPT_LOOKUP if self.feature_draft is None else FEATURE_DRAFT

    def prompt_ids(self, config: RunConfig) -> list[int]:
        """The prompt as the target reads it.

        Raises:
            UserError: The target has no chat template, or the prompt is empty or longer than it can read.
        """
        if config.mode is Mode.CHAT and self.tokenizer.chat_template is None:
            raise UserError(f"{self.target_name} has no chat template; choose raw continuation.")
        ids = encode_prompt(self.tokenizer, config.prompt, config.mode)
        if not ids:
            raise UserError("The prompt is empty; write something for the models to continue.")
        if len(ids) >= (most := readable_positions(self.target.config)):
            raise UserError(f"The prompt has {len(ids):,} tokens, the target reads {most:,}; shorten it.")
        return ids

    def script_ids(self, script: str) -> list[int]:
        """What the ``scripted`` drafter proposes: the tokens of ``script`` by itself."""
        return list(self.tokenizer(script, add_special_tokens=False)["input_ids"])

    def drop_recordings(self) -> None:
        """Let go of recorded passes and the memory they hold; later runs record anew."""
        for model in (self.target, self.draft):
            if isinstance(model, FusedLlama):
                model.recorded = None


def encode_prompt(tokenizer: Any, prompt: str, mode: Mode) -> list[int]:
    """A prompt as a target reads it: as it stands, or as one chat message awaiting its answer."""
    if mode is Mode.RAW:
        return list(tokenizer(prompt)["input_ids"])
    message = [{"role": "user", "content": prompt}]
    encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])


def eos_ids_of(target: WholeModel, tokenizer: Any) -> frozenset[int]:
    """Ids that end a text: the model's own and its tokeniser's."""
    configured = getattr(target.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ids, tokenizer.eos_token_id] if token is not None)
