"""Choose what a pair computes in, by what was measured on this machine or is measured now.

How the figures are weighed is in ``arithmetic``, how candidates are timed in ``tune``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from specdemo.engine.speculate import run_capacity
from specdemo.models.draft_files import count_parameters
from specdemo.models.execution import WholeModel
from specdemo.models.packed_linear import DTYPES, exact_precisions, has_half_kernel
from specdemo.pairs.arithmetic import (
    AUTO_PRECISION,
    asked_sentence,
    chosen_sentence,
    expected_rate_of_draft,
    fastest_target,
    unmeasured_sentence,
)
from specdemo.pairs.embedded import Progress, silent
from specdemo.pairs.hub import within
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.measurements import Measurements, fingerprint, processor_flags
from specdemo.pairs.model_loader import Loader, loading
from specdemo.pairs.pair import Pair
from specdemo.pairs.pass_costs import PassCosts
from specdemo.pairs.placement import Placement
from specdemo.pairs.sources import Files
from specdemo.pairs.tune import CAPACITY, measure_drafts, measure_targets
from specdemo.records.drafter_kinds import DRAFT_MODEL, FEATURE_DRAFT, PROMPT_LOOKUP
from specdemo.records.strict_json import Rebuilder, fitting
from specdemo.records.trace import Calibration, RunConfig

WHOLE = 300_000_000
"""Parameters of a model that is tried as a whole; of a larger one as many layers as make this."""
DRAFT_PACKINGS = ("int4", "int8", "fp16", "bf16")
"""What our own drafts may run in on CPU: rounding costs them acceptance at most."""
USUAL_PACKING = "int4"
"""Where nothing was measured."""

Alone = Callable[[Callable[[], Any]], Any]
"""Calls what measures while nothing else computes, and gives its result."""


def at_once(measure: Callable[[], Any]) -> Any:
    """Measure here and now: for programs that do nothing else meanwhile."""
    return measure()


@dataclass(frozen=True)
class Chooser:
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
    files: Files

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
        loader: Loader,
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
        self, pair: Pair, loader: Loader, own: Path | None, feature_folder: Path | None, progress: Progress
    ) -> dict[str, float]:
        """Expected tokens per second by the packing of our own drafts."""
        config = RunConfig(prompt="", drafter=FEATURE_DRAFT if own is None else DRAFT_MODEL)
        costs = Lanes(pair).calibrate(replace(config, drafter=PROMPT_LOOKUP), 1)

        def measure(name: str) -> Calibration:
            known = PassCosts({(run_capacity(1, config.max_new_tokens), ""): costs})
            packed = replace(loader, packing=name)
            trial = with_own_drafts(pair, packed, own, None if own else feature_folder, known)
            return Lanes(trial).calibrate(config, 1)

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

    def _trial(self, precision: str) -> WholeModel:
        """The target in a precision, a large one cut to its first layers: it is only compared with itself."""
        loader = Loader(precision, USUAL_PACKING, Placement("cpu", "cpu"), None)
        return loader.finished_target(loader.target(self.files, silent, **self._cut))

    @cached_property
    def _cut(self) -> dict[str, int]:
        """What makes a trial of a large target out of its first layers; nothing for one tried as a whole."""
        parameters = count_parameters(self.files.folder)
        if parameters <= WHOLE:
            return {}
        config = loading(AutoConfig.from_pretrained, str(self.files.folder)).get_text_config()
        return {"num_hidden_layers": max(2, config.num_hidden_layers * WHOLE // parameters)}


def with_own_drafts(
    pair: Pair, loader: Loader, draft: Path | None, feature_draft: Path | None, costs: PassCosts
) -> Pair:
    """``pair`` with our own drafts, from these folders, packed as ``loader`` does, and these costs."""
    model = pair.draft if draft is None else loader.packed_draft(draft, pair.target)[0]
    head = None if feature_draft is None else loader.packed_feature_draft(feature_draft, pair.target)
    return replace(pair, draft=model, feature_draft=head, costs=costs)


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
