"""Load a pair of models. Whether they fit each other is asked of ``compatible``.

Pairs to choose from are in ``presets``, the way from the hub in ``hub``, and which device a model goes to
in ``placement``. Knows no UI and no decoding.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import set_tqdm_hook

from specdemo.drafters.feature import FeatureDraft, load_feature_draft
from specdemo.engine.speculate import run_capacity
from specdemo.models.attention import ATTENTION
from specdemo.models.draft_files import count_parameters
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.huge_pages import use_huge_pages
from specdemo.models.layer_views import is_dispatched
from specdemo.models.packed_linear import (
    CPU_PRECISIONS,
    DTYPES,
    exact_precisions,
    has_half_kernel,
    linear_share,
    pack_linears,
    rounded,
)
from specdemo.models.reduced_draft import is_reduced_draft, load_draft
from specdemo.pairs.arithmetic import (
    AUTO_PRECISION,
    Arithmetic,
    asked_sentence,
    chosen_sentence,
    expected_rate_of_draft,
    fastest_target,
    unmeasured_sentence,
)
from specdemo.pairs.compatible import (
    PLAIN,
    fit_rows,
    require_known_ids,
    require_rollback,
    require_same_tokens,
)
from specdemo.pairs.embedded import Progress, cache_folder, embedded_target, mended_target, silent
from specdemo.pairs.hub import counting_bar, fetch_checkpoint, within
from specdemo.pairs.measurements import Measurements, fingerprint, processor_flags
from specdemo.pairs.pair import Pair, drafters_with
from specdemo.pairs.placement import Placement, free_memory, plan
from specdemo.pairs.presets import ALLOWANCE, EMBEDDED, SLACK
from specdemo.pairs.tune import CAPACITY, measure_drafts, measure_targets
from specdemo.records.limits import UserError
from specdemo.records.pieces import PieceTable
from specdemo.records.strict_json import Rebuilder, fitting
from specdemo.records.trace import Calibration, RunConfig
from specdemo.shipped import EMBEDDED_DRAFT, EMBEDDED_FEATURE_DRAFT

PRECISIONS = (AUTO_PRECISION, *DTYPES)
NONE = "none"
"""A pair without a draft model; drafters that need none still run."""
WHOLE = 300_000_000
"""Parameters of a model that is tried as a whole; of a larger one as many layers as make this."""
TARGET_HEAD_PRECISIONS = {"int4": "int8"}
"""Precision of a target's output layer, which decides between tokens, where it is not the layers'."""
MOSTLY = 0.9
"""Share of a model's matrices that must be packed for it to be called by that precision."""
DRAFT_PACKINGS = ("int4", "int8", "fp16", "bf16")
"""What our own drafts may run in on CPU: rounding costs them acceptance at most."""
USUAL_PACKING = "int4"
"""Where nothing was measured."""
Arguments = ParamSpec("Arguments")


def _mending(load: Callable[Arguments, Pair]) -> Callable[Arguments, Pair]:
    """``load``, tried once more where it failed and the embedded target proved damaged and was made anew."""

    @wraps(load)
    def tried(*arguments: Arguments.args, **options: Arguments.kwargs) -> Pair:
        try:
            return load(*arguments, **options)
        except Exception:  # a flipped byte may show anywhere
            asked = signature(load).bind(*arguments, **options)
            asked.apply_defaults()
            if asked.arguments["target"] != EMBEDDED or not mended_target(asked.arguments["progress"]):
                raise
        return load(*arguments, **options)

    return tried


Alone = Callable[[Callable[[], Any]], Any]
"""Calls what measures while nothing else computes, and gives its result."""


def at_once(measure: Callable[[], Any]) -> Any:
    """Measure here and now: for programs that do nothing else meanwhile."""
    return measure()


def load_pair(
    target: str = EMBEDDED,
    draft: str = EMBEDDED,
    feature_draft: str | None = None,
    device: str | None = None,
    precision: str = AUTO_PRECISION,
    progress: Progress = silent,
    target_revision: str | None = None,
    draft_revision: str | None = None,
    remeasure: bool = False,
    alone: Alone = at_once,
) -> Pair:
    """Load two models that share a tokeniser, measure them and warm them up: ready to run.

    Arguments and errors as for :func:`assemble_pair`. What was measured on this machine before is not
    measured again, unless ``remeasure`` is set.
    """
    pair = assemble_pair(
        target,
        draft,
        feature_draft,
        device,
        precision,
        within(progress, 0.0, 0.95),
        target_revision,
        draft_revision,
        measurements=Measurements(cache_folder(), fresh=remeasure),
        may_measure=True,
        alone=alone,
    )
    progress("Measuring pass costs and warming up", 0.95)
    if pair.device.type == "cpu":
        use_huge_pages()
    alone(pair.warm_up)
    progress("Ready", 1.0)
    return pair


@_mending
def assemble_pair(
    target: str = EMBEDDED,
    draft: str = EMBEDDED,
    feature_draft: str | None = None,
    device: str | None = None,
    precision: str = AUTO_PRECISION,
    progress: Progress = silent,
    target_revision: str | None = None,
    draft_revision: str | None = None,
    checked_on: str | None = None,
    measurements: Measurements | None = None,
    may_measure: bool = False,
    alone: Alone = at_once,
) -> Pair:
    """Load two models that share a tokeniser, check them and put them in place.

    Nothing is measured but, with ``may_measure``, what they compute in.

    Args:
        target: ``embedded``, a hub id, or a folder.
        draft: ``embedded`` (only with the embedded target), a hub id, or a folder; a folder may hold
            a full model or a reduced-head draft; or ``none``.
        feature_draft: A folder written by ``specdemo train --kind feature`` for this target; the
            embedded target has one of its own.
        device: ``cpu``, ``cuda``, ``cuda:1``, …, for both models; by default CUDA where there is one, and
            where there are several, as ``placement.plan`` has it.
        precision: Of the target, its baseline and a draft named here: ``bf16``, ``fp32``, or on CPU
            ``fp16``, ``int8`` or ``int4``; ``auto`` for the fastest in which the target keeps its stored
            numbers (``arithmetic``). Drafts from ``specdemo train`` run in what is fastest for them.
        target_revision, draft_revision: Branch, tag or commit of a hub id; by default its main branch.
        checked_on: A device to load, check and fuse the models on before they are moved, where nothing can
            run on ``device`` yet; by default the device itself.
        measurements: What is known of this machine; by default what the cache folder has.
        may_measure: Whether what is not known may be measured.
        alone: Calls what measures while nothing else computes.

    Raises:
        UserError: A device or model cannot be used, or the two models do not fit; the sentence names
            the first difference.
    """
    require_precision(precision)
    measurements = measurements or Measurements(cache_folder())
    if draft == EMBEDDED and target != EMBEDDED:
        raise UserError("The embedded draft fits only the embedded target; name a draft for this target too.")
    place = chosen_device(device) if checked_on is None else torch.device(device or best_device())
    if precision in CPU_PRECISIONS and place.type != "cpu":
        raise UserError(f"{precision} is made for the CPU; choose bf16 or fp32 on {place}.")
    if precision == "fp16" and not has_half_kernel():
        raise UserError("fp16 needs kernels that this processor does not have; choose auto or fp32.")
    target_files = _target_files(target, target_revision, within(progress, 0.0, 0.5))
    draft_files = _draft_files(draft, draft_revision, within(progress, 0.5, 0.75))
    chooser = _Chooser(measurements, may_measure, alone, place, target_files)
    precision, reason = chooser.target(precision, progress)
    spread = device is None and checked_on is None and torch.cuda.device_count() > 1
    placement = (
        _planned(target_files, draft_files, precision) if spread else Placement(str(place), str(place))
    )
    packing = chooser.known_packing(precision)
    loader = _Loader(precision, packing or USUAL_PACKING, placement, checked_on)
    target_model = loader.target(target_files, within(progress, 0.75, 0.9))
    tokenizer = _tokenizer(target_files)
    draft_model, id_map = loader.draft(draft_files, target_model, tokenizer, within(progress, 0.9, 1.0))
    feature_folder = _feature_folder(target, feature_draft)
    pair = Pair(
        target_name=target_files.name,
        draft_name=draft_files.name if draft_files else draft,
        # Before the target is taken apart the drafts made of its parts must be there.
        feature_draft=loader.feature_draft(feature_folder, target_model),
        target=loader.finished_target(target_model),
        draft=draft_model,
        id_map=id_map,
        tokenizer=tokenizer,
        precision=precision,
        pieces=PieceTable(tokenizer),
        target_revision=target_files.revision,
        draft_revision=draft_files.revision if draft_files else None,
        measurements=measurements,
        identity=fingerprint(target_files.folder),
    )
    if packing is None and chooser.may_measure:
        own = draft_files.folder if draft_files and is_reduced_draft(draft_files.folder) else None
        loader = replace(loader, packing=chooser.packing(pair, loader, own, feature_folder, progress))
        repacked = loader.with_drafts(pair, own, feature_folder)
        pair.draft, pair.feature_draft = repacked.draft, repacked.feature_draft
    pair.arithmetic = Arithmetic(precision, loader.packing, reason(loader.packing))
    if checked_on is not None:
        _move(pair, place)
    return pair


def offered_drafters(
    target: str = EMBEDDED, draft: str = EMBEDDED, feature_draft: str | None = None
) -> tuple[str, ...]:
    """The drafter kinds that a visitor of such a pair can choose from; arguments as for ``load_pair``."""
    return drafters_with(draft != NONE, _feature_folder(target, feature_draft) is not None)


def executable(
    model: nn.Module,
    precision: str,
    head_precision: str | None = None,
    destination: torch.device | None = None,
) -> nn.Module:
    """``model`` in its fastest form here; what was handed over is not used again.

    ``destination`` is where it will run, if it is moved there later.
    """
    head_precision = head_precision or precision
    if is_dispatched(model):
        return model  # the hooks that join its parts belong to the modules it has
    if can_fuse(model):
        return FusedLlama(model, precision, head_precision, destination)
    if precision in CPU_PRECISIONS and linear_share(model) < MOSTLY:
        raise UserError(
            f"{type(model).__name__} keeps its weights in layers that {precision} does not reach; "
            "choose bf16 or fp32."
        )
    return pack_linears(model, precision, head_precision, destination)


@dataclass(frozen=True)
class _Files:
    """A model's files here, what a page calls it, and its commit if it came from the hub."""

    name: str
    folder: Path
    revision: str | None


def _target_files(named: str, revision: str | None, progress: Progress) -> _Files:
    folder = embedded_target(progress) if named == EMBEDDED else None
    found = fetch_checkpoint(str(folder or named), revision, progress)
    return _Files(folder.name if folder else named, found.folder, found.revision)


def _draft_files(named: str, revision: str | None, progress: Progress) -> _Files | None:
    if named == NONE:
        return None
    embedded = named == EMBEDDED
    if embedded and not EMBEDDED_DRAFT.is_dir():
        raise UserError(f"The embedded draft is not installed ({EMBEDDED_DRAFT}); name another draft.")
    found = fetch_checkpoint(str(EMBEDDED_DRAFT) if embedded else named, revision, progress)
    return _Files("distilled draft" if embedded else named, found.folder, found.revision)


def _planned(target: _Files, draft: _Files | None, precision: str) -> Placement:
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


def _move(pair: Pair, place: torch.device) -> None:
    """Bring a pair that was made elsewhere to its device; shared tensors stay shared."""
    for model in (pair.target, pair.draft, pair.feature_draft):
        if model is not None:
            model.to(place)
    if pair.id_map is not None:
        pair.id_map = pair.id_map.to(place)


@dataclass(frozen=True)
class _Loader:
    """Loads, checks and finishes the models of one pair.

    Attributes:
        precision: Of the target and of a whole model that drafts.
        packing: Of our own drafts.
        placement: Where they will run.
        checked_on: Where they are until they are finished; None for the place itself.
    """

    precision: str
    packing: str
    placement: Placement
    checked_on: str | None

    def target(self, files: _Files, progress: Progress, **options: Any) -> nn.Module:
        """The target as transformers has it: drafts are still made of its parts."""
        return self._model("target", files, self.placement.target, self.placement.shards, progress, **options)

    def finished_target(self, target: nn.Module) -> nn.Module:
        """The target as it runs."""
        head = TARGET_HEAD_PRECISIONS.get(self.precision)
        return executable(target, self.precision, head, torch.device(self.placement.target))

    def draft(
        self, files: _Files | None, target: nn.Module, tokenizer: Any, progress: Progress
    ) -> tuple[nn.Module | None, torch.Tensor | None]:
        """A draft model that fits ``target``, and its id map if it scores fewer tokens."""
        if files is None:
            return None, None
        if is_reduced_draft(files.folder):
            packed, id_map = self.packed_draft(files.folder, target)
            require_known_ids(id_map, target)
            return packed, id_map
        draft = self._model("draft", files, self.placement.draft, None, progress)
        require_same_tokens(tokenizer, _tokenizer(files))
        id_map = fit_rows(target, draft)
        head = TARGET_HEAD_PRECISIONS.get(self.precision)
        return executable(draft, self.precision, head, torch.device(self.placement.draft)), id_map

    def feature_draft(self, path: Path | None, target: nn.Module) -> FeatureDraft | None:
        """The head on the target's states in ``path``."""
        if path is None:
            return None
        try:
            draft = self.packed_feature_draft(path, target)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise UserError(
                f"Cannot load a feature draft of this target from {path}; name a folder written by "
                "`specdemo train --kind feature` for it."
            ) from error
        require_known_ids(draft.id_map, target)
        return draft

    def packed_draft(self, folder: Path, target: nn.Module) -> tuple[nn.Module, torch.Tensor]:
        """A draft of our own, which borrows the target's embedding, and its id map."""
        draft = load_draft(folder, target, ATTENTION, DTYPES[self.packing])
        rounded(draft.own_state().values(), self.packing)
        return executable(draft, self.packing, None, torch.device(self.placement.target)), draft.id_map

    def packed_feature_draft(self, folder: Path, target: nn.Module) -> FeatureDraft:
        """A head on the target's states, which borrows the target's embedding."""
        draft = load_feature_draft(folder, target, DTYPES[self.packing])
        rounded(draft.own_state().values(), self.packing)
        return pack_linears(draft, self.packing, self.packing, torch.device(self.placement.target))

    def with_drafts(self, pair: Pair, draft: Path | None, feature_draft: Path | None) -> Pair:
        """``pair`` with our own drafts, from these folders, packed as this loader does; nothing measured."""
        model = pair.draft if draft is None else self.packed_draft(draft, pair.target)[0]
        head = None if feature_draft is None else self.packed_feature_draft(feature_draft, pair.target)
        return replace(pair, draft=model, feature_draft=head, calibrations={}, measurements=None)

    def _model(
        self,
        role: str,
        files: _Files,
        place: str,
        shards: Mapping[str, int] | None,
        progress: Progress,
        **options: Any,
    ) -> nn.Module:
        """A whole model of transformers, in one piece or in shards, that may be rolled back."""
        if shards is not None:
            most = {torch.device(name).index: count for name, count in shards.items()}
            options |= {"device_map": "auto", "max_memory": most}
        with weights_counted(files.name, progress):
            model = loading(
                AutoModelForCausalLM.from_pretrained,
                str(files.folder),
                files.name,
                dtype=DTYPES[self.precision],
                attn_implementation=ATTENTION,
                use_safetensors=True,
                **options,
            )
        if shards is None:
            model.to(self.checked_on or place)
        elif {"cpu", "disk"} & set(map(str, model.hf_device_map.values())):
            raise UserError(f"{files.name} does not fit on the GPUs here; choose a smaller model.")
        model.eval()
        require_rollback(role, files.name, model)
        return model


@dataclass(frozen=True)
class _Chooser:
    """Chooses what a pair computes in, by what was measured on this machine or is measured now.

    Attributes:
        may_measure: Whether what is not known is measured.
        alone: Calls what measures while nothing else computes.
        place: The target's device.
        files: The target's.
    """

    measurements: Measurements
    may_measure: bool
    alone: Alone
    place: torch.device
    files: _Files

    def target(self, asked: str, progress: Progress) -> tuple[str, Callable[[str], str]]:
        """The target's precision, and from the drafts' packing a sentence that says why."""
        if asked != AUTO_PRECISION:
            return asked, partial(asked_sentence, asked)
        if self.place.type != "cpu":
            usual = "fp32" if _lacks_bf16(self.place) else "bf16"
            return usual, partial(unmeasured_sentence, usual)
        rates = _rates_from(self.measurements.get("target", self._model))
        if rates is None and self.may_measure:
            rates = self.alone(partial(self._measured, progress))
        if rates:
            best = max(rates, key=rates.__getitem__)
            return best, partial(chosen_sentence, best, rates=rates)
        usual = _one_of(exact_precisions(), self.measurements.get("usual target")) or usual_precision()
        return usual, partial(unmeasured_sentence, usual)

    def known_packing(self, precision: str) -> str | None:
        """What our own drafts run in beside a target in ``precision``; None where that is not known yet."""
        if self.place.type != "cpu":
            return precision
        return _one_of(DRAFT_PACKINGS, self.measurements.get("packing", self._model, precision))

    def packing(
        self,
        pair: Pair,
        loader: _Loader,
        own: Path | None,
        feature_folder: Path | None,
        progress: Progress,
    ) -> str:
        """The packing of our own drafts with the most expected tokens per second, measured."""
        if own is None and feature_folder is None:
            return USUAL_PACKING
        rates = self.alone(partial(self._trials, pair, loader, own, feature_folder, progress))
        best = max(rates, key=rates.__getitem__, default=USUAL_PACKING)
        self.measurements.put(best, "packing", self._model, loader.precision)
        return best

    def _trials(
        self, pair: Pair, loader: _Loader, own: Path | None, feature_folder: Path | None, progress: Progress
    ) -> dict[str, float]:
        """Expected tokens per second by the packing of our own drafts."""
        config = RunConfig(prompt="", drafter="feature-draft" if own is None else "draft-model")
        costs = pair.calibrate(replace(config, drafter="prompt-lookup"), 1)

        def measure(name: str) -> Calibration:
            trial = replace(loader, packing=name).with_drafts(pair, own, None if own else feature_folder)
            trial.calibrations[run_capacity(1, config.max_new_tokens), ""] = costs
            return trial.calibrate(config, 1)

        found = measure_drafts(DRAFT_PACKINGS, measure, within(progress, 0.9, 1.0))
        return {name: expected_rate_of_draft(costs, name) for name, costs in found.items()}

    @property
    def _model(self) -> str:
        return fingerprint(self.files.folder)

    def _measured(self, progress: Progress) -> dict[str, float]:
        costs = measure_targets(exact_precisions(), self._trial, within(progress, 0.75, 0.9))
        if not costs:
            return {}
        best, rates = fastest_target(costs)
        self.measurements.put(rates, "target", self._model)
        self.measurements.put(best, "usual target")
        if not self._cut:  # a cut model's passes are not the whole one's
            for precision, found in costs.items():
                self.measurements.put(asdict(found), "costs", self._model, precision, CAPACITY)
        return rates

    def _trial(self, precision: str) -> nn.Module:
        """The target in a precision, a large one cut to its first layers: it is only compared with itself."""
        loader = _Loader(precision, USUAL_PACKING, Placement("cpu", "cpu"), None)
        return loader.finished_target(loader.target(self.files, silent, **self._cut))

    @cached_property
    def _cut(self) -> dict[str, int]:
        """What makes a trial of a large target out of its first layers; nothing for one tried as a whole."""
        parameters = count_parameters(self.files.folder)
        if parameters <= WHOLE:
            return {}
        config = loading(AutoConfig.from_pretrained, str(self.files.folder)).get_text_config()
        return {"num_hidden_layers": max(2, config.num_hidden_layers * WHOLE // parameters)}


_READ_RATES = Rebuilder({"rates": len(DTYPES)}, 16, {}).reader(Mapping[str, float], "rates")


def _rates_from(kept: Any) -> dict[str, float] | None:
    """Tokens per second by precision, as they were kept; None where it is nothing of the kind."""
    rates = fitting(_READ_RATES, kept)
    return rates if rates and rates.keys() <= set(exact_precisions()) else None


def _one_of(names: Iterable[str], kept: Any) -> str | None:
    """What was kept, if it is one of these names."""
    return next((name for name in names if name == kept), None)


def _lacks_bf16(place: torch.device) -> bool:
    """Whether a GPU has no bf16 of its own (before Ampere); False where that cannot be told yet."""
    try:
        return place.type == "cuda" and torch.cuda.get_device_capability(place) < (8, 0)
    except (RuntimeError, AssertionError):
        return False


def usual_precision() -> str:
    """What a target runs in on this CPU where nothing was measured: bf16 where it has instructions for it."""
    if {"avx512_bf16", "amx_bf16", "bf16"} & set(processor_flags()):
        return "bf16"
    return "fp16" if has_half_kernel() else "fp32"


def _tokenizer(files: _Files) -> Any:
    return loading(AutoTokenizer.from_pretrained, str(files.folder), files.name)


def _feature_folder(target: str, named: str | None) -> Path | None:
    """Where the pair's feature draft is: as named, or the embedded target's own if it has one."""
    if named is not None:
        return Path(named)
    return EMBEDDED_FEATURE_DRAFT if target == EMBEDDED and EMBEDDED_FEATURE_DRAFT.is_dir() else None


def require_precision(name: str) -> None:
    """Refuse a precision there is not.

    Raises:
        UserError: Naming those there are.
    """
    if name not in PRECISIONS:
        raise UserError(f"Unknown precision {name!r}; choose one of: {', '.join(PRECISIONS)}.")


def best_device() -> str:
    """CUDA where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen_device(name: str | None) -> torch.device:
    """The device asked for, or the best one here, once a tensor could be put on it."""
    best = best_device()
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here; choose {best}.") from error
    return place


_ONE_AT_A_TIME = threading.RLock()
"""transformers has one hook for progress, and one default precision while it makes a model."""


@contextmanager
def weights_counted(name: str, progress: Progress) -> Iterator[None]:
    """Show how many of a model's tensors transformers has put in place, while the context is open."""

    def show(done: float, total: float | None, unit: str) -> None:
        progress(f"Loading {name}", done / total if total else 0.0)

    bar = counting_bar(show)
    with _ONE_AT_A_TIME:
        before = set_tqdm_hook(lambda factory, arguments, options: bar(*arguments, **options))
        try:
            yield
        finally:
            set_tqdm_hook(before)


def loading(loader: Callable[..., Any], path: str, name: str | None = None, **options: Any) -> Any:
    """Call a ``from_pretrained``, with its many ways to fail put into words.

    No code that comes with a model is run. ``name`` is what the model is called, if not its path.
    """
    name = name or path
    try:
        with _ONE_AT_A_TIME:
            return loader(path, trust_remote_code=False, **options)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise UserError(f"{name} does not fit into memory here; choose a smaller model.") from error
    except Exception as error:  # of the libraries that read foreign files, each has kinds of its own
        if error.args == (ATTENTION,):  # looked up in a list of the model's own
            raise UserError(f"{name} does not let its attention be replaced; {PLAIN}.") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"Cannot load {name}: {reason}. Check the name or folder and the connection."
        ) from error
