"""Distillation of a tiny target: labels, loss, batches, and resumed runs."""

import json
from dataclasses import replace

import pytest
import torch
from helpers.tiny import config_for
from helpers.tiny_training import KilledError, killed_at, random_prompts

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.feature import FeatureDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.attention import ATTENTION
from specdemo.models.feature_draft import FeatureRuntime, feature_draft_for
from specdemo.models.reduced_draft import slice_of_target
from specdemo.models.runtime import ModelRuntime
from specdemo.training import distil as distil_module
from specdemo.training.distil import (
    Recipe,
    batch_loss,
    coverage,
    distil,
    frequent_ids,
    head_columns,
    head_labels,
    length_batches,
    measure,
    train_step,
    trainable_parameters,
)
from specdemo.training.labelled_text import LabelledSequence
from specdemo.training.students import FeatureStudent, ModelStudent

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
RECIPE = Recipe(steps=80, batch_tokens=512, learning_rate=1e-2, warmup_steps=10, held_out=0.2)
LONG = replace(RECIPE, steps=250)


def model_student(target, text):
    ids = frequent_ids(text, 40)
    assert 0.5 < coverage(text, ids) <= 1.0
    torch.manual_seed(0)
    return ModelStudent(slice_of_target(target, [1], ids))


def feature_student(target, text):
    torch.manual_seed(0)
    return FeatureStudent(feature_draft_for(target, frequent_ids(text, 40)), steps=2)


def test_tokens_outside_the_head_have_no_share_in_the_labels(target, text):
    student = model_student(target, text)
    columns, p = head_labels(text[:8], head_columns(student))
    ids = torch.cat([item.top_ids for item in text[:8]]).long()
    known = torch.isin(ids, student.id_map)
    assert known.any() and not known.all()
    assert torch.equal(student.id_map[columns[known]], ids[known])
    assert (columns[~known] == -1).all() and (p[~known] == 0).all() and (p[known] > 0).any()


def alpha(make_lane):
    config = config_for(k=3, max_new_tokens=24)
    rounds = [r for prompt in random_prompts(12, seed=9) for r in make_lane(prompt, config)]
    return sum(r.accepted for r in rounds) / sum(r.compared for r in rounds)


def test_training_raises_agreement_overlap_and_acceptance_rate_of_a_draft_model(target, text, tmp_path):
    student = model_student(target, text)
    draft = student.module

    def lane(prompt, config):
        draft.model.set_attn_implementation(ATTENTION)
        drafter = DraftModelDrafter(ModelRuntime(draft, id_map=draft.id_map))
        return speculate(ModelRuntime(target), drafter, prompt, config)

    before, quality = alpha(lane), measure(student, text[:32])
    after = distil(student, text, LONG, tmp_path)
    assert after.agreement[0] > 3.0 * quality.agreement[0]
    assert after.overlap[0] > 2.0 * quality.overlap[0]
    assert alpha(lane) > max(0.2, 3.0 * before)


def test_training_raises_the_acceptance_rate_of_a_feature_draft(target, text, tmp_path):
    student = feature_student(target, text)

    def lane(prompt, config):
        host = ModelRuntime(target, taps=student.module.config.taps)
        return speculate(host, FeatureDrafter(FeatureRuntime(student.module), host), prompt, config)

    before = alpha(lane)
    quality = distil(student, text, LONG, tmp_path)
    assert len(quality.agreement) == 2, "one figure per unrolled step"
    assert alpha(lane) > max(0.2, 1.8 * before)


def test_texts_that_no_step_reaches_change_nothing(target, text):
    student, first = feature_student(target, text), text[0]
    short = LabelledSequence(first.ids[:2], 0, first.top_ids[:1], first.top_probs[:1], first.states[:1])
    weights, columns = trainable_parameters(student), head_columns(student)
    before = [weight.clone() for weight in weights]
    assert train_step(student, [short], columns, "bf16", torch.optim.SGD(weights, lr=1.0)) == 0.0
    assert all(map(torch.equal, before, weights))
    long, both = (batch_loss(student, [*more, first], columns, "bf16").item() for more in ([], [short]))
    assert both == pytest.approx(long, rel=1e-4)


@pytest.mark.parametrize("make", [model_student, feature_student])
def test_a_killed_distillation_resumes_to_the_same_weights(target, text, tmp_path, make, monkeypatch):
    recipe = replace(RECIPE, steps=40)
    monkeypatch.setattr(distil_module, "CHECKPOINT_STEPS", 10)
    whole, killed, resumed = (make(target, text) for _ in range(3))
    distil(whole, text[:150], recipe, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(distil_module, "batch_loss", killed_at(27, distil_module.batch_loss))
        distil(killed, text[:150], recipe, tmp_path / "halves")
    with (tmp_path / "halves" / "log.jsonl").open("a") as log:
        log.write('{"step": 2')  # cut off by the kill
    distil(resumed, text[:150], recipe, tmp_path / "halves")
    logged = [json.loads(line) for line in (tmp_path / "halves" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in logged if "agreement" in entry] == [10, 20, 30, 40, 40]
    for name, tensor in whole.own_state().items():
        assert torch.equal(tensor, resumed.own_state()[name]), name


def test_batches_hold_every_sequence_once_within_the_budget():
    lengths = [5, 9, 30, 3, 12, 7, 22]
    batches = list(length_batches(lengths, 40, torch.Generator().manual_seed(0)))
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 40 for batch in batches)
