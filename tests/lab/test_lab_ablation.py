"""Ablations: a worse or slower draft as requested, with the target's text and distribution."""

from dataclasses import replace

import pytest
import torch
from helpers.samples import acceptance
from helpers.tiny import baseline_rounds, config_for, emitted, nearby, tiny_llama, tiny_pair

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.speculate import speculate
from specdemo.lab.ablated_lanes import NOISE_ROWS, AblatedRuntime, OneByOneRuntime, ablate, ablated_lanes
from specdemo.lab.conditions import NONE, Ablation
from specdemo.lab.experiments import Setting, measure_setting
from specdemo.models.reduced_draft import slice_of_target
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.calibrate import DRAFTED, REPEATS
from specdemo.pairs.lanes import Lanes
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import Round, Rule

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
TEXT = [1, 2, 3]
ABLATIONS = [
    *(Ablation(noise=noise) for noise in (0.0, 0.3, 0.6, 1.0)),
    Ablation(temperature=3.0),
    Ablation(repeats=3),
    Ablation(noise=0.4, temperature=0.5, repeats=2),
]


@pytest.fixture(scope="module")
def models():
    target = tiny_llama(50, seed=1)
    return target, nearby(target, seed=2, noise=0.05)


def rounds_of(models, config, ablation: Ablation | None = None) -> list[Round]:
    target, draft = models
    runtime = ModelRuntime(draft) if ablation is None else AblatedRuntime(ModelRuntime(draft), ablation)
    return list(speculate(ModelRuntime(target), DraftModelDrafter(runtime), TEXT, config))


def untimed(rounds: list[Round]) -> list[Round]:
    return [replace(r, draft_s=0.0, verify_s=0.0, other_s=0.0, prefill_s=0.0) for r in rounds]


@pytest.mark.parametrize("rule", Rule)
def test_no_ablation_is_the_plain_draft_bit_for_bit(models, rule):
    config = config_for(rule, max_new_tokens=40, k=4)
    assert untimed(rounds_of(models, config, NONE)) == untimed(rounds_of(models, config))
    logits = torch.randn(2, 9, dtype=torch.bfloat16)
    assert ablate(logits, Ablation(repeats=5), range(2)) is logits


def test_acceptance_falls_with_noise_to_that_of_an_unrelated_draft_and_with_temperature(models):
    config = config_for(Rule.REJECTION, max_new_tokens=100, k=3)
    by_noise = [acceptance(rounds_of(models, config, Ablation(noise=n))) for n in (0.0, 0.4, 1.0)]
    unrelated = acceptance(rounds_of((models[0], tiny_llama(50, seed=99)), config))
    assert by_noise == sorted(by_noise, reverse=True) and by_noise[0] > by_noise[-1] + 0.2
    assert by_noise[-1] == pytest.approx(unrelated, abs=0.1)
    assert acceptance(rounds_of(models, config, Ablation(temperature=4.0))) < by_noise[0] - 0.1


@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_text_is_the_targets_under_every_ablation(models, rule):
    config = config_for(rule, max_new_tokens=24, k=4)
    alone = emitted(baseline_rounds(models[0], TEXT, config))
    for ablation in ABLATIONS:
        assert emitted(rounds_of(models, config, ablation)) == alone, ablation


def test_noise_is_blended_in_proportion_differs_by_position_and_has_the_spread_of_the_logits():
    logits = torch.randn(NOISE_ROWS + 1, 4000, dtype=torch.bfloat16) * 5 + 3
    rows = range(NOISE_ROWS + 1)
    noise, blend = (ablate(logits, Ablation(noise=share), rows) for share in (1.0, 0.25))
    assert blend.dtype is torch.float32
    torch.testing.assert_close(blend, 0.75 * logits.float() + 0.25 * noise)
    assert noise.std(-1).tolist() == pytest.approx(logits.float().std(-1).tolist(), rel=0.1)
    directions = noise / noise.norm(dim=-1, keepdim=True)
    same = (directions @ directions.T > 0.99).nonzero().tolist()
    assert same == sorted([*([i, i] for i in rows), [0, NOISE_ROWS], [NOISE_ROWS, 0]])


@pytest.mark.parametrize("head", ["whole", "reduced"])
@pytest.mark.parametrize("drafter", ["draft-model", "combined"])
def test_ablated_pair_writes_the_targets_text(head, drafter):
    pair = tiny_pair()
    if head == "reduced":
        id_map = torch.arange(0, 258, 2)
        pair = replace(pair, draft=slice_of_target(pair.target, [0, 1], id_map), id_map=id_map)
    config = parse_config({"prompt": "abab", "mode": "raw", "drafter": drafter, "max_new_tokens": 24, "k": 4})
    plain = measure_setting(pair, Setting(0, "", (config,)))
    noisy = measure_setting(pair, Setting(1, "", (config,), Ablation(noise=1.0)))
    assert plain.identical and noisy.identical
    assert noisy.alpha < plain.alpha


def test_one_by_one_target_runs_a_pass_per_token_with_the_same_logits(monkeypatch):
    target, ids = tiny_llama(50, seed=1), torch.tensor([4, 5, 6, 7])
    passes = passes_of(monkeypatch, lambda runtime, ids: len(ids))
    logits = []
    for runtime in (ModelRuntime(target), OneByOneRuntime(target)):
        runtime.begin(256)
        runtime.prefill(torch.tensor(TEXT))
        logits.append(runtime.forward(ids))
        assert runtime.length == len(TEXT) + len(ids)
    torch.testing.assert_close(*logits)
    assert passes == [4, 1, 1, 1, 1]


def passes_of(monkeypatch, fact):
    """Return a list that gets a fact about every later pass."""
    passes, forward = [], ModelRuntime.forward

    def counted(runtime, ids):
        passes.append(fact(runtime, ids))
        return forward(runtime, ids)

    monkeypatch.setattr(ModelRuntime, "forward", counted)
    return passes


def test_one_by_one_pair_keeps_its_draft_and_its_text():
    pair = tiny_pair()
    slow = ablated_lanes(pair, Ablation(one_by_one=True))
    config = parse_config({"prompt": "x", "max_new_tokens": 16, "k": 3})
    ids = pair.prompt_ids(config)
    assert untimed(list(slow.speculative(config, ids))) == untimed(list(Lanes(pair).speculative(config, ids)))
    costs, plain = slow.calibrate(config), Lanes(pair).calibrate(config)
    assert costs.v == tuple(range(1, len(plain.v) + 1))
    assert (costs.step_s, costs.row_floor) == (plain.step_s, plain.row_floor)
    assert not Ablation(one_by_one=True).of_draft and Ablation(repeats=2, one_by_one=True).of_draft


def test_repeated_draft_is_measured_again_and_its_target_is_not(monkeypatch):
    pair = tiny_pair()
    config = parse_config({"prompt": "x", "max_new_tokens": 8})
    Lanes(pair).calibrate(config)
    passes = passes_of(monkeypatch, lambda runtime, ids: runtime.model is pair.draft)
    dear = ablated_lanes(pair, Ablation(repeats=8)).calibrate(config)
    drafts, others = divmod(sum(passes), 8 * DRAFTED)
    assert drafts > REPEATS and others == 0, "the draft's passes are measured as they will be made"
    assert len(passes) - sum(passes) == drafts, "the target's only follow the text"
    plain = Lanes(pair).calibrate(config)
    assert replace(dear, c=plain.c, scatter=plain.scatter) == plain, "scatter is that of its own passes"
    assert ablated_lanes(pair, NONE).calibrate(config) is plain, "measured once"


def test_ablations_out_of_bounds_are_refused():
    wrong = {"noise": (-0.1, 1.1, float("nan")), "temperature": (0.0,), "repeats": (0, 17)}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(UserError, match="must be"):
                Ablation(**{name: value})
