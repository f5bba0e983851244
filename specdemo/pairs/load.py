"""Loading of a pair: fetch both models, check them, place them on devices, measure them, warm them up."""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch

from specdemo.asset_paths import BUILT_IN
from specdemo.models.compiled.openmp import missing
from specdemo.models.gpu.choice import compile_ahead
from specdemo.models.reduced_draft import is_reduced_draft
from specdemo.models.weight_files import count_parameters
from specdemo.pairs.builtin_target import Progress, mended_target, no_progress
from specdemo.pairs.cache_folder import cache_folder
from specdemo.pairs.calibrate import choose_threads
from specdemo.pairs.compatible import notes_on
from specdemo.pairs.hardware import (
    GB,
    Placement,
    arithmetic_of,
    best_device,
    chosen_device,
    free_memory,
    free_ram,
    plan,
    precision_for,
    return_freed_memory,
)
from specdemo.pairs.hub import Files, within
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.model_loader import DTYPES, NAMES, ROUNDED, Loader, tokenizer_of
from specdemo.pairs.pair import Pair
from specdemo.pairs.presets import ALLOWANCE, SLACK
from specdemo.pairs.sources import Sources, draft_files, target_files
from specdemo.records.limits import AUTO_PRECISION, UserError, require_precision
from specdemo.records.pieces import PieceTable

MAX_CALIBRATIONS = 5
BESIDE_WEIGHTS = 450_000_000
"""Bytes for caches, compiled code and workspaces; measured with the built-in pair under memory limits."""
_log = logging.getLogger(__name__)


def load_pair(
    target: str = BUILT_IN,
    draft: str = BUILT_IN,
    *,
    precision: str = AUTO_PRECISION,
    device: str | None = None,
    feature_draft: str | None = None,
    n_gram: str | None = None,
    progress: Progress = no_progress,
) -> Pair:
    """Load two models that share a tokenizer, measure them and warm them up.

    Args:
        target: A hub id or a folder; by default the built-in target.
        draft: A hub id or a folder, or ``"none"``; by default the built-in draft.
        precision: Precision of the weights: ``bf16``, ``fp32``, or on CPU ``int8``; ``auto`` keeps the
            target's stored numbers.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; by default CUDA if available.
        feature_draft, n_gram: Folders written by ``specdemo train`` for this target.
        progress: Called with each phase and its share of the whole, 0 to 1.

    Raises:
        UserError: The device or a model cannot be used, or the two models do not form a pair.
    """
    sources = Sources(target, draft, feature_draft, n_gram, device, precision)
    return load_sources(sources, progress=progress)


def load_sources(
    sources: Sources,
    *,
    progress: Progress = no_progress,
    recalibrate: bool = False,
    alone: Callable[[Callable[[], None]], object] = lambda measure: measure(),
) -> Pair:
    """Load a pair as :func:`load_pair` does.

    With ``recalibrate``, rough measurements are repeated, up to ``MAX_CALIBRATIONS`` in all. ``alone`` calls
    the measuring function when nothing else computes; by default at once.
    """
    pair = assemble_pair(sources, progress=within(progress, 0.0, 0.8))
    progress("Measuring pass costs", 0.8)

    def measure() -> None:
        choose_threads(pair.target)
        lanes = Lanes(pair)
        for _ in range(MAX_CALIBRATIONS if recalibrate else 1):
            if not lanes.calibrate_all().is_rough:
                break
        lanes.warm_up()

    alone(measure)
    progress("Ready", 1.0)
    return pair


def assemble_pair(
    sources: Sources, *, progress: Progress = no_progress, checked_on: str | None = None
) -> Pair:
    """Load two models that share a tokenizer, check them and place them, without measuring.

    ``checked_on`` is the device to load and check the models on, if their own cannot run anything yet. If the
    built-in target's files are damaged, it is converted again.
    """
    try:
        return _assembled(sources, progress, checked_on)
    except Exception:  # a damaged file may raise anything
        if sources.target != BUILT_IN or not mended_target(progress):
            raise
    return _assembled(sources, progress, checked_on)


def _assembled(sources: Sources, progress: Progress, checked_on: str | None) -> Pair:
    place = _require_usable(sources, checked_on)
    if place.type == "cpu":
        # Compiling takes seconds, while the models are fetched and read.
        threading.Thread(target=_compile, name="compile", daemon=True).start()
    elif place.type == "cuda":
        with suppress(UserError):  # without a home folder, Triton's own default
            os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder() / "triton"))
    target_found = target_files(sources, within(progress, 0.0, 0.5))
    draft_found = draft_files(sources, within(progress, 0.5, 0.75))
    precision = sources.precision
    if precision == AUTO_PRECISION and place.type != "cpu":
        precision = precision_for(place)
    if place.type == "cuda" and checked_on is None and precision == "bf16":
        compile_ahead(place, target_found.folder, draft_found and draft_found.folder, sources.feature_folder)
    spread = sources.device is None and checked_on is None and torch.cuda.device_count() > 1
    placement = (
        _planned(target_found, draft_found, precision) if spread else Placement(str(place), str(place))
    )
    if (checked_on or place.type) == "cpu":
        _warn_of_little_memory(target_found, draft_found, precision)
    loader = Loader(precision, placement, checked_on)
    progress("Loading the models", 0.75)
    target = loader.model("target", target_found, within(progress, 0.75, 0.9))
    if precision == AUTO_PRECISION:
        precision = NAMES.get(target.dtype, "fp32")
    tokenizer = tokenizer_of(target_found)
    notes = notes_on(target, tokenizer)
    # Drafts that use the target's parts come before ``finished``, which converts the target.
    embedding = loader.shared_embedding(target)
    draft, id_map = loader.draft(draft_found, target, tokenizer, within(progress, 0.9, 1.0), embedding)
    feature_draft = loader.feature_draft(sources.feature_folder, target, embedding)
    is_trained = draft_found is not None and is_reduced_draft(draft_found.folder)
    drafts = ROUNDED if embedding is not None and (is_trained or feature_draft is not None) else precision
    pair = Pair(
        target_name=target_found.name,
        draft_name=draft_found.name if draft_found else sources.draft,
        feature_draft=feature_draft,
        n_gram=loader.n_gram(sources.n_gram_folder, target),
        target=loader.finished("target", target_found, target, embedding),
        draft=draft,
        id_map=id_map,
        tokenizer=tokenizer,
        precision=precision,
        pieces=PieceTable(tokenizer),
        target_revision=target_found.revision,
        draft_revision=draft_found.revision if draft_found else None,
        precision_reason=arithmetic_of(place, precision, drafts),
        notes=notes,
    )
    return_freed_memory()
    return pair if checked_on is None else _moved(pair, place)


def _warn_of_little_memory(target: Files, draft: Files | None, precision: str) -> None:
    """Log a warning if the RAM may not suffice, because the system ends such a program without a word."""
    width, weights = DTYPES[precision], 0
    for folder in [files.folder for files in (target, draft) if files is not None]:
        stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        weights += stored if width == "auto" else count_parameters(folder) * width.itemsize
    needed, free = BESIDE_WEIGHTS + int(SLACK * weights), free_ram()
    if 0 < free < needed:  # 0 if unknown, as on macOS
        _log.warning(
            "The models need about %.1f GB of memory, but only %.1f GB are free, so the system may end this "
            "program; free some memory or raise the limit.",
            needed / GB,
            free / GB,
        )


def _compile() -> None:
    if missing() is not None:
        return
    from specdemo.models.compiled import attention, compilation, linear, product, whole_pass

    with suppress(UserError):  # without a home folder, code is compiled in memory
        compilation.keep_in(cache_folder() / "compiled")
    # The weights are converted meanwhile, which needs the products first.
    usual = [product.PRODUCTS[kind] for kind in (product.BF16, product.INT8)]
    for code in (*usual, whole_pass.whole_pass, attention.attention, linear.product):
        code.compile()


def _require_usable(sources: Sources, checked_on: str | None) -> torch.device:
    """Return the target's device, if the request can run on it."""
    precision = sources.precision
    require_precision(precision)
    sources.check()
    device = sources.device
    place = chosen_device(device) if checked_on is None else torch.device(device or best_device())
    if precision == ROUNDED and place.type != "cpu":
        raise UserError(
            f"Precision {precision} works only on a CPU, but the device is {place}; choose bf16 or fp32."
        )
    return place


def _planned(target: Files, draft: Files | None, precision: str) -> Placement:
    """Return the placement on several GPUs. A reduced-head draft stays on the target's device."""
    free = {name: free_memory(name) for name in map("cuda:{}".format, range(torch.cuda.device_count()))}
    needs = [
        ALLOWANCE + int(SLACK * count_parameters(files.folder) * DTYPES[precision].itemsize)
        for files in (target, draft)
        if files is not None
    ]
    if draft is None or is_reduced_draft(draft.folder):
        return plan(free, sum(needs), 0)
    return plan(free, *needs)


def _moved(pair: Pair, place: torch.device) -> Pair:
    """Move a pair's models to the device ``place``. Shared tensors stay shared."""
    for model in (pair.target, pair.draft, pair.feature_draft):
        if model is not None:
            # transformers decorates ``to`` in a way that hides what it is bound to.
            model.to(place)  # pyright: ignore[reportArgumentType]
    pair.drop_executions()  # those of the checks on the other device
    return pair if pair.id_map is None else replace(pair, id_map=pair.id_map.to(place))
