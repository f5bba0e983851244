"""What a class asks: one beginning, and what each student drafts behind it. No torch, no page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdemo.play.game import parse_draft
from specdemo.records.limits import MAX_CLASS_DRAFTS, UserError, parse_config, require_known
from specdemo.records.trace import Mode


@dataclass(frozen=True)
class ClassRequest:
    """The drafts of a class. Built and bounded by :func:`parse_class` only.

    Attributes:
        text: The beginning.
        drafts: One a student, in the order given; the text that stands for the next tokens, its leading
            space included.
    """

    text: str
    drafts: tuple[str, ...]


def parse_class(raw: Mapping[str, Any]) -> ClassRequest:
    """Turn an untrusted mapping into a request; its keys are ``text`` and ``drafts``.

    Raises:
        UserError: A key is unknown, or a value has the wrong type or is out of bounds; of a draft it says
            which, counted from 1.
    """
    require_known(raw, ("text", "drafts"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    drafts = raw.get("drafts")
    if not isinstance(drafts, list):
        raise UserError("drafts must be a list of texts, one of each student.")
    if not drafts:
        raise UserError("Nobody has written a draft yet; wait for the first one.")
    if len(drafts) > MAX_CLASS_DRAFTS:
        raise UserError(f"There are {len(drafts):,} drafts; {MAX_CLASS_DRAFTS:,} at most are judged at once.")
    return ClassRequest(text, tuple(_draft(number, draft) for number, draft in enumerate(drafts, 1)))


def _draft(number: int, value: object) -> str:
    try:
        return parse_draft(value)
    except UserError as error:
        raise UserError(f"Draft {number}: {error}") from error
