"""Load a pair of models. Whether they fit each other is asked of ``fit``.

Which models exist is said here and nowhere else. Knows no UI and no decoding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdemo.attention import ATTENTION
from specdemo.draft_model import is_reduced_draft, load_draft
from specdemo.feature_draft import FeatureDraft, load_feature_draft
from specdemo.fetch import Progress, embedded_target, silent
from specdemo.fit import PLAIN, fit_rows, require_known_ids, require_rollback, require_same_tokens
from specdemo.limits import UserError
from specdemo.llama import FusedLlama, can_fuse
from specdemo.packed import CPU_PRECISIONS, DTYPES, linear_share, pack_linears
from specdemo.pair import Pair, drafters_with
from specdemo.text import PieceTable

EMBEDDED = "embedded"
NONE = "none"
"""A pair without a draft model; drafters that need none still run."""
ASSETS = Path(__file__).parent.parent / "assets"
EMBEDDED_DRAFT = ASSETS / "draft"
EMBEDDED_FEATURE_DRAFT = ASSETS / "feature-draft"
TARGET_HEAD_PRECISIONS = {"int4": "int8"}
"""Precision of a target's output layer, which decides between tokens, where it is not the layers'."""
MOSTLY = 0.9
"""Share of a model's matrices that must be packed for it to be called by that precision."""
DRAFT_PRECISIONS = {"bf16": "int4", "int8": "int4"}
"""Precision of our own drafts where it is not the target's: rounding costs them acceptance at most."""


def load_pair(
    target: str = EMBEDDED,
    draft: str = EMBEDDED,
    feature_draft: str | None = None,
    device: str | None = None,
    precision: str = "bf16",
    progress: Progress = silent,
) -> Pair:
    """Load two models that share a tokeniser.

    Args:
        target: ``embedded``, a hub id, or a folder.
        draft: ``embedded`` (only with the embedded target), a hub id, or a folder; a folder may hold
            a full model or a reduced-head draft; or ``none``.
        feature_draft: A folder written by ``specdemo train --kind feature`` for this target; the
            embedded target has one of its own.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; by default CUDA where there is one.
        precision: ``bf16``, ``fp32``, or on CPU ``int8`` or ``int4``; of the target, its baseline and a
            draft named here. Drafts from ``specdemo train``
            run in int4 wherever activations are bf16.

    Raises:
        UserError: A device or model cannot be used, or the two models do not fit; the sentence names
            the first difference.
    """
    if precision not in DTYPES:
        raise UserError(f"Unknown precision {precision!r}; choose one of: {', '.join(DTYPES)}.")
    if draft == EMBEDDED and target != EMBEDDED:
        raise UserError("The embedded draft fits only the embedded target; name a draft for this target too.")
    place = chosen_device(device)
    if precision in CPU_PRECISIONS and place.type != "cpu":
        raise UserError(f"{precision} is made for the CPU; choose bf16 or fp32 on {place}.")
    dtype = DTYPES[precision]
    target_path = str(embedded_target(progress)) if target == EMBEDDED else target
    progress("Loading the models", 0.9)
    target_model = _load_model("target", target_path, dtype, place)
    tokenizer = loading(AutoTokenizer.from_pretrained, target_path)
    draft_path = str(EMBEDDED_DRAFT) if draft == EMBEDDED else draft
    draft_model, id_map = (
        (None, None) if draft == NONE else _load_draft(draft_path, target_model, tokenizer, precision, place)
    )
    feature = _feature_draft(target, feature_draft, target_model, precision)
    pair = Pair(
        target_name=Path(target_path).name if target == EMBEDDED else target,
        draft_name="distilled draft" if draft == EMBEDDED else draft,
        target=executable(target_model, precision, TARGET_HEAD_PRECISIONS.get(precision)),
        draft=draft_model,
        id_map=id_map,
        tokenizer=tokenizer,
        precision=precision,
        pieces=PieceTable(tokenizer),
        feature_draft=feature,
    )
    progress("Measuring pass costs and warming up", 0.95)
    pair.warm_up()
    progress("Ready", 1.0)
    return pair


def offered_drafters(
    target: str = EMBEDDED, draft: str = EMBEDDED, feature_draft: str | None = None
) -> tuple[str, ...]:
    """The drafter kinds that a visitor of such a pair can choose from; arguments as for ``load_pair``."""
    return drafters_with(draft != NONE, _feature_folder(target, feature_draft) is not None)


def executable(model: nn.Module, precision: str, head_precision: str | None = None) -> nn.Module:
    """``model`` in its fastest form here; what was handed over is not used again."""
    head_precision = head_precision or precision
    if can_fuse(model):
        return FusedLlama(model, precision, head_precision)
    if precision in CPU_PRECISIONS and linear_share(model) < MOSTLY:
        raise UserError(
            f"{type(model).__name__} keeps its weights in layers that {precision} does not reach; "
            "choose bf16 or fp32."
        )
    return pack_linears(model, precision, head_precision)


def _load_draft(
    path: str, target: nn.Module, tokenizer: Any, precision: str, place: torch.device
) -> tuple[nn.Module, torch.Tensor | None]:
    """A draft model that fits ``target``, and its id map if it scores fewer tokens."""
    if is_reduced_draft(Path(path)):
        draft = load_draft(Path(path), target, ATTENTION)
        require_known_ids(draft.id_map, target)
        return executable(draft, DRAFT_PRECISIONS.get(precision, precision)), draft.id_map
    draft = _load_model("draft", path, DTYPES[precision], place)
    require_same_tokens(tokenizer, loading(AutoTokenizer.from_pretrained, path))
    id_map = fit_rows(target, draft)
    return executable(draft, precision, TARGET_HEAD_PRECISIONS.get(precision)), id_map


def _feature_folder(target: str, named: str | None) -> Path | None:
    """Where the pair's feature draft is: as named, or the embedded target's own if it has one."""
    if named is not None:
        return Path(named)
    return EMBEDDED_FEATURE_DRAFT if target == EMBEDDED and EMBEDDED_FEATURE_DRAFT.is_dir() else None


def _feature_draft(target: str, folder: str | None, model: nn.Module, precision: str) -> FeatureDraft | None:
    path = _feature_folder(target, folder)
    if path is None:
        return None
    try:
        draft = load_feature_draft(path, model)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(
            f"Cannot load a feature draft of this target from {path}; name a folder written by "
            "`specdemo train --kind feature` for it."
        ) from error
    require_known_ids(draft.id_map, model)
    packing = DRAFT_PRECISIONS.get(precision, precision)
    return pack_linears(draft, packing, packing)


def chosen_device(name: str | None) -> torch.device:
    """The device asked for, or the best one here, once a tensor could be put on it."""
    best = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here; choose {best}.") from error
    return place


def _load_model(role: str, path: str, dtype: torch.dtype, device: torch.device) -> nn.Module:
    model = loading(
        AutoModelForCausalLM.from_pretrained,
        path,
        dtype=dtype,
        attn_implementation=ATTENTION,
        use_safetensors=True,
    )
    model = model.to(device).eval()
    require_rollback(role, path, model)
    return model


def loading(loader: Callable[..., Any], path: str, **options: Any) -> Any:
    """Call a ``from_pretrained``, with its many ways to fail put into words."""
    try:
        return loader(path, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        if error.args == (ATTENTION,):  # looked up in a list of the model's own
            raise UserError(f"{path} does not let its attention be replaced; {PLAIN}.") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"Cannot load {path}: {reason}. Check the name or folder and the connection."
        ) from error
