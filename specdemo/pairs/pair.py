"""A loaded pair: a target, its drafts, and their properties. Loading is in ``load``, running in ``lanes``."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, takewhile
from typing import TYPE_CHECKING, Any

import torch

from specdemo.models.execution import CausalLM, WholeModel, readable_positions
from specdemo.models.feature_draft import FeatureDraft
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.layer_views import vocabulary_of
from specdemo.models.n_gram import NGramTable
from specdemo.pairs.calibrate import PassCosts
from specdemo.pairs.hardware import place_of
from specdemo.records.drafter_kinds import drafters_with, parts_of, usual_drafter
from specdemo.records.limits import UserError, show
from specdemo.records.pieces import PieceTable, inside_sentence
from specdemo.records.trace import Mode, RunConfig

if TYPE_CHECKING:
    from specdemo.models.compiled.feature import CompiledFeatureDraft

PROBE = "Xylophone7"  # no template contains or escapes it
PRINTED = "Zygote3"  # a key of a part; a template that writes it does not read lists of parts
MAX_REASON = 200
CONTINUE = 'set the prompt mode to "continue" (--raw on the command line)'
ADVICE = f"{CONTINUE}, or choose another target"
Stop = Callable[[], bool]  # called regularly; if it returns True, the current work ends


@dataclass(frozen=True, eq=False)
class Pair:
    """A target and its drafts, each on its device, with their tokenizer."""

    target_name: str
    draft_name: str
    target: WholeModel
    draft: CausalLM | None  # may score fewer tokens than the target (``id_map``)
    # Target id of each draft output row, shape [H], on the draft's device; None if both score the same ids.
    id_map: torch.Tensor | None
    tokenizer: Any
    precision: str
    pieces: PieceTable  # the bytes of each token
    # The head on the target's hidden states.
    feature_draft: "FeatureDraft | CompiledFeatureDraft | None" = None
    n_gram: NGramTable | None = None
    target_revision: str | None = None  # commit on the hub
    draft_revision: str | None = None
    precision_reason: str = ""  # a sentence that explains ``precision``
    notes: str = ""  # sentences on what differs from the target's usual decoding; often empty
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
        return drafters_with(*parts_of(self))

    @property
    def chats(self) -> bool:
        """True if the target has a chat template."""
        return bool(self.tokenizer.chat_template)

    @property
    def default_drafter(self) -> str:
        return usual_drafter(self.drafters)

    def prompt_ids(self, config: RunConfig) -> list[int]:
        """Return the ids of the prompt, with the chat template in chat mode, if the target can read them."""
        if config.mode is Mode.CHAT and not self.chats:
            raise UserError(f"{self.target_name} has no chat template; {CONTINUE}.")
        ids = encode_prompt(self.tokenizer, config.prompt, config.mode)
        if not ids:
            raise UserError("The prompt is empty; write something for the models to continue.")
        unknown = next((token for token in ids if token >= self.vocab), None)
        if unknown is not None:
            piece = show(self.tokenizer.convert_ids_to_tokens(unknown))
            raise UserError(
                f"{self.target_name} has no embedding for the token {piece} in this prompt; remove this "
                "token from the prompt, or choose another target."
            )
        if len(ids) >= (most := readable_positions(self.target.config)):
            raise UserError(
                f"The prompt has {len(ids):,} tokens, but the target can read at most {most - 1:,}; "
                "shorten the prompt."
            )
        return ids

    def script_ids(self, script: str) -> list[int]:
        """Return the ids that the ``scripted`` drafter proposes: ``script``, without special tokens.

        They end before the first id that the target has no embedding for, since it would be rejected.
        """
        ids = self.tokenizer(script, add_special_tokens=False)["input_ids"]
        return list(takewhile(lambda token: token < self.vocab, ids))

    def drop_executions(self) -> None:
        """Delete what was prepared for passes on the device that the models were on."""
        for model in (self.target, self.draft):
            if isinstance(model, FusedLlama):
                model.execution = None

    def drop_recordings(self) -> None:
        """Delete recordings of passes, with their caches. Later runs make new ones."""
        executions = [getattr(model, "execution", None) for model in (self.target, self.draft)]
        for owner in (*executions, self.feature_draft):
            if stack := getattr(owner, "stack", None):  # on a GPU
                stack.forget()


def encode_prompt(tokenizer: Any, prompt: str, mode: Mode) -> list[int]:
    """Return the ids of a prompt: as it stands, or as one chat message that awaits an answer."""
    if mode is Mode.RAW:
        return list(tokenizer(prompt)["input_ids"])
    return list(tokenizer(chat_text(tokenizer, prompt), add_special_tokens=False)["input_ids"])


def chat_text(tokenizer: Any, *messages: str) -> str:
    """Return the chat template's text for messages of a user and an assistant in turn, before an answer."""
    failures = []
    # Most templates read a message as text, some as a list of parts. In the wrong form, it may get lost.
    for form, probe in ((str, PROBE), (_parts, [{**_parts(PROBE)[0], PRINTED: PRINTED}])):
        try:
            probed = _rendered(tokenizer, [probe] * len(messages)).casefold()
            text = _rendered(tokenizer, [form(message) for message in messages])
        except Exception as error:  # a template is a program, which may raise anything
            failures.append(error)
            continue
        is_read = probed.count(PROBE.casefold()) >= len(messages) and PRINTED.casefold() not in probed
        # A template may remove a part of a message, such as "/no_think", and the thoughts of an answer.
        if is_read and all(_has_word_of(message, text, probed) for message in messages[::2]):
            return text
    if not failures:
        raise UserError(f"The target's chat template leaves out the prompt; {ADVICE}.")
    error = failures[0]
    reason = " ".join((getattr(error, "message", "") or str(error) or type(error).__name__).split())
    reason = inside_sentence(reason[:MAX_REASON]).rstrip(".")
    raise UserError(f"The target's chat template fails: {reason}; {ADVICE}.") from error


def _parts(message: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": message}]


def _rendered(tokenizer: Any, contents: Sequence[Any]) -> str:
    roles = cycle(("user", "assistant"))
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def _has_word_of(message: str, text: str, probed: str) -> bool:
    """Return whether ``text`` has a word of the message that the template, as in ``probed``, does not write.

    A template may change the spaces, case and marks of a message.
    """
    words = _words(message) - _words(probed)
    return bool(words & _words(text)) if words else message.strip() in text


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def eos_ids_of(target: WholeModel, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end a text: the model's own and its tokenizer's."""
    configured = getattr(target.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ids, tokenizer.eos_token_id] if token is not None)
