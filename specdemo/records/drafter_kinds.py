"""The one table of drafter kinds: what page, command line, API, bench and lab offer, and traces name.

A new kind is a module in ``drafters`` with a function ``make`` (``drafters.factory``) and a line here. The
module is named, not imported: a trace must load where no model can.
"""

from typing import NamedTuple

DRAFT, FEATURE_DRAFT_HEAD, N_GRAM_TABLE = "draft", "feature_draft", "n_gram"
NEEDED_NAMES = {DRAFT: "draft model", FEATURE_DRAFT_HEAD: "feature draft", N_GRAM_TABLE: "n-gram table"}
"""What a pair may lack (a field of ``Pair``), and what it is called."""


class Kind(NamedTuple):
    """One way to draft.

    Attributes:
        name: In requests and traces.
        label: On the menus of the page.
        about: What it does and what that is good for, in a sentence for the menus.
        who: Who drafts, within a sentence; ``{draft}`` stands for the draft model by its name.
        module: Of ``specdemo.drafters``; its ``make`` makes one for a run. Empty where none can be made here.
        needs: The field of ``Pair`` it is made of, if any.
        computes: Whether it makes passes of its own: one that does not costs nothing, and puts its tokens
            forward as certain.
        otherwise: Name of the kind it asks where it has nothing to propose.
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
        """The kind whose step a run with this one costs; None where nobody makes passes."""
        last = KINDS[self.otherwise] if self.otherwise else self
        return last if last.computes else None

    @property
    def required(self) -> str:
        """The field of ``Pair`` that it, or the kind it falls back on, is made of."""
        return KINDS[self.otherwise].needs if self.otherwise else self.needs


DRAFT_MODEL, FEATURE_DRAFT, EARLY_EXIT = "draft-model", "feature-draft", "early-exit"
PROMPT_LOOKUP, N_GRAM, SCRIPTED = "prompt-lookup", "n-gram", "scripted"
SERVER = "server"
"""Whatever drafts for a server that is watched: of its runs alone, and nothing that could be made here."""
_COPIED, _WRITTEN = "it was copied from earlier text", "a script wrote it"
_USUAL = "it is what usually follows in the target's own text"
_NO_REPEAT, _UNKNOWN = "the text repeats nothing that could be copied", "no word of it is in the table"
_FEATURE_DRAFT = "the feature draft"

_TABLE = (
    Kind(
        DRAFT_MODEL,
        "draft model",
        "A small model of the target's family writes ahead, whatever the text; a guess costs a small pass.",
        "{draft}",
        "draft_model",
        needs=DRAFT,
    ),
    Kind(
        PROMPT_LOOKUP,
        "copy from the text",
        "Copies what followed the same words earlier in the text: free, and silent where nothing repeats.",
        "copying",
        "lookup",
        computes=False,
        source=_COPIED,
        silence=_NO_REPEAT,
    ),
    Kind(
        N_GRAM,
        "n-grams",
        "Looks up what usually follows in text of the target's own: free, and no model at all.",
        "a table of n-grams",
        "n_gram",
        needs=N_GRAM_TABLE,
        computes=False,
        source=_USUAL,
        silence=_UNKNOWN,
    ),
    Kind(
        "lookup+n-gram",
        "copy, else n-grams",
        "Copies where the text repeats itself, and elsewhere looks up what usually follows: both free.",
        "copying, else a table of n-grams",
        "lookup",
        computes=False,
        otherwise=N_GRAM,
        source=_COPIED,
        silence=f"{_NO_REPEAT}, and {_UNKNOWN}",
    ),
    Kind(
        "lookup+model",
        "copy, else draft model",
        "Copies where the text repeats itself, and asks the draft model where it does not.",
        "copying, else {draft}",
        "lookup",
        otherwise=DRAFT_MODEL,
    ),
    Kind(
        FEATURE_DRAFT,
        "feature draft",
        "A small head on the target's own inner states: it guesses from what the target has in mind.",
        _FEATURE_DRAFT,
        "feature",
        needs=FEATURE_DRAFT_HEAD,
    ),
    Kind(
        "lookup+feature",
        "copy, else feature draft",
        "Copies where the text repeats itself, and asks the feature draft where it does not.",
        f"copying, else {_FEATURE_DRAFT}",
        "lookup",
        otherwise=FEATURE_DRAFT,
    ),
    Kind(
        EARLY_EXIT,
        "early exit",
        "The target's own first layers guess: no second model, but a guess costs a good part of a pass.",
        "the target's first layers",
        "early_exit",
    ),
    Kind(SCRIPTED, "script", "", "a script", "scripted", computes=False, source=_WRITTEN, offered=False),
    Kind(
        SERVER,
        "the server's own",
        "Whatever the server was started with; its rule and draft length are its own, too.",
        "the server's own drafter",
        "",
        offered=False,
    ),
)
KINDS = {kind.name: kind for kind in _TABLE}


def drafters_with(*parts: str) -> tuple[str, ...]:
    """Names of the kinds on menus that a pair can run which has these ``parts`` (``Kind.needs``)."""
    return tuple(kind.name for kind in KINDS.values() if kind.offered and kind.required in ("", *parts))
