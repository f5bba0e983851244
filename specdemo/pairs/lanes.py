"""The lanes of a pair's runs: speculative, target alone, draft alone; how they are raced and measured."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from specdemo.drafters.factory import DrafterSpec, make_drafter
from specdemo.engine.draft_length import length_for
from specdemo.engine.drafter import Drafter
from specdemo.engine.rules import GreedyRule, VerificationRule, rule_for
from specdemo.engine.speculate import autoregress, never, run_capacity, speculate
from specdemo.engine.verdicts import TopLists, no_tops
from specdemo.models.n_gram import LearningTable
from specdemo.models.runtime import ModelRuntime, Runtime, WholeVocabularyRuntime
from specdemo.pairs.calibrate import CAPACITY, measure_draft
from specdemo.pairs.pair import Pair, Stop
from specdemo.records.drafter_kinds import FEATURE_DRAFT_HEAD, KINDS, SCRIPTED, Kind
from specdemo.records.events import race
from specdemo.records.limits import MAX_K, UserError
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Calibration, Mode, Round, Rule, RunConfig


class Lanes:
    """Builds the lanes of a pair's runs. Every lane is fresh.

    Args:
        pair: The models.
        tops: Makes the lists of likely tokens next to each token, for display.
        wrap_draft: Changes the draft model's runtime, for experiments.
        verifier: Class of the target's runtime in the speculative lane.
        verifier_costs: Maps the target's costs to those of ``verifier``.
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
        # A changed draft has costs of its own; the target's stay the same.
        self._draft_costs = {} if changed else pair.costs.known

    def calibrate(self, config: RunConfig) -> Calibration:
        """Return row counts and pass costs for a run with this drafter, measured on first use.

        Raises:
            UserError: The pair lacks what the drafter needs.
        """
        costs = self.pair.costs.of_target(self.pair.target)
        if self._verifier_costs is not None:
            costs = self._verifier_costs(costs)
        kind = KINDS[config.drafter].stepping
        if kind is None:
            return costs
        known = self._draft_costs
        if kind.name not in known:
            target, rule = self._verifying(kind, costs.rows, CAPACITY), GreedyRule()
            drafter = self._drafter(replace(config, drafter=kind.name), target, rule)
            known[kind.name] = measure_draft(costs, target, drafter, rule)
        return known[kind.name]

    def calibrate_all(self) -> Calibration:
        """Measure the costs of the target and of every drafter of the pair again.

        Returns:
            The costs with the pair's default drafter.
        """
        self.pair.costs.known.clear()
        for drafter in self.pair.drafters:
            self.calibrate(RunConfig(prompt="", drafter=drafter))
        return self.calibrate(RunConfig(prompt="", drafter=self.pair.default_drafter))

    def speculative(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> Iterator[Round]:
        """Return a fresh speculative decoder; errors as for :meth:`calibrate`."""
        calibration = self.calibrate(config)
        target = self.verifier(config, len(prompt_ids))
        rule = self._rule(config)
        return speculate(
            target,
            self._drafter(config, target, rule),
            prompt_ids,
            config,
            self.pair.eos_ids,
            stop,
            length_for(config.k, calibration, self.pair.device),
            rule,
            self._tops,
        )

    def verifier(self, config: RunConfig, prompt_tokens: int) -> ModelRuntime:
        """Return the runtime of :meth:`speculative`'s target, prepared; errors as for :meth:`calibrate`."""
        rows = self.calibrate(config).rows
        capacity = run_capacity(prompt_tokens, config.max_new_tokens)
        return self._verifying(KINDS[config.drafter], rows, capacity)

    def baseline(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> Iterator[Round]:
        """Return a fresh decoder of the target alone, timed as a decoder without padding."""
        costs = self.pair.costs.of_target(self.pair.target)
        target = ModelRuntime(self.pair.target, costs.rows)
        # Whether padding costs time is not left to the calibration: a noisy moment would decide it wrongly.
        padded = target.padded(1) > 1
        capacity = run_capacity(len(prompt_ids), config.max_new_tokens)
        target.prepare(capacity, 1, unpadded=padded)
        timed_pass = target.run_unpadded if padded else None
        return autoregress(target, prompt_ids, config, self.pair.eos_ids, stop, self._tops, timed_pass)

    def draft_alone(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> Iterator[Round]:
        """Return a fresh decoder of the draft model alone, whichever drafter the run has.

        It has its own cache, processes one token a pass as a draft does, and writes the target's ids.

        Raises:
            UserError: The pair has no draft model, or the prompt fills its context.
        """
        pair = self.pair
        if pair.draft is None:
            raise UserError("This pair has no draft model; leave out the lane of the draft alone.")
        runtime = (
            ModelRuntime(pair.draft)
            if pair.id_map is None
            else WholeVocabularyRuntime(pair.draft, pair.id_map, pair.vocab)
        )
        if len(prompt_ids) >= runtime.max_context:
            raise UserError(
                f"The prompt has {len(prompt_ids):,} tokens, the draft model reads {runtime.max_context:,}; "
                "shorten it or leave out the lane of the draft alone."
            )
        runtime.prepare(run_capacity(len(prompt_ids), config.max_new_tokens), 1)
        return autoregress(runtime, prompt_ids, config, pair.eos_ids, stop, self._tops)

    def race(
        self, config: RunConfig, prompt_ids: list[int], stop: Stop = never
    ) -> Iterator[tuple[str, Round]]:
        """Yield the rounds of the requested lanes, interleaved by the lanes' own clocks.

        Raises:
            UserError: The pair lacks something that a lane needs.
        """
        lanes = {SPECULATIVE: self.speculative(config, prompt_ids, stop)}
        if config.baseline:
            lanes[BASELINE] = self.baseline(config, prompt_ids, stop)
        if config.draft_alone:
            lanes[DRAFT] = self.draft_alone(config, prompt_ids, stop)
        return race(lanes)

    def warm_up(self) -> None:
        """Run every kind of pass once, so that no visitor's first run is slower."""
        config = RunConfig(
            prompt="",
            mode=Mode.RAW,
            max_new_tokens=8,
            drafter=self.pair.default_drafter,
            draft_alone=self.pair.draft is not None,
        )
        for _ in self.race(config, self.pair.tokenizer("The sky is")["input_ids"]):
            pass

    def _verifying(self, kind: Kind, rows: tuple[int, ...], capacity: int) -> ModelRuntime:
        """Return a prepared target runtime, tapped only if the drafter reads the target's states."""
        head = self.pair.feature_draft if kind.required == FEATURE_DRAFT_HEAD else None
        runtime = self._verifier(self.pair.target, rows, taps=() if head is None else head.config.taps)
        runtime.prepare(capacity, MAX_K + 1)
        return runtime

    def _rule(self, config: RunConfig) -> VerificationRule:
        """Return the run's own rule, whose uniform draws are independent of a learning table of n-grams.

        A table that learned a text depends on the draws that chose it. If the next run repeated those draws,
        its drafts would not be independent of them, and the rejection rule would not be exact.
        """
        table = self.pair.n_gram
        if config.rule is Rule.REJECTION and isinstance(table, LearningTable) and table.texts:
            config = replace(config, seed=random.Random(f"{config.seed}/{table.texts}").getrandbits(32))
        return rule_for(config, self.pair.device)

    def _drafter(self, config: RunConfig, target: ModelRuntime, rule: VerificationRule) -> Drafter:
        kind = KINDS[config.drafter]
        pair = self.pair
        spec = DrafterSpec(
            kind=kind,
            target=target,
            rule=rule,
            draft=pair.draft,
            draft_device=pair.draft_device,
            id_map=pair.id_map,
            feature_draft=pair.feature_draft,
            n_gram=pair.n_gram,
            script=tuple(pair.script_ids(config.script)) if kind.name == SCRIPTED else (),
            wrap_draft=self._wrap_draft,
        )
        return make_drafter(spec)
