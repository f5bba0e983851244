"""A loaded pair of models: what a run needs of them, and the lanes it races.

Loading is in ``load``, decoding in ``engine``. Knows no UI.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import torch
import transformers
from torch import nn

from specdemo import __version__
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.early_exit import EarlyExitDrafter
from specdemo.drafters.feature import FeatureDraft, FeatureDrafter, FeatureRuntime
from specdemo.drafters.lookup import LookupFirstDrafter, PromptLookupDrafter
from specdemo.drafters.other_device import near
from specdemo.drafters.recorded import RecordedDraftLoop
from specdemo.drafters.scripted import ScriptedDrafter
from specdemo.engine.draft_length import length_for
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import GreedyRule, VerificationRule, rule_for
from specdemo.engine.speculate import autoregress, never, run_capacity, speculate
from specdemo.models.execution import readable_positions
from specdemo.models.runtime import ExitRuntime, ModelRuntime, WholeVocabularyRuntime
from specdemo.pairs.arithmetic import Arithmetic
from specdemo.pairs.calibrate import (
    calibration_from,
    find_good_rows,
    measure_draft_step,
    measure_target,
    refreshed,
)
from specdemo.pairs.measurements import Measurements, processor
from specdemo.records.limits import DRAFTERS, MAX_K, SCRIPTED, UserError
from specdemo.records.pieces import PieceTable
from specdemo.records.race import race
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Calibration, Mode, Round, Run, RunConfig

EXIT_SHARE = 0.2
"""Share of the target's layers that the early exit runs."""
DRAFT_ROWS = 2
"""Most tokens a draft model takes at once after the prompt: the target's last and one of its own."""
SHORTEST_COPY = 2
"""Tokens that must match before a copy is preferred to a draft."""
STEPPING = {
    "draft-model": "draft-model",
    "lookup+model": "draft-model",
    "feature-draft": "feature-draft",
    "lookup+feature": "feature-draft",
    "early-exit": "early-exit",
}
"""Drafter kinds that make draft passes, and the kind whose step they cost. The others only copy."""

Stop = Callable[[], bool]


@dataclass
class Pair:
    """A target and a draft, each on its device, with their tokeniser.

    Attributes:
        target_name, draft_name: What the page calls them.
        target, draft: The modules; the draft may score fewer tokens (``id_map``).
        id_map: Target id of each draft output row, shape [H], beside the draft; None where both score the
            same ids.
        feature_draft: The head on the target's states, if there is one for this target.
        target_revision, draft_revision: Commits of models that came from the hub.
        calibrations: Pass costs by cache length and drafter kind, measured when first used.
        arithmetic: What it computes in and why; None where nobody chose.
        measurements: Where the target's pass costs are kept from start to start, if anywhere.
        identity: Name of the target's files there.
    """

    target_name: str
    draft_name: str
    target: nn.Module
    draft: nn.Module | None
    id_map: torch.Tensor | None
    tokenizer: Any
    precision: str
    pieces: PieceTable
    feature_draft: FeatureDraft | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    calibrations: dict[tuple[int, str], Calibration] = field(default_factory=dict)
    arithmetic: Arithmetic | None = None
    measurements: Measurements | None = None
    identity: str = ""
    _verifier: ClassVar[type[ModelRuntime]] = ModelRuntime

    @property
    def device(self) -> torch.device:
        """Where the target reads ids and gives its logits; verdicts are reached there."""
        return next(self.target.parameters()).device

    @property
    def draft_device(self) -> torch.device:
        """Where the draft model is; the target's device where there is none."""
        return self.device if self.draft is None else next(self.draft.parameters()).device

    @property
    def place(self) -> str:
        """What the page calls the device, with the way its passes are run where there are several."""
        recorded = getattr(self.target, "recorded", None)
        name = self._hardware
        if recorded is None:
            return name
        failure = recorded.failure or getattr(getattr(self.draft, "recorded", None), "failure", None)
        way = "recorded passes" if failure is None else f"not recorded: {failure}"
        return f"{name} ({way})"

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        return eos_ids_of(self.target, self.tokenizer)

    @property
    def default_drafter(self) -> str:
        """The drafter to use where none is asked for."""
        if self.draft is not None:
            return RunConfig.drafter
        return "prompt-lookup" if self.feature_draft is None else "feature-draft"

    def prompt_ids(self, config: RunConfig) -> list[int]:
        """The prompt as the target reads it.

        Raises:
            UserError: The target has no chat template, or the prompt is empty or longer than it can read.
        """
        if config.mode is Mode.CHAT and self.tokenizer.chat_template is None:
            raise UserError(f"{self.target_name} has no chat template; choose raw continuation.")
        ids = encode_prompt(self.tokenizer, config.prompt, config.mode)
        if not ids:
            raise UserError("The prompt is empty; write something for the models to continue.")
        if len(ids) >= (most := readable_positions(self.target.config)):
            raise UserError(f"The prompt has {len(ids):,} tokens, the target reads {most:,}; shorten it.")
        return ids

    def script_ids(self, script: str) -> list[int]:
        """What the ``scripted`` drafter proposes: the tokens of ``script`` by itself."""
        return list(self.tokenizer(script, add_special_tokens=False)["input_ids"])

    def calibrate(self, config: RunConfig, prompt_tokens: int) -> Calibration:
        """Row floor and pass costs for a run of this size and drafter, measured on first use.

        Raises:
            UserError: The pair lacks what the drafter needs.
        """
        capacity = run_capacity(prompt_tokens, config.max_new_tokens)
        target_costs = self._target_costs(capacity)
        kind = STEPPING.get(config.drafter)
        if kind is None:
            return target_costs
        if (capacity, kind) not in self.calibrations:
            runtime = self._target_for(kind, target_costs.rows, capacity)
            rule = GreedyRule()
            drafter = self._drafter_near(replace(config, drafter=kind), runtime, rule)
            step_s = measure_draft_step(runtime, drafter, rule, capacity, self._vocab)
            self.calibrations[capacity, kind] = replace(target_costs, c=step_s / target_costs.step_s)
        return self.calibrations[capacity, kind]

    def speculative_lane(
        self, config: RunConfig, prompt_ids: list[int], stop: Stop = never
    ) -> Iterator[Round]:
        """A fresh speculative decoder."""
        calibration = self.calibrate(config, len(prompt_ids))
        capacity = run_capacity(len(prompt_ids), config.max_new_tokens)
        target = self._target_for(config.drafter, calibration.rows, capacity)
        length = length_for(config.k, calibration, self.device)
        rule = rule_for(config, self.device)
        drafter = self._drafter_near(config, target, rule)
        return speculate(target, drafter, prompt_ids, config, self.eos_ids, stop, length, rule)

    def baseline_lane(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> Iterator[Round]:
        """A fresh decoder of the target alone."""
        capacity = run_capacity(len(prompt_ids), config.max_new_tokens)
        target = ModelRuntime(self.target, self._target_costs(capacity).rows)
        target.prepare(capacity, 1)
        return autoregress(target, prompt_ids, config, self.eos_ids, stop)

    def draft_lane(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> Iterator[Round]:
        """A fresh decoder of the draft model alone, whoever drafts for the target.

        It has a cache of its own, takes one token a pass as a draft does, and writes the target's ids.

        Raises:
            UserError: The pair has no draft model, or the prompt fills what that can read.
        """
        if self.draft is None:
            raise UserError("This pair has no draft model; leave out the lane of the draft alone.")
        runtime = (
            ModelRuntime(self.draft)
            if self.id_map is None
            else WholeVocabularyRuntime(self.draft, self.id_map, self._vocab)
        )
        if len(prompt_ids) >= runtime.max_context:
            raise UserError(
                f"The prompt has {len(prompt_ids):,} tokens, the draft model reads {runtime.max_context:,}; "
                "shorten it or leave out the lane of the draft alone."
            )
        runtime.prepare(run_capacity(len(prompt_ids), config.max_new_tokens), 1)
        return autoregress(runtime, prompt_ids, config, self.eos_ids, stop)

    def race(
        self, config: RunConfig, prompt_ids: list[int], stop: Stop = never
    ) -> Iterator[tuple[str, Round]]:
        """Run the speculative lane and the others that are asked for, interleaved by their own clocks.

        Raises:
            UserError: The pair lacks what a lane needs.
        """
        lanes = {SPECULATIVE: self.speculative_lane(config, prompt_ids, stop)}
        if config.baseline:
            lanes[BASELINE] = self.baseline_lane(config, prompt_ids, stop)
        if config.draft_alone:
            lanes[DRAFT] = self.draft_lane(config, prompt_ids, stop)
        return race(lanes)

    def drop_recordings(self) -> None:
        """Let go of recorded passes and the memory they hold; later runs record anew."""
        for model in (self.target, self.draft):
            if getattr(model, "recorded", None) is not None:
                model.recorded = None

    def warm_up(self) -> None:
        """Run every kind of pass once, so that no visitor's first run pays for it."""
        config = RunConfig(
            prompt="",
            mode=Mode.RAW,
            max_new_tokens=8,
            drafter=self.default_drafter,
            draft_alone=self.draft is not None,
        )
        for _ in self.race(config, self.tokenizer("The sky is")["input_ids"]):
            pass

    def blank_run(self, config: RunConfig, prompt_ids: list[int]) -> Run:
        """A ``Run`` with everything but its rounds."""
        return Run(
            config=config,
            prompt_ids=tuple(prompt_ids),
            pair=self._names,
            device=self.place,
            precision=self.precision,
            arithmetic=self.arithmetic.reason if self.arithmetic else "",
            versions=versions(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            calibration=self.calibrate(config, len(prompt_ids)),
            lanes={},
            pieces=self.pieces.encoded(prompt_ids),
            specials=tuple(sorted(self.pieces.specials & set(prompt_ids))),
        )

    @property
    def _hardware(self) -> str:
        """Name of the device, or of the first of several and their number."""
        name = device_name(self.device)
        if self.device.type != "cuda":
            return name
        models = [model for model in (self.target, self.draft) if model is not None]
        devices = {weight.device for model in models for weight in model.parameters()}
        return f"{len(devices)} × {name}" if len(devices) > 1 else name

    @property
    def _names(self) -> dict[str, str]:
        """What a run records of its models."""
        names = {"target": self.target_name, "draft": self.draft_name}
        revisions = {"target_revision": self.target_revision, "draft_revision": self.draft_revision}
        return names | {key: revision for key, revision in revisions.items() if revision is not None}

    @property
    def _vocab(self) -> int:
        return self.target.get_input_embeddings().num_embeddings

    def _target_costs(self, capacity: int) -> Calibration:
        if (capacity, "") not in self.calibrations:
            self.calibrations[capacity, ""] = self._remembered(capacity) or self._measured(capacity)
        return self.calibrations[capacity, ""]

    def _remembered(self, capacity: int) -> Calibration | None:
        """What an earlier start measured, if it still holds."""
        if self.measurements is None:
            return None
        kept = calibration_from(self.measurements.get(*self._costs_name(capacity)))
        return kept and refreshed(self.target, capacity, self._vocab, kept)

    def _costs_name(self, capacity: int) -> tuple[Any, ...]:
        """What the target's costs are kept under; a GPU is told apart by its name, the CPU always is."""
        name = ("costs", self.identity, self.precision, capacity)
        return name if self.device.type == "cpu" else (*name, self._hardware)

    def _measured(self, capacity: int) -> Calibration:
        good = find_good_rows(self.target, capacity, self._vocab)
        costs = measure_target(self.target, capacity, self._vocab, good)
        if self.measurements is not None:
            self.measurements.put(asdict(costs), *self._costs_name(capacity))
        return costs

    def _target_for(self, drafter: str, rows: tuple[int, ...], capacity: int) -> ModelRuntime:
        """The speculative lane's target runtime, tapped only where the drafter reads its states."""
        reads = STEPPING.get(drafter) == "feature-draft" and self.feature_draft is not None
        taps = self.feature_draft.config.taps if reads else ()
        runtime = self._verifier(self.target, rows, taps=taps)
        runtime.prepare(capacity, MAX_K + 1)
        return runtime

    def _drafter_near(self, config: RunConfig, target: ModelRuntime, rule: VerificationRule) -> Drafter:
        """A fresh drafter whose drafts come to the target, wherever the draft model is."""
        model_drafts = STEPPING.get(config.drafter) == "draft-model"
        place = self.draft_device if model_drafts else target.device
        return near(lambda seen: self._drafter(config, target, seen), rule, place, target.device)

    def _drafter(self, config: RunConfig, target: ModelRuntime, rule: VerificationRule) -> Drafter:
        """A fresh drafter of the kind asked for, drafting for ``target``."""
        match config.drafter:
            case "draft-model":
                if self.draft is None:
                    raise UserError("This pair has no draft model; choose another drafter.")
                runtime = ModelRuntime(self.draft, id_map=self.id_map)
                runtime.prepare(target.capacity, DRAFT_ROWS)
                return DraftModelDrafter(runtime, self._draft_loop(runtime, rule))
            case "feature-draft":
                if self.feature_draft is None:
                    raise UserError("This pair has no feature draft; choose another drafter.")
                return FeatureDrafter(FeatureRuntime(self.feature_draft), target)
            case "early-exit":
                depth = max(1, round(EXIT_SHARE * self.target.config.get_text_config().num_hidden_layers))
                return EarlyExitDrafter(ExitRuntime(target, depth))
            case "prompt-lookup":
                return PromptLookupDrafter(self.device)
            case "lookup+model" | "lookup+feature":
                other = self._drafter(replace(config, drafter=STEPPING[config.drafter]), target, rule)
                return LookupFirstDrafter(other, self.device, SHORTEST_COPY)
            case "scripted":
                return ScriptedDrafter(self.script_ids(config.script), self.device)
        raise UserError(f"Unknown drafter {config.drafter!r}.")

    def _draft_loop(self, runtime: ModelRuntime, rule: VerificationRule) -> RecordedDraftLoop | None:
        """The draft's steps recorded for this run, where that is possible."""
        recorded = getattr(self.draft, "recorded", None)
        if recorded is None or recorded.failure is not None:
            return None
        try:
            return RecordedDraftLoop(runtime, rule, recorded.record)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # what torch raises for whatever cannot be recorded; the passes still are
            return None


def drafters_with(draft: bool, feature_draft: bool) -> tuple[str, ...]:
    """The drafter kinds, the scripted one apart, for which a pair has what they need."""
    lacking = {
        name for name, there in (("draft-model", draft), ("feature-draft", feature_draft)) if not there
    }
    return tuple(name for name in DRAFTERS if name != SCRIPTED and STEPPING.get(name) not in lacking)


def encode_prompt(tokenizer: Any, prompt: str, mode: Mode) -> list[int]:
    """A prompt as a target reads it: as it stands, or as one chat message awaiting its answer."""
    if mode is Mode.RAW:
        return list(tokenizer(prompt)["input_ids"])
    message = [{"role": "user", "content": prompt}]
    encoded = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])


def eos_ids_of(target: nn.Module, tokenizer: Any) -> frozenset[int]:
    """Ids that end a text: the model's own and its tokeniser's."""
    configured = target.generation_config.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ids, tokenizer.eos_token_id] if token is not None)


def device_name(device: torch.device) -> str:
    """What the page calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {torch.get_num_threads()} threads"


def versions() -> Mapping[str, str]:
    """Program and library versions, for the run's record."""
    return {
        "specdemo": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
