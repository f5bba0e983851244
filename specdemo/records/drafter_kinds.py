"""The table of drafter kinds, which the page, command line, API, bench, lab and traces share.

A new kind is a module in ``drafters`` and a line here. The module is named rather than imported, because a
trace must load without torch.
"""

from typing import NamedTuple

DRAFT, FEATURE_DRAFT_HEAD, N_GRAM_TABLE = "draft", "feature_draft", "n_gram"
NEEDED_NAMES = {DRAFT: "draft model", FEATURE_DRAFT_HEAD: "feature draft", N_GRAM_TABLE: "n-gram table"}
"""The fields of ``Pair`` that may be missing, with their names in messages."""


class Kind(NamedTuple):
    """One way to draft.

    Attributes:
        name: Its name in requests and traces.
        label: Its name in the page's menus.
        about: What it does, in a sentence for the menus.
        who: Its name within a sentence; ``{draft}`` stands for the name of the draft model.
        module: Module of ``specdemo.drafters`` with the function ``make``; empty if none can be made here.
        needs: Field of ``Pair`` that it needs, if any.
        computes: Whether it makes passes of its own. If not, its tokens cost nothing and have q = 1.
        otherwise: Name of the kind that drafts if this one has nothing to propose.
        source: Where its tokens come from, as a clause, if it does not compute.
        silence: Why it may have nothing to propose, as a clause, if it does not compute.
        offered: Whether it is on menus.
    """

    name: str
    label: str
    about: str
    who: str
    module: str
    needs: str = ""
    computes: bool = True
    otherwise: str = ""
    source: str = ""
    silence: str = ""
    offered: bool = True

    @property
    def stepping(self) -> "Kind | None":
        """The kind whose draft steps a run with this one pays for; None if there are none."""
        last = KINDS[self.otherwise] if self.otherwise else self
        return last if last.computes else None

    @property
    def required(self) -> str:
        """The field of ``Pair`` that it, or the kind it falls back on, needs; empty if none."""
        return KINDS[self.otherwise].needs if self.otherwise else self.needs


DRAFT_MODEL, FEATURE_DRAFT, EARLY_EXIT = "draft-model", "feature-draft", "early-exit"
PROMPT_LOOKUP, N_GRAM, SCRIPTED = "prompt-lookup", "n-gram", "scripted"
SERVER = "server"
"""The unknown drafter of a watched server; it can't be made here."""
_COPIED, _NO_REPEAT = "it was copied from earlier text", "the text repeats nothing that could be copied"
_USUAL, _UNKNOWN = "it is what usually follows in the target's own text", "no word of it is in the table"

_TABLE = (
    Kind(
        DRAFT_MODEL,
        "draft model",
        "A small model of the target's family drafts one token per cheap pass.",
        "{draft}",
        "draft_model",
        needs=DRAFT,
    ),
    Kind(
        PROMPT_LOOKUP,
        "prompt lookup",
        "Copies what followed the same words earlier in the text. Costs nothing.",
        "prompt lookup",
        "lookup",
        computes=False,
        source=_COPIED,
        silence=_NO_REPEAT,
    ),
    Kind(
        N_GRAM,
        "n-gram table",
        "Looks up what usually follows in the target's own text. Costs nothing.",
        "the n-gram table",
        "n_gram",
        needs=N_GRAM_TABLE,
        computes=False,
        source=_USUAL,
        silence=_UNKNOWN,
    ),
    Kind(
        "lookup+n-gram",
        "lookup, then n-gram table",
        "Copies where the text repeats itself, else uses the n-gram table.",
        "lookup, then the n-gram table",
        "lookup",
        computes=False,
        otherwise=N_GRAM,
        source=_COPIED,
        silence=f"{_NO_REPEAT}, and {_UNKNOWN}",
    ),
    Kind(
        "lookup+model",
        "lookup, then draft model",
        "Copies where the text repeats itself, else uses the draft model.",
        "lookup, then {draft}",
        "lookup",
        otherwise=DRAFT_MODEL,
    ),
    Kind(
        FEATURE_DRAFT,
        "feature draft",
        "A small head drafts from the target's own hidden states.",
        "the feature draft",
        "feature",
        needs=FEATURE_DRAFT_HEAD,
    ),
    Kind(
        "lookup+feature",
        "lookup, then feature draft",
        "Copies where the text repeats itself, else uses the feature draft.",
        "lookup, then the feature draft",
        "lookup",
        otherwise=FEATURE_DRAFT,
    ),
    Kind(
        EARLY_EXIT,
        "early exit",
        "The target's own first layers draft. No second model, but costly steps.",
        "the target's first layers",
        "early_exit",
    ),
    Kind(
        SCRIPTED,
        "script",
        "",
        "a script",
        "scripted",
        computes=False,
        source="a script wrote it",
        offered=False,
    ),
    Kind(
        SERVER,
        "the server's own",
        "The drafter, rule and draft length that the server was started with.",
        "the server's own drafter",
        "",
        offered=False,
    ),
)
KINDS = {kind.name: kind for kind in _TABLE}


def drafters_with(*parts: str) -> tuple[str, ...]:
    """Return the names of the offered kinds that a pair with these ``parts`` (``Kind.needs``) can run."""
    return tuple(kind.name for kind in KINDS.values() if kind.offered and kind.required in ("", *parts))
