"""Ablations: a worse or slower draft as requested, with the target's text and distribution."""

from dataclasses import replace

import pytest
import torch
from helpers.samples import FAILURE, acceptance, expected, p_value, sample, tables
from helpers.tiny import TableRuntime, baseline_rounds, config_for, emitted, nearby, tiny_llama, tiny_pair

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


@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_text_is_the_targets_under_every_ablation(models, ablation, rule):
    config = config_for(rule, max_new_tokens=24, k=4)
    rounds = rounds_of(models, config, ablation)
    assert emitted(rounds) == emitted(baseline_rounds(models[0], TEXT, config))


@pytest.mark.slow
@pytest.mark.parametrize("ablation", [Ablation(noise=0.5, repeats=2), Ablation(temperature=3.0)])
def test_output_has_the_targets_distribution_under_an_ablation(ablation):
    config = config_for(Rule.REJECTION, k=3, max_new_tokens=4, temperature=0.9)
    drafter = DraftModelDrafter(AblatedRuntime(TableRuntime(tables()[1]), ablation))
    counts, rounds = sample(config, drafter=drafter)
    assert 0.2 < acceptance(rounds) < 0.95
    assert p_value(counts, expected(config)) > FAILURE


def test_noise_is_blended_in_proportion():
    logits = torch.randn(2, 40, dtype=torch.bfloat16)
    noise = ablate(logits, Ablation(noise=1.0), range(2))
    blend = ablate(logits, Ablation(noise=0.25), range(2))
    assert blend.dtype is torch.float32
    torch.testing.assert_close(blend, 0.75 * logits.float() + 0.25 * noise)


def test_noise_differs_by_position_and_has_the_spread_of_the_logits():
    logits = torch.randn(NOISE_ROWS + 1, 4000) * 5 + 3
    noise = ablate(logits, Ablation(noise=1.0), range(NOISE_ROWS + 1))
    assert noise.std(-1).tolist() == pytest.approx(logits.std(-1).tolist(), rel=0.1)
    directions = noise / noise.norm(dim=-1, keepdim=True)
    same = directions @ directions.T > 0.99
    assert same.nonzero().tolist() == sorted(
        [[i, i] for i in range(NOISE_ROWS + 1)] + [[0, NOISE_ROWS], [NOISE_ROWS, 0]]
    )


@pytest.mark.parametrize("head", ["whole", "reduced"])
@pytest.mark.parametrize("drafter", ["draft-model", "lookup+model"])
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
    passes, single = [], ModelRuntime.forward

    def counted(self, ids):
        passes.append(len(ids))
        return single(self, ids)

    monkeypatch.setattr(ModelRuntime, "forward", counted)
    logits = []
    for runtime in (ModelRuntime(target), OneByOneRuntime(target)):
        runtime.begin(256)
        runtime.prefill(torch.tensor(TEXT))
        logits.append(runtime.forward(ids))
        assert runtime.length == len(TEXT) + len(ids)
    torch.testing.assert_close(*logits)
    assert passes == [4, 1, 1, 1, 1]


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
    passes = []
    forward = ModelRuntime.forward

    def counted(runtime, ids):
        passes.append(runtime.model is pair.draft)
        return forward(runtime, ids)

    Lanes(pair).calibrate(config)
    monkeypatch.setattr(ModelRuntime, "forward", counted)
    dear = ablated_lanes(pair, Ablation(repeats=8)).calibrate(config)
    drafts, others = divmod(sum(passes), 8 * DRAFTED)
    assert drafts > REPEATS and others == 0, "the draft's passes are measured as they will be made"
    assert len(passes) - sum(passes) == drafts, "the target's only follow the text"
    plain = Lanes(pair).calibrate(config)
    assert replace(dear, c=plain.c, scatter=plain.scatter) == plain, "scatter is that of its own passes"
    assert ablated_lanes(pair, NONE).calibrate(config) is plain, "measured once"


@pytest.mark.parametrize(
    "values",
    [
        {"noise": -0.1},
        {"noise": 1.1},
        {"noise": float("nan")},
        {"temperature": 0.0},
        {"repeats": 0},
        {"repeats": 17},
    ],
)
def test_ablations_out_of_bounds_are_refused(values):
    with pytest.raises(UserError, match="must be"):
        Ablation(**values)
