"""Load a pair of models: fetched, checked against each other, in place, measured and warmed up.

Pairs to choose from are in ``presets``, the way from the hub in ``hub``, loading one model in
``model_loader``, what it computes in in ``choose``, which device it goes to in ``placement``. Knows no UI.
"""

from dataclasses import replace

import torch

from specdemo.models.draft_files import count_parameters
from specdemo.models.huge_pages import use_huge_pages
from specdemo.models.packed_linear import CPU_PRECISIONS, DTYPES, has_half_kernel
from specdemo.models.reduced_draft import is_reduced_draft
from specdemo.pairs.arithmetic import Arithmetic, require_precision
from specdemo.pairs.choose import USUAL_PACKING, Alone, Chooser, at_once, with_own_drafts
from specdemo.pairs.embedded import Progress, cache_folder, mended_target, silent
from specdemo.pairs.hardware import best_device, chosen_device
from specdemo.pairs.hub import within
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.measurements import Measurements, fingerprint
from specdemo.pairs.model_loader import Loader, tokenizer_of
from specdemo.pairs.pair import Pair
from specdemo.pairs.pass_costs import PassCosts
from specdemo.pairs.placement import Placement, free_memory, plan
from specdemo.pairs.presets import ALLOWANCE, SLACK
from specdemo.pairs.sources import Files, Sources, draft_files, target_files
from specdemo.records.limits import UserError
from specdemo.records.pieces import PieceTable
from specdemo.shipped import EMBEDDED

DEFAULT = Sources()


def load_pair(
    sources: Sources = DEFAULT,
    *,
    progress: Progress = silent,
    remeasure: bool = False,
    alone: Alone = at_once,
) -> Pair:
    """Load two models that share a tokeniser, measure them and warm them up: ready to run.

    Args:
        sources: Which models; by default the embedded pair.
        progress: Told what is being done, and its share of the whole.
        remeasure: Whether what was measured on this machine before is measured again.
        alone: Calls what measures while nothing else computes.

    Raises:
        UserError: As for :func:`assemble_pair`.
    """
    measurements = Measurements(cache_folder(), fresh=remeasure)
    pair = assemble_pair(
        sources,
        progress=within(progress, 0.0, 0.95),
        measurements=measurements,
        may_measure=True,
        alone=alone,
    )
    progress("Measuring pass costs and warming up", 0.95)
    if pair.device.type == "cpu":
        use_huge_pages()
    alone(Lanes(pair).warm_up)
    progress("Ready", 1.0)
    return pair


def assemble_pair(
    sources: Sources = DEFAULT,
    *,
    progress: Progress = silent,
    checked_on: str | None = None,
    measurements: Measurements | None = None,
    may_measure: bool = False,
    alone: Alone = at_once,
) -> Pair:
    """Load two models that share a tokeniser, check them and put them in place.

    Nothing is measured but, with ``may_measure``, what they compute in. An embedded target whose files prove
    damaged is made anew once.

    Args:
        sources: Which models; by default the embedded pair.
        progress: As for :func:`load_pair`.
        checked_on: A device to load, check and fuse the models on before they are moved, where nothing can
            run on their own yet; by default the device itself.
        measurements: What is known of this machine; by default what the cache folder has.
        may_measure: Whether what is not known may be measured.
        alone: As for :func:`load_pair`.

    Raises:
        UserError: A device or model cannot be used, or the two models do not fit; the sentence names
            the first difference.
    """

    def assemble() -> Pair:
        known = measurements or Measurements(cache_folder())
        return _assembled(sources, progress, checked_on, known, may_measure, alone)

    try:
        return assemble()
    except Exception:  # a flipped byte may show anywhere
        if sources.target != EMBEDDED or not mended_target(progress):
            raise
    return assemble()


def _assembled(
    sources: Sources,
    progress: Progress,
    checked_on: str | None,
    measurements: Measurements,
    may_measure: bool,
    alone: Alone,
) -> Pair:
    place = _require_usable(sources, checked_on)
    target_found = target_files(sources, within(progress, 0.0, 0.5))
    draft_found = draft_files(sources, within(progress, 0.5, 0.75))
    chooser = Chooser(measurements, may_measure, alone, place, target_found)
    precision, reason = chooser.target(sources.precision, progress)
    spread = sources.device is None and checked_on is None and torch.cuda.device_count() > 1
    placement = (
        _planned(target_found, draft_found, precision) if spread else Placement(str(place), str(place))
    )
    packing = chooser.known_packing(precision)
    loader = Loader(precision, packing or USUAL_PACKING, placement, checked_on)
    target = loader.target(target_found, within(progress, 0.75, 0.9))
    tokenizer = tokenizer_of(target_found)
    draft, id_map = loader.draft(draft_found, target, tokenizer, within(progress, 0.9, 1.0))
    pair = Pair(
        target_name=target_found.name,
        draft_name=draft_found.name if draft_found else sources.draft,
        # Before the target is taken apart the drafts made of its parts must be there.
        feature_draft=loader.feature_draft(sources.feature_folder, target),
        n_gram=loader.n_gram(sources.n_gram_folder, target),
        target=loader.finished_target(target),
        draft=draft,
        id_map=id_map,
        tokenizer=tokenizer,
        precision=precision,
        pieces=PieceTable(tokenizer),
        target_revision=target_found.revision,
        draft_revision=draft_found.revision if draft_found else None,
        costs=PassCosts(measurements=measurements, identity=fingerprint(target_found.folder)),
    )
    if packing is None and may_measure:
        own = draft_found.folder if draft_found and is_reduced_draft(draft_found.folder) else None
        loader = replace(loader, packing=chooser.packing(pair, loader, own, sources.feature_folder, progress))
        pair = with_own_drafts(pair, loader, own, sources.feature_folder, pair.costs)
    pair = replace(pair, arithmetic=Arithmetic(precision, loader.packing, reason(loader.packing)))
    return pair if checked_on is None else _moved(pair, place)


def _require_usable(sources: Sources, checked_on: str | None) -> torch.device:
    """The target's device, once the request makes sense on it.

    Raises:
        UserError: It does not.
    """
    precision = sources.precision
    require_precision(precision)
    if sources.draft == EMBEDDED and sources.target != EMBEDDED:
        raise UserError("The embedded draft fits only the embedded target; name a draft for this target too.")
    device = sources.device
    place = chosen_device(device) if checked_on is None else torch.device(device or best_device())
    if precision in CPU_PRECISIONS and place.type != "cpu":
        raise UserError(f"{precision} is made for the CPU; choose bf16 or fp32 on {place}.")
    if precision == "fp16" and not has_half_kernel():
        raise UserError("fp16 needs kernels that this processor does not have; choose auto or fp32.")
    return place


def _planned(target: Files, draft: Files | None, precision: str) -> Placement:
    """Where the pair goes on a machine with several GPUs; a draft made of the target's parts goes with it."""
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
    """A pair that was made elsewhere on its device; shared tensors stay shared."""
    for model in (pair.target, pair.draft, pair.feature_draft):
        if model is not None:
            # transformers decorates ``to`` in a way that hides what it is bound to.
            model.to(place)  # pyright: ignore[reportArgumentType]
    return pair if pair.id_map is None else replace(pair, id_map=pair.id_map.to(place))
