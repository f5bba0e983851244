"""The models of a pair by name, and their files on this machine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from specdemo.asset_paths import BUILT_IN, BUILT_IN_DRAFT, BUILT_IN_FEATURE_DRAFT, BUILT_IN_N_GRAM
from specdemo.pairs.builtin_target import Progress, builtin_target
from specdemo.pairs.hub import Files, fetch_checkpoint
from specdemo.records.drafter_kinds import (
    DRAFT,
    FEATURE_DRAFT_HEAD,
    KINDS,
    N_GRAM_TABLE,
    drafters_with,
)
from specdemo.records.limits import AUTO_PRECISION, UserError, missing_part

NONE = "none"  # the value of ``Sources.draft`` for a pair without a draft model


@dataclass(frozen=True)
class Sources:
    """The models of a pair and the way they run."""

    target: str = BUILT_IN  # ``built-in``, a hub id, or a folder
    # ``built-in``, a hub id, a folder with a full model or a reduced-head draft, or ``none``.
    draft: str = BUILT_IN
    # A folder written by ``specdemo train``; None for the built-in target's own.
    feature_draft: str | None = None
    n_gram: str | None = None  # a folder written by ``specdemo train``; None for the built-in target's own
    # For both models; None for CUDA if available, or for several GPUs as ``hardware.plan`` chooses.
    device: str | None = None
    # Of whole models; on CPU, drafts from ``specdemo train`` run in int8, as they are stored.
    precision: str = AUTO_PRECISION
    target_revision: str | None = None  # branch, tag or commit on the hub; None for the main branch
    draft_revision: str | None = None

    @property
    def feature_folder(self) -> Path | None:
        """Folder of the feature draft: as named, or the built-in target's own; None if there is neither."""
        return self._folder(self.feature_draft, BUILT_IN_FEATURE_DRAFT)

    @property
    def n_gram_folder(self) -> Path | None:
        """Folder of the n-gram table: as named, or the built-in target's own; None if there is neither."""
        return self._folder(self.n_gram, BUILT_IN_N_GRAM)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that the pair has besides the target, among ``drafter_kinds.NEEDED_NAMES``."""
        there = {
            DRAFT: self.draft != NONE,
            FEATURE_DRAFT_HEAD: self.feature_folder is not None,
            N_GRAM_TABLE: self.n_gram_folder is not None,
        }
        return tuple(part for part, has in there.items() if has)

    def check(self, drafters: Iterable[str] = ()) -> None:
        """Check that the draft fits the target, and that the pair has the parts that ``drafters`` need."""
        if self.draft == BUILT_IN and self.target != BUILT_IN:
            raise UserError(
                "The built-in draft model fits only the built-in target; choose a draft model for "
                f"{self.target}."
            )
        for kind in (KINDS[name] for name in drafters):
            if (needed := kind.drafting_kind(self.parts).needs) and needed not in self.parts:
                raise missing_part(kind)

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the drafter kinds that a visitor of this pair can choose."""
        return drafters_with(*self.parts)

    def _folder(self, named: str | None, shipped: Path) -> Path | None:
        if named is not None:
            return Path(named)
        return shipped if self.target == BUILT_IN and shipped.is_dir() else None


def target_files(sources: Sources, progress: Progress) -> Files:
    if sources.target != BUILT_IN:
        return fetch_checkpoint(sources.target, sources.target_revision, progress)
    folder = builtin_target(progress)
    return replace(fetch_checkpoint(str(folder), sources.target_revision, progress), name=folder.name)


def draft_files(sources: Sources, progress: Progress) -> Files | None:
    """Return the draft model's files; None if the pair has no draft model."""
    if sources.draft == NONE:
        return None
    if sources.draft != BUILT_IN:
        return fetch_checkpoint(sources.draft, sources.draft_revision, progress)
    if not BUILT_IN_DRAFT.is_dir():
        raise UserError(
            f"The built-in draft model is missing ({BUILT_IN_DRAFT}); reinstall specdemo, or choose another "
            "draft model."
        )
    found = fetch_checkpoint(str(BUILT_IN_DRAFT), sources.draft_revision, progress)
    return replace(found, name="distilled draft")
