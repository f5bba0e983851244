"""Pairs on several devices, in parts, or moved after loading."""

import copy
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.labelled import Labels
from helpers.on_disk import run, save, save_pair
from helpers.tiny import (
    PLANTED_V,
    baseline_rounds,
    byte_tokenizer,
    config_for,
    emitted,
    tiny_llama,
    tiny_pair,
)
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from specdemo.drafters.other_device import DistantRule
from specdemo.engine.rules import RejectionRule
from specdemo.lab.throughput import measure_batches
from specdemo.models.attention import ATTENTION
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.execution import PlainExecution
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.runtime import ExitRuntime, ModelRuntime
from specdemo.models.weight_files import count_parameters
from specdemo.pairs import load as models
from specdemo.pairs import model_loader
from specdemo.pairs.calibrate import PassCosts
from specdemo.pairs.compatible import require_rollback
from specdemo.pairs.hardware import Placement
from specdemo.pairs.hub import Files
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.model_loader import Loader
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import Calibration, Rule
from specdemo.service.jobs import JOB_SPECS, checked, perform

pytestmark = [pytest.mark.usefixtures("one_thread", "few_measurements"), pytest.mark.slow]

ON_CPU, ON_GPU = (Loader("fp32", Placement(name, name), None) for name in ("cpu", "cuda"))


def refuse():
    raise AssertionError("the model is loaded again")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_pair(tmp_path_factory, noise=0.03)


def test_several_gpus_are_planned_for_and_an_explicit_device_is_not(folders, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(models, "free_memory", lambda device: 10**12)
    planned = []

    def record(free, *needs):
        planned.append((dict(free), needs))
        return Placement("cpu", "cpu")

    monkeypatch.setattr(models, "plan", record)
    assemble_pair(Sources(*folders, device="cpu", precision="fp32"))
    assert planned == []
    assemble_pair(Sources(*folders, precision="fp32"))
    ((free, (target, draft)),) = planned
    assert free == {"cuda:0": 10**12, "cuda:1": 10**12}
    weights = count_parameters(Path(folders[0]))
    assert weights == sum(p.numel() for p in tiny_llama(258, 0).parameters())
    assert target == draft > 4 * weights


# A target in parts


def in_parts(folder: str, scratch) -> nn.Module:
    """Return the target with a layer on disk, which accelerate loads in every pass."""
    parts = ("model.embed_tokens", "model.rotary_emb", "model.layers.0", "model.norm", "lm_head")
    return AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation=ATTENTION,
        device_map=dict.fromkeys(parts, "cpu") | {"model.layers.1": "disk"},
        offload_folder=str(scratch),
    ).eval()


def test_a_target_in_parts_writes_the_same_as_in_one_piece(folders, tmp_path):
    target = in_parts(folders[0], tmp_path)
    assert any(weight.is_meta for weight in target.parameters()), "nothing was left out"
    require_rollback("target", "in parts", target)
    assert not can_fuse(target) and ON_CPU.executable(target, False, None, refuse) is target
    whole = load_sources(Sources(*folders, device="cpu", precision="fp32"))
    assert isinstance(whole.target, CompiledLlama)
    divided = replace(whole, target=target, costs=PassCosts())
    for drafter in ("early-exit", "combined"):
        expected, _ = run(whole, drafter=drafter)
        record, end = run(divided, drafter=drafter)
        assert end["badge"]["kind"] == "same"
        assert record.lanes["speculative"].ids == expected.lanes["speculative"].ids


def test_early_exit_of_a_target_in_parts_runs_only_the_first_layers(folders, tmp_path):
    target = in_parts(folders[0], tmp_path)
    passes = []
    layers = target.model.layers
    for index, layer in enumerate(layers):
        layer.register_forward_hook(lambda *_, index=index: passes.append(index))
    host = ModelRuntime(target)
    host.begin(256)
    host.prefill(torch.tensor([1, 2]))
    early = ExitRuntime(host, 1)
    early.begin(256)
    assert set(passes[len(layers) :]) == {0}, "also in the pass that tests whether they run alone"
    passes.clear()
    early.forward(torch.tensor([3]))
    assert passes == [0]


def test_a_target_that_is_partly_in_ram_is_refused(folders, monkeypatch):
    whole = AutoModelForCausalLM.from_pretrained(folders[0])
    whole.hf_device_map = {"model": 0, "lm_head": "cpu"}
    monkeypatch.setattr(model_loader, "load_causal_lm", lambda *_, **_options: whole)
    loader = Loader("fp32", Placement("cuda:0", "cuda:1", {"cuda:0": 5, "cuda:1": 6}), None)
    with pytest.raises(UserError, match="huge does not fit into the memory of the GPUs"):
        loader.model("target", Files("huge", Path(folders[0]), None), lambda *_: None)


class EndsElsewhere(nn.Module):
    """A model whose last part is on another device than its first."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, input_ids, **_options):
        return SimpleNamespace(logits=torch.zeros(1, input_ids.shape[1], 5, device="xpu:1"))


def test_logits_arrive_on_the_device_of_the_ids():
    model = EndsElsewhere(tiny_llama(5, 0).config)
    with Labels():
        execution = PlainExecution(model)
        ids = torch.tensor([1, 2], device="xpu:0")
        logits, _ = execution.run(ids, 0, execution.open(256), 2, ())
        assert logits.device == ids.device == torch.device("xpu:0")


# A draft on another device


def apart(pair: Pair) -> Pair:
    """Return the pair with a draft that counts as being on another device."""

    class Apart(Pair):
        @property
        def draft_device(self) -> torch.device:
            return torch.device("cpu", 0)

    return Apart(**{one.name: getattr(pair, one.name) for one in fields(Pair)})


@pytest.mark.parametrize(("rule", "drafter"), [(Rule.GREEDY, "combined"), (Rule.SHARED_NOISE, "draft-model")])
def test_a_draft_on_another_device_drafts_the_same(rule, drafter):
    pair = tiny_pair()
    settings = {"drafter": drafter, "rule": rule, "temperature": 0 if rule is Rule.GREEDY else 0.8}
    here, there = (run(one, max_new_tokens=24, **settings)[0] for one in (pair, apart(pair)))
    drafted, elsewhere = (
        [([token.id for token in one.drafted], one.emitted) for one in record.lanes["speculative"].rounds]
        for record in (here, there)
    )
    assert drafted == elsewhere


def test_a_draft_on_another_device_uses_the_runs_own_random_numbers(monkeypatch):
    rule, given = RejectionRule(config_for(Rule.REJECTION), torch.device("cpu")), []
    drawn = rule.uniforms
    monkeypatch.setattr(rule, "uniforms", lambda count: given.append(drawn(count)) or given[-1])
    distant = DistantRule(rule, torch.device("cpu"))
    taken = torch.cat([distant.uniforms(1), distant.uniforms(2), distant.uniforms(1)])
    assert len(given) == 1 and torch.equal(taken, given[0][:4])
    assert not torch.equal(DistantRule(rule, torch.device("cpu")).uniforms(4), taken)


# Loaded on one device, run on another


def loose_tensors(module: nn.Module, device: str) -> list[str]:
    """Return the names of a module's tensors, attributes included, that are not on ``device``."""
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, part in module.named_modules():
        named += [(f"{name}.{key}", value) for key, value in vars(part).items() if torch.is_tensor(value)]
    return [name for name, tensor in named if tensor.device.type != device]


@pytest.mark.parametrize("which", ["with a draft that is not fused", "built-in"])
def test_a_pair_that_moves_leaves_no_tensor_on_the_cpu(folders, which, tmp_path):
    unfused = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=258))
    named = () if which == "built-in" else (folders[0], save(unfused, byte_tokenizer(), tmp_path))
    pair = assemble_pair(Sources(*named, device="meta"), checked_on="cpu")
    assert pair.costs.known == {}
    for model in (pair.target, pair.draft, pair.feature_draft):
        assert model is None or loose_tensors(model, "meta") == []
    assert pair.id_map is None or pair.id_map.is_meta
    assert pair.device.type == pair.draft_device.type == "meta"


def test_a_model_made_for_another_device_computes_the_same_and_stays_tied(folders):
    plain = AutoModelForCausalLM.from_pretrained(folders[0], attn_implementation=ATTENTION).eval()
    plain.config.tie_word_embeddings = True
    plain.lm_head.weight = plain.model.embed_tokens.weight
    expected = emitted(baseline_rounds(plain, [5, 9, 17], config_for(max_new_tokens=24)))
    made = ON_GPU.executable(copy.deepcopy(plain), False, None, refuse)
    assert isinstance(made, FusedLlama) and made.head.weight is made.embedding.weight
    assert type(made.layers[0].qkv) is nn.Linear
    for moved in (made, made.to(torch.float64)):
        assert emitted(baseline_rounds(moved, [5, 9, 17], config_for(max_new_tokens=24))) == expected


# Every kind of job on two devices

HERE, THERE = torch.device("xpu:0"), torch.device("xpu:1")
RUN = {"prompt": "abcabcab", "mode": "raw", "max_new_tokens": 8, "draft_alone": True}
SAMPLED = {"temperature": 0.8, "rule": "rejection"}
DISTRIBUTION = {"proof": "distribution", "prompt": "abc", "draws": 20}
JOBS = [
    ("run", RUN),
    ("run", RUN | SAMPLED | {"k": "auto"}),
    ("run", RUN | SAMPLED | {"rule": "shared-noise", "drafter": "combined"}),
    ("run", RUN | {"drafter": "early-exit"}),
    ("run", RUN | {"drafter": "prompt-lookup"}),
    ("play", {"text": "abc", "draft": "de"}),
    ("class", {"text": "abc", "drafts": ["de", "f"]}),
    ("prove", DISTRIBUTION),
    ("prove", DISTRIBUTION | {"rule": "no-residual"}),
    ("prove", {"proof": "shared-noise", "prompts": 1}),
    ("calibrate", {}),
    *(
        ("measure", {"experiment": name, "max_new_tokens": 4})
        for name in ("aligned-draft", "parallel-verification", "different-distribution", "overhead")
    ),
    ("quiz", {"question": 1}),
]


def placed(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model on a device that need not exist; call it while ``Labels`` are open."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(weight.data.to(device), requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(device)
    return model


@pytest.fixture
def two_devices(monkeypatch):
    """A pair on two devices, whose costs are given."""
    monkeypatch.setattr(torch, "Generator", lambda *_, made=torch.Generator: made())
    whole, id_map = tiny_pair(), torch.arange(254)
    whole.draft.lm_head = nn.Linear(16, len(id_map), bias=False)
    whole.draft.lm_head.weight.data = whole.target.lm_head.weight.data[: len(id_map)]
    target, draft = FusedLlama(whole.target), FusedLlama(whole.draft)
    costs = Calibration(step_s=1e-3, c=0.1, v=PLANTED_V, row_floor=1)
    monkeypatch.setattr(Lanes, "calibrate", lambda *_: costs)
    monkeypatch.setattr(PassCosts, "of_target", lambda *_: costs)
    with Labels():
        yield replace(whole, target=placed(target, HERE), draft=placed(draft, THERE), id_map=id_map.to(THERE))


@pytest.mark.parametrize(("kind", "request_"), JOBS, ids=lambda value: str(value)[:60])
def test_target_and_draft_may_be_on_two_devices(two_devices, kind, request_):
    assert {kind for kind, _ in JOBS} == set(JOB_SPECS), "every kind of job is tried"
    assert (two_devices.device, two_devices.draft_device) == (HERE, THERE)
    events = list(perform(two_devices, checked(kind, request_), lambda: False))
    assert events and all(event["type"] != "error" for event in events)


def test_passes_over_batches_are_measured_on_each_models_device(two_devices):
    [point] = measure_batches(two_devices, 2, 0.5, rows=(2,))
    assert point.rows == 2 and point.c > 0
