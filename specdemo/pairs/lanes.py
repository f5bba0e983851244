"""The lanes of a pair's runs (see ``charts.stage.LANE_NAMES``), their race and their calibration."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdemo.drafters.factory import DrafterSpec, make_drafter
from specdemo.engine.draft_length import length_for
from specdemo.engine.drafter import Drafter, NoDrafter, RecordedDraft
from specdemo.engine.race import race
from specdemo.engine.rules import GreedyRule, VerificationRule, rule_for
from specdemo.engine.speculate import Prefill, autoregress, never, run_capacity, speculate
from specdemo.engine.verdicts import TopLists, no_tops
from specdemo.models.runtime import ModelRuntime, Runtime, WholeVocabularyRuntime
from specdemo.pairs.calibrate import CAPACITY, DRAFTED, measure_draft
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import FEATURE_DRAFT_HEAD, KINDS, SCRIPTED, DrafterKind, parts_of
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import AUTO, BASELINE, DRAFT, SPECULATIVE, Calibration, Mode, Round, RunConfig

if TYPE_CHECKING:  # needs Triton
    from specdemo.engine.recorded_round import RecordedRounds

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaneRounds(Iterable[Round]):
    """The rounds of one lane, each decoded when it is requested."""

    prefill: Prefill  # processes the prompt; the first round processes what is left of it
    _rounds: Iterator[Round]

    def __iter__(self) -> Iterator[Round]:
        return self._rounds


class Lanes:
    """The lanes of a pair's runs, which share no state with each other.

    Args:
        tops: Returns the most probable tokens at each position, for display.
        wrap_draft: For experiments: returns the runtime to use instead of the draft model's own.
        verifier: Class of the target's runtime in the speculative lane.
        verifier_costs: Returns the costs of ``verifier`` from those of the target; None if they are equal.
    """

    def __init__(
        self,
        pair: Pair,
        tops: TopLists = no_tops,
        wrap_draft: Callable[[Runtime], Runtime] | None = None,
        verifier: type[ModelRuntime] = ModelRuntime,
        verifier_costs: Callable[[Calibration], Calibration] | None = None,
    ):
        self.pair = pair
        self._tops = tops
        self._wrap_draft = wrap_draft
        self._verifier = verifier
        self._verifier_costs = verifier_costs
        changed = wrap_draft is not None or verifier_costs is not None
        # Costs with a changed draft or verifier must not be stored with the pair.
        self._draft_costs = {} if changed else pair.costs.known

    def calibrate(self, config: RunConfig) -> Calibration:
        """Return the pass costs for a run with ``config.drafter``. They are measured on first use."""
        costs = self.pair.costs.of_target(self.pair.target)
        if self._verifier_costs is not None:
            costs = self._verifier_costs(costs)
        kind = self._model_kind(config)
        if not kind.computes:
            return costs
        known = self._draft_costs
        if kind.name not in known:
            target, rule = self._verifying(kind, costs.rows, CAPACITY), GreedyRule()
            drafter = self._drafter(replace(config, drafter=kind.name), target)
            recorded = recorded_rounds(target, rule, drafter.recorded(), DRAFTED)
            known[kind.name] = measure_draft(costs, target, drafter, rule, recorded)
        return known[kind.name]

    def calibrate_all(self) -> Calibration:
        """Measure all costs of the pair again; return those with its default drafter."""
        self.pair.costs.known.clear()
        for drafter in self.pair.drafters:
            with suppress(UserError):  # a run with a drafter that the target cannot use gives the reason
                self.calibrate(RunConfig(prompt="", drafter=drafter))
        return self.calibrate(RunConfig(prompt="", drafter=self.pair.default_drafter))

    def speculative(
        self,
        config: RunConfig,
        prompt_ids: list[int],
        stop: Stop = never,
        target: ModelRuntime | None = None,
    ) -> LaneRounds:
        """Return the rounds of a new speculative lane.

        ``target`` is the runtime that verifies, with an open cache; by default that of :meth:`verifier`.
        """
        calibration = self.calibrate(config)
        target = target or self.verifier(config, len(prompt_ids))
        rule = rule_for(config, self.pair.device)
        drafter = self._drafter(config, target)
        longest = MAX_K if config.k == AUTO else config.k
        recorded = recorded_rounds(target, rule, drafter.recorded(), longest)
        prefill = Prefill(target, drafter, prompt_ids, config.max_new_tokens)
        rounds = speculate(
            target,
            drafter,
            prompt_ids,
            config,
            self.pair.eos_ids,
            stop,
            length_for(config.k, calibration, self.pair.device),
            rule,
            self._tops,
            prefill=prefill,
            recorded=recorded,
        )
        return LaneRounds(prefill, rounds)

    def verifier(self, config: RunConfig, prompt_tokens: int) -> ModelRuntime:
        """Return a prepared target runtime for the speculative lane."""
        rows = self.calibrate(config).rows
        capacity = run_capacity(prompt_tokens, config.max_new_tokens)
        return self._verifying(self._model_kind(config), rows, capacity)

    def baseline(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> LaneRounds:
        """Return the rounds of a new lane of the target alone, with the timing of unpadded passes."""
        costs = self.pair.costs.of_target(self.pair.target)
        target = ModelRuntime(self.pair.target, costs.rows)
        # Always time unpadded passes, even if calibration found that padding is free: it may be noisy.
        padded = target.padded(1) > 1
        capacity = run_capacity(len(prompt_ids), config.max_new_tokens)
        target.prepare(capacity)
        timed_pass = target.run_unpadded if padded else None
        return self._alone(target, config, prompt_ids, stop, timed_pass)

    def draft_alone(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> LaneRounds:
        """Return the rounds of a new lane of the draft model alone: one token per pass, as target ids."""
        pair = self.pair
        if pair.draft is None:
            raise UserError(
                "This pair has no draft model that could run alone; turn off the draft model's own lane."
            )
        runtime = (
            ModelRuntime(pair.draft)
            if pair.id_map is None
            else WholeVocabularyRuntime(pair.draft, pair.id_map, pair.vocab)
        )
        if len(prompt_ids) >= runtime.max_context:
            raise UserError(
                f"The prompt has {len(prompt_ids):,} tokens, but the draft model can read at most "
                f"{runtime.max_context - 1:,}; shorten the prompt, or do not run the draft model alone."
            )
        runtime.prepare(run_capacity(len(prompt_ids), config.max_new_tokens))
        return self._alone(runtime, config, prompt_ids, stop)

    def requested(
        self, config: RunConfig, prompt_ids: list[int], stop: Stop = never
    ) -> dict[str, LaneRounds]:
        lanes = {SPECULATIVE: self.speculative(config, prompt_ids, stop)}
        if config.baseline:
            lanes[BASELINE] = self.baseline(config, prompt_ids, stop)
        if config.draft_alone:
            lanes[DRAFT] = self.draft_alone(config, prompt_ids, stop)
        return lanes

    def warm_up(self) -> None:
        """Run a short race, so that the first real run is not slowed by one-time work."""
        config = RunConfig(
            prompt="The sky is",
            mode=Mode.RAW,
            max_new_tokens=8,
            drafter=self.pair.default_drafter,
            draft_alone=self.pair.draft is not None,
        )
        for _ in race(self.requested(config, self.pair.prompt_ids(config))):
            pass

    def _alone(
        self,
        model: ModelRuntime,
        config: RunConfig,
        prompt_ids: list[int],
        stop: Stop,
        timed_pass: Callable[[Tensor], None] | None = None,
    ) -> LaneRounds:
        prefill = Prefill(model, NoDrafter(model.device), prompt_ids, config.max_new_tokens)
        eos_ids, tops = self.pair.eos_ids, self._tops
        recorded = recorded_rounds(model, rule_for(config, model.device), None, 0)
        rounds = autoregress(model, prompt_ids, config, eos_ids, stop, tops, timed_pass, prefill, recorded)
        return LaneRounds(prefill, rounds)

    def _model_kind(self, config: RunConfig) -> DrafterKind:
        return KINDS[config.drafter].drafting_kind(parts_of(self.pair))

    def _verifying(self, kind: DrafterKind, rows: tuple[int, ...], capacity: int) -> ModelRuntime:
        """Return a prepared target runtime. It keeps hidden states only if the drafter reads them."""
        head = self.pair.feature_draft if kind.needs == FEATURE_DRAFT_HEAD else None
        runtime = self._verifier(self.pair.target, rows, taps=() if head is None else head.config.taps)
        runtime.prepare(capacity)
        return runtime

    def _drafter(self, config: RunConfig, target: ModelRuntime) -> Drafter:
        kind = KINDS[config.drafter]
        pair = self.pair
        spec = DrafterSpec(
            kind=kind,
            target=target,
            draft=pair.draft,
            draft_device=pair.draft_device,
            id_map=pair.id_map,
            feature_draft=pair.feature_draft,
            n_gram=pair.n_gram,
            script=tuple(pair.script_ids(config.script)) if kind.name == SCRIPTED else (),
            wrap_draft=self._wrap_draft,
        )
        return make_drafter(spec)


def recorded_rounds(
    target: ModelRuntime, rule: VerificationRule, draft: RecordedDraft | None, longest: int
) -> "RecordedRounds | None":
    """Record the rounds of a lane with up to ``longest`` draft tokens; None if its passes are not recorded.

    A lane that drafts without a ``draft`` to record has no recorded rounds either.
    """
    fit = type(target) is ModelRuntime and getattr(target.execution, "records_rounds", False)
    if not fit or (longest and draft is None):
        return None
    from specdemo.engine.recorded_round import RecordedRounds

    try:
        return RecordedRounds(target, rule, draft, longest)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # torch and each part of Triton raise errors of their own; passes are still recorded
        _log.warning("Rounds are not recorded.", exc_info=True)
        return None
