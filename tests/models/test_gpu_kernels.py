"""Passes as Triton kernels, interpreted on a CPU: correct, and with bits that do not depend on the rows."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="needs the package triton")

from helpers.gpu_kernels import DEVICE, RECORD, VOCAB, executed, ids, nearby, tiny

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.feature import FeatureDrafter
from specdemo.engine.recorded_round import RecordedRounds
from specdemo.engine.rules import rule_for
from specdemo.engine.speculate import autoregress, speculate
from specdemo.models.batch_invariance import is_batch_invariant
from specdemo.models.feature_draft import FeatureRuntime, feature_draft_for, save_feature_draft
from specdemo.models.gpu.choice import checked_feature_stack, error_of
from specdemo.models.gpu.execution import feature_stack_of, unsupported
from specdemo.models.gpu.feature import GpuFeatureRuntime
from specdemo.models.reduced_draft import save_draft, slice_of_target
from specdemo.models.runtime import ExitRuntime, ModelRuntime
from specdemo.records.trace import Rule, RunConfig

pytestmark = pytest.mark.slow

MODELS = {
    "two layers, group of two heads": {"layers": 2},
    "head width 64, group of three": {
        "hidden_size": 192,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
    },
    "Qwen2 with biases, tied": {"qwen2": True, "tie_word_embeddings": True},
    "head width 80": {"hidden_size": 160, "num_attention_heads": 2, "num_key_value_heads": 2},
}
TAPS = (0,)


def read(model, text, parts, taps=()):
    """Return logits and tapped states of a text that is read in parts of these lengths."""
    runtime, found, at = ModelRuntime(model, taps=taps), [], 0
    runtime.prepare(64)
    for count in parts:
        found.append(runtime.forward(text[at : at + count]))
        at += count
    return torch.cat(found), runtime


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_logits_are_closer_to_fp32_than_those_of_torch_in_bf16(name):
    model, text = tiny(**MODELS[name]), ids(7)
    exact = copy.deepcopy(model).float()(text[None]).logits[0]
    rounded = model(text[None]).logits[0].float()
    found, _ = read(executed(model), text, (4, 3))
    assert (found - exact).square().mean() < (rounded - exact).square().mean()


@torch.inference_mode()
def test_a_row_has_the_same_bits_in_every_pass():
    model, text = executed(tiny(layers=2)), ids(36)
    expected, whole = read(model, text, (12, 12, 12), TAPS)
    cached = model.execution.layers(whole.cache)
    for parts in ((1,) * 20, (13, 13, 10), (2, 3, 4, 5, 6, 7, 8, 1)):
        runtime = ModelRuntime(model, taps=TAPS)
        runtime.prepare(64)
        for held in runtime.execution.layers(runtime.cache):
            for part in held:
                part.fill_(float("nan"))  # no bit depends on memory after the text
        at = 0
        for count in parts:
            assert torch.equal(runtime.forward(text[at : at + count]), expected[at : at + count])
            at += count
        assert torch.equal(runtime.features(0, at), whole.features(0, at))
        for held, first in zip(runtime.execution.layers(runtime.cache), cached, strict=True):
            assert all(
                torch.equal(one[:, :, :at], other[:, :, :at]) for one, other in zip(held, first, strict=True)
            )
    runtime = whole
    for count in range(1, 14):
        runtime.rollback(20)
        assert torch.equal(runtime.forward(text[20 : 20 + count]), expected[20 : 20 + count])


@torch.inference_mode()
def test_a_prompt_of_several_tiles_is_read_like_single_tokens():
    model, text = executed(tiny()), ids(20)
    runtime = ModelRuntime(model)
    runtime.prepare(64)
    runtime.prefill(text[:19])
    expected = read(model, text, (10, 9, 1))[0]
    assert torch.equal(runtime.forward(text[19:]), expected[19:])
    execution = model.execution
    last, _ = execution.run(text, 0, execution.open(32), 2, ())
    assert torch.equal(last, expected[18:])


@torch.inference_mode()
def test_the_first_layers_alone_end_with_the_final_norm():
    model, text = tiny(layers=2), ids(5)
    fused = executed(copy.deepcopy(model))
    model.model.layers = model.model.layers[:1]
    exact = copy.deepcopy(model).float()(text[None], use_cache=False).logits[0]
    first = fused.execution.first(1)
    found, _ = first.run(text, 0, first.open(16), 5, ())
    assert (found - exact).abs().max() < 0.1 * exact.std()
    host = ModelRuntime(fused)
    host.prepare(64)
    exit_runtime = ExitRuntime(host, 1)
    exit_runtime.prepare(64)
    assert torch.equal(exit_runtime.forward(text), found), "not the host's recorded passes of all layers"


def config_of(rule: Rule) -> RunConfig:
    temperature = 0.0 if rule is Rule.GREEDY else 1.0
    return RunConfig(prompt="", rule=rule, temperature=temperature, k=2, max_new_tokens=7, seed=5)


def prepared(model, taps=()) -> ModelRuntime:
    runtime = ModelRuntime(model, taps=taps)
    runtime.prepare(256)
    return runtime


def one_by_one(rule):
    """Let a rule draw each uniform number by itself; a GPU draws others if it draws several at once."""
    drawn = rule.uniforms
    if rule.generator is not None:
        rule.uniforms = lambda count: torch.cat([drawn(1) for _ in range(count)]) if count else drawn(0)
    return rule


@pytest.fixture(scope="module")
def target():
    return tiny(layers=2)


@pytest.mark.parametrize("rule", Rule)
def test_a_recorded_round_is_the_round_that_is_started_step_by_step(rule, target):
    config, found = config_of(rule), []
    verifying, drafting = executed(copy.deepcopy(target)), executed(nearby(target))
    for is_recorded in (False, True):
        chosen, runtime = one_by_one(rule_for(config, DEVICE)), prepared(verifying)
        drafter = DraftModelDrafter(prepared(drafting))
        recorded = RecordedRounds(runtime, chosen, drafter.recorded(), 2) if is_recorded else None
        rounds = speculate(runtime, drafter, [1, 2, 3], config, rule=chosen, recorded=recorded)
        found.append([(one.position, one.drafted, one.emission) for one in rounds])
    assert found[0] == found[1]
    if rule in (Rule.GREEDY, Rule.SHARED_NOISE):
        alone = list(autoregress(prepared(verifying), [1, 2, 3], config))
        written = [token for one in alone for token in one.emitted]
        drafted = [token for one in rounds_of(found[1]) for token in one]
        assert drafted == written


def rounds_of(found):
    for _, drafted, emission in found:
        yield [token.id for token in drafted if token.status.value == "accepted"] + [emission.id]


def test_a_recorded_baseline_writes_the_same_text(target):
    model, config = executed(copy.deepcopy(target)), config_of(Rule.GREEDY)
    plain = [one.emitted for one in autoregress(prepared(model), [1, 2, 3], config)]
    runtime = prepared(model)
    rounds = RecordedRounds(runtime, rule_for(config, DEVICE), None, 0)
    assert [one.emitted for one in autoregress(runtime, [1, 2, 3], config, recorded=rounds)] == plain


def feature_draft(target, id_map):
    torch.manual_seed(3)
    draft = feature_draft_for(target, id_map)
    for weight in draft.own_state().values():
        if weight.is_floating_point():
            weight.data += 0.02 * torch.randn_like(weight)
    return draft.to(DEVICE, torch.bfloat16).eval()


@torch.inference_mode()
def test_draft_steps_in_one_launch_are_single_steps(target):
    """The first step reads two tokens, as after a draft that was accepted as a whole."""
    model, greedy = executed(copy.deepcopy(target)), rule_for(config_of(Rule.GREEDY), DEVICE)
    chained, single = prepared(model), prepared(model)
    drafter = DraftModelDrafter(chained)
    for runtime in (chained, single):
        runtime.prefill(torch.tensor([1, 2], device=DEVICE))
    drafter.place([1, 2, 3, 4], 3)
    draft = drafter.launch(3, greedy, torch.tensor([4], device=DEVICE))
    read_ones = torch.tensor([3, 4], device=DEVICE)
    for logits, token in zip(draft.logits, draft.ids, strict=True):
        scores = single.forward(read_ones)[-1]
        assert torch.equal(scores, logits) and scores.argmax() == token
        read_ones = token[None]
    assert single.length == chained.length


@torch.inference_mode()
def test_steps_of_a_feature_draft_in_one_launch_are_single_steps(target):
    draft = feature_draft(target, torch.arange(VOCAB, device=DEVICE))
    host = prepared(executed(copy.deepcopy(target)), draft.config.taps)
    host.prefill(torch.tensor([1, 2, 3], device=DEVICE))
    chained, single = (GpuFeatureRuntime(draft, feature_stack_of(draft)) for _ in range(2))
    drafter = FeatureDrafter(chained, host)
    for runtime in (chained, single):
        runtime.begin(256)
    drafter.place([1, 2, 3, 4], 3)  # three pairs at once
    found = drafter.launch(3, rule_for(config_of(Rule.GREEDY), DEVICE), torch.tensor([4], device=DEVICE))
    state, scores = single.read(host.features(0, 3), torch.tensor([2, 3, 4], device=DEVICE))
    for logits, token in zip(found.logits, found.ids, strict=True):
        assert torch.equal(scores, logits) and scores.argmax() == token
        state, scores = single.append(state, token[None])
    assert single.length == chained.length + 1


def test_a_feature_draft_whose_kernels_differ_or_cannot_start_runs_in_torch(target, monkeypatch):
    draft = feature_draft(target, torch.arange(VOCAB, device=DEVICE))
    assert checked_feature_stack(draft)[0] is not None
    assert "not in bfloat16" in checked_feature_stack(copy.deepcopy(draft).float())[1]
    wrong = feature_stack_of(draft)
    wrong.weights = wrong.weights._replace(pair_gains=-wrong.weights.pair_gains)
    monkeypatch.setattr("specdemo.models.gpu.execution.feature_stack_of", lambda draft: wrong)
    stack, reason = checked_feature_stack(draft)
    assert stack is None and "differ from torch's" in reason
    monkeypatch.setattr(wrong, "launch", lambda *arguments: 1 / 0)
    assert checked_feature_stack(draft) == (None, "division by zero")


@torch.inference_mode()
def test_a_feature_draft_has_the_logits_of_torch_and_drafts_in_recorded_rounds(target):
    id_map = torch.arange(0, VOCAB, 2, device=DEVICE)
    draft = feature_draft(target, id_map)
    own, torchs = GpuFeatureRuntime(draft, feature_stack_of(draft)), FeatureRuntime(draft)
    prepared_one = GpuFeatureRuntime(draft, feature_stack_of(draft), RECORD)
    prepared_one.prepare(64)
    features = torch.randn(5, draft.fuse.in_features).to(DEVICE, torch.bfloat16)
    for runtime in (own, torchs):
        runtime.begin(64)
    found, expected = (runtime.read(features, ids(5)) for runtime in (own, torchs))
    again = [runtime.append(state, ids(1)) for runtime, (state, _) in ((own, found), (torchs, expected))]
    assert torch.equal(prepared_one.read(features, ids(5))[1], found[1])
    assert prepared_one.cache.recordings and not own.cache.recordings
    for (_, ours), (_, theirs) in ((found, expected), again):
        assert (ours - theirs.float()).abs().max() < 0.1 * theirs.float().std()

    config, rounds = config_of(Rule.GREEDY), []
    verifying = executed(copy.deepcopy(target))
    for is_recorded in (False, True):
        chosen, runtime = rule_for(config, DEVICE), prepared(verifying, draft.config.taps)
        drafter = FeatureDrafter(GpuFeatureRuntime(draft, feature_stack_of(draft)), runtime)
        drafter.begin(256)
        recorded = RecordedRounds(runtime, chosen, drafter.recorded(), 2) if is_recorded else None
        found = speculate(runtime, drafter, [1, 2, 3], config, rule=chosen, recorded=recorded)
        rounds.append([(one.position, one.drafted, one.emission) for one in found])
    assert rounds[0] == rounds[1]


def test_only_models_that_the_kernels_compute_alike_are_accepted(target):
    model = executed(copy.deepcopy(target))
    assert is_batch_invariant(model) and unsupported(model) is None
    assert error_of(model, model.execution) is None
    with torch.inference_mode():
        model.execution.stack.weights.gains[0] *= -1  # the modules keep their own gains
    assert "differ from torch's" in str(error_of(model, model.execution))
    assert "not in bfloat16" in str(unsupported(copy.deepcopy(model).float()))
    odd = executed(tiny(intermediate_size=48))
    odd.config.hidden_size = 40
    assert "not multiples of 16" in str(unsupported(odd))


def test_positions_outside_of_the_cache_are_refused(target):
    execution = executed(copy.deepcopy(target)).execution
    cache = execution.open(16)
    with pytest.raises(IndexError, match="positions 15 to 16 of 16"):
        execution.run(ids(2), 15, cache, 1, ())


def printed_by(script, tmp_path, *arguments):
    """Return what a script prints as JSON. It compiles kernels instead of interpreting them."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", f"helpers.{script}", *map(str, arguments)]
    folder = os.path.dirname(os.path.dirname(__file__))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("capability", [80, 89, 90, 100, 120])
def test_no_kernel_spills_registers(capability, tmp_path):
    kernels = printed_by("compiled_kernels", tmp_path, capability)
    assert len(kernels) >= 24
    assert not {name: found for name, found in kernels.items() if found["spilled"]}


def test_what_is_compiled_ahead_is_what_runs_need(tmp_path):
    target, id_map = tiny(layers=2, max_position_embeddings=64), torch.arange(0, VOCAB, 2)
    draft = slice_of_target(target, [0], id_map)
    target.save_pretrained(tmp_path / "target")
    save_draft(draft, tmp_path / "draft")
    save_feature_draft(feature_draft_for(target, id_map), tmp_path / "feature")
    folders = [tmp_path / name for name in ("target", "draft", "feature")]
    # Nine kernels for each model: the one between two draft steps has two variants.
    assert printed_by("compiled_ahead", tmp_path, *folders) == {"ahead": 27, "with weights": 27}
