"""The table of drafter kinds. It names modules, not classes, so that traces load without torch."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

DRAFT, FEATURE_DRAFT_HEAD, N_GRAM_TABLE = "draft", "feature_draft", "n_gram"
NEEDED_NAMES = {DRAFT: "draft model", FEATURE_DRAFT_HEAD: "feature draft", N_GRAM_TABLE: "n-gram table"}
"""The fields of ``Pair`` that may be None, each with its name in messages."""


class DrafterKind(NamedTuple):
    """One way to draft. A new kind needs an entry in ``_TABLE`` and a module in ``drafters``."""

    name: str
    label: str
    about: str
    who: str  # the name within a sentence; ``{draft}`` stands for the name of the draft model
    module: str  # in ``specdemo.drafters``; empty if this program cannot create the drafter
    needs: str = ""  # a key of ``NEEDED_NAMES``
    computes: bool = True  # if False, it makes no passes, and its tokens have q = 1
    models: tuple[str, ...] = ()  # kinds whose models it can use; it uses the first that a pair can run
    source: str = ""  # the origin of its tokens, as a clause; empty if it makes passes
    empty_reason: str = ""  # the reason for an empty draft, as a clause; empty if it makes passes
    offered: bool = True  # on menus
    advanced: bool = False  # at the end of menus

    def drafting_kind(self, parts: Collection[str]) -> "DrafterKind":
        """Return the kind that drafts in a pair with ``parts``: this one, or one of its ``models``."""
        if not self.models:
            return self
        names = [name for name in self.models if KINDS[name].needs in parts]
        return KINDS[names[0] if names else self.models[-1]]


DRAFT_MODEL, FEATURE_DRAFT, COMBINED, EARLY_EXIT = "draft-model", "feature-draft", "combined", "early-exit"
PROMPT_LOOKUP, N_GRAM, SCRIPTED = "prompt-lookup", "n-gram", "scripted"
SERVER = "server"
"""The unknown drafter of a watched server. This program cannot create it."""
_COPIED = "the draft token was copied from earlier text"
_NO_REPEAT = "the text contains no repetition that could be copied"
_USUAL = "the draft token is the one that usually follows in the target's own text"
_UNKNOWN = "the n-gram table contains no continuation of this text"

_TABLE = (
    DrafterKind(
        DRAFT_MODEL,
        "draft model",
        "A small model of the target's family drafts one token per cheap pass.",
        "{draft}",
        "draft_model",
        needs=DRAFT,
    ),
    DrafterKind(
        PROMPT_LOOKUP,
        "prompt lookup",
        "Copies the tokens that followed the same words earlier in the text. Takes almost no time.",
        "prompt lookup",
        "lookup",
        computes=False,
        source=_COPIED,
        empty_reason=_NO_REPEAT,
    ),
    DrafterKind(
        N_GRAM,
        "n-gram table",
        "Looks up the tokens that usually follow in the target's own text. Takes almost no time.",
        "the n-gram table",
        "n_gram",
        needs=N_GRAM_TABLE,
        computes=False,
        source=_USUAL,
        empty_reason=_UNKNOWN,
    ),
    DrafterKind(
        FEATURE_DRAFT,
        "feature draft",
        "A small network drafts from the target's own hidden states.",
        "the feature draft",
        "feature",
        needs=FEATURE_DRAFT_HEAD,
    ),
    DrafterKind(
        COMBINED,
        "combined",
        "Copies earlier tokens if the text repeats itself; else the feature draft or draft model drafts.",
        "the combined drafter",
        "combined",
        models=(FEATURE_DRAFT, DRAFT_MODEL),
    ),
    DrafterKind(
        EARLY_EXIT,
        "early exit",
        "The target's first layers draft. Needs no second model, but each draft step is slow.",
        "the target's first layers",
        "early_exit",
        advanced=True,
    ),
    DrafterKind(
        SCRIPTED,
        "script",
        "",
        "a script",
        "scripted",
        computes=False,
        source="the draft token comes from a script",
        offered=False,
    ),
    DrafterKind(
        SERVER,
        "the server's own",
        "The drafter, rule and draft length that were set when the server was started.",
        "the server's own drafter",
        "",
        offered=False,
    ),
)
KINDS = {kind.name: kind for kind in _TABLE}
RENAMED = {"lookup+model": COMBINED, "lookup+feature": COMBINED, "lookup+n-gram": N_GRAM}
"""Names of drafters in earlier traces and links, each with the kind that replaced it."""


def parts_of(holder: object) -> tuple[str, ...]:
    """Return the names in ``NEEDED_NAMES`` of the attributes of ``holder`` that are not None."""
    return tuple(name for name in NEEDED_NAMES if getattr(holder, name) is not None)


def drafters_with(*parts: str) -> tuple[str, ...]:
    """Return the menu's kinds for a pair in which the fields ``parts`` of ``NEEDED_NAMES`` are not None."""
    return tuple(
        kind.name
        for kind in KINDS.values()
        if kind.offered and kind.drafting_kind(parts).needs in ("", *parts)
    )


def usual_drafter(offered: Sequence[str]) -> str:
    """Return the drafter of ``offered`` that a run has if it names none."""
    return next((name for name in (DRAFT_MODEL, FEATURE_DRAFT) if name in offered), offered[0])
