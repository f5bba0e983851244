"""The device of each model; pairs on several devices, in parts, or moved after loading."""

import copy
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.labelled import Labels
from helpers.on_disk import run, save
from helpers.tiny import (
    baseline_rounds,
    byte_tokenizer,
    config_for,
    emitted,
    nearby,
    tiny_llama,
    tiny_pair,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from specdemo.drafters.factory import DrafterSpec, make_drafter
from specdemo.drafters.other_device import DistantRule
from specdemo.engine.draft_length import FixedLength
from specdemo.engine.rules import RejectionRule, rule_for
from specdemo.models.attention import ATTENTION
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.draft_files import count_parameters
from specdemo.models.execution import PlainExecution
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs import load as models
from specdemo.pairs import model_loader
from specdemo.pairs.compatible import require_rollback
from specdemo.pairs.hardware import Placement, free_ram, plan
from specdemo.pairs.hub import Files
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.model_loader import Loader
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import Sources
from specdemo.records.drafter_kinds import EARLY_EXIT, KINDS
from specdemo.records.limits import UserError
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Rule

pytestmark = [pytest.mark.usefixtures("one_thread", "few_measurements"), pytest.mark.slow]

GPUS = ("cuda:0", "cuda:1", "cuda:2")
ON_CPU, ON_GPU = (Loader("fp32", Placement(name, name), None) for name in ("cpu", "cuda"))


def refuse():
    raise AssertionError("the model is loaded again")


@pytest.mark.parametrize(
    ("free", "target", "draft", "expected"),
    [
        ((10,), 8, 4, Placement("cuda:0", "cuda:0")),  # one device takes both; whether they fit is seen then
        ((10, 10), 8, 4, Placement("cuda:0", "cuda:1")),
        ((10, 20), 8, 4, Placement("cuda:1", "cuda:0")),
        ((20, 3), 8, 4, Placement("cuda:0", "cuda:0")),
        ((20, 3, 5), 8, 4, Placement("cuda:0", "cuda:2")),
        ((10, 10), 14, 2, Placement("cuda:0", "cuda:0", {"cuda:0": 8, "cuda:1": 10})),
        ((10, 12), 14, 2, Placement("cuda:0", "cuda:1", {"cuda:0": 10, "cuda:1": 10})),
        # Each fits on some device, but both do not fit at once.
        ((10, 3), 8, 4, Placement("cuda:0", "cuda:0", {"cuda:0": 6, "cuda:1": 3})),
    ],
)
def test_models_go_to_devices_with_enough_memory(free, target, draft, expected):
    assert plan(dict(zip(GPUS, free, strict=False)), target, draft) == expected


@pytest.mark.parametrize("target", [17, 40])
def test_models_that_are_too_large_for_the_gpus_are_refused(target):
    with pytest.raises(UserError, match=r"need \d+ GB and the 2 devices here have 20 GB free; choose"):
        plan({"cuda:0": 10 * 10**9, "cuda:1": 10 * 10**9}, target * 10**9, 4 * 10**9)


@given(
    free=st.lists(st.integers(0, 50), min_size=2, max_size=3),
    target=st.integers(1, 60),
    draft=st.integers(0, 60),
)
def test_a_plan_never_puts_more_on_a_device_than_it_holds(free, target, draft):
    room = dict(zip(GPUS, free, strict=False))
    try:
        found = plan(room, target, draft)
    except UserError:
        assert target + draft > sum(free) or draft > max(free)
        return
    room[found.draft] -= draft
    if found.shards is None:
        room[found.target] -= target
    else:
        assert sum(found.shards.values()) >= target
        room = {device: left - found.shards[device] for device, left in room.items()}
    assert min(room.values()) >= 0


MEMINFO = "MemTotal:  16000 kB\nMemAvailable:   8000 kB\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8_192_000),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "1000\n",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/memory.current": "4000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 7\ninactive_file 300\n",
            },
            1300,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/x\n3:cpu:/docker/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "2500",
            },
            0,
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "900000000000",
                "sys/fs/cgroup/memory.current": "1",
            },
            8_192_000,
        ),
    ],
)
def test_free_ram_respects_the_containers_limits(tmp_path, files, expected):
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_ram(tmp_path) == expected


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of a small Llama as target and of a draft near it."""
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32)
    return [
        save(model, tokenizer, tmp_path_factory.mktemp(name))
        for name, model in (("target", target), ("draft", nearby(target, 1, 0.03)))
    ]


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
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation=ATTENTION,
        device_map={
            "model.embed_tokens": "cpu",
            "model.rotary_emb": "cpu",
            "model.layers.0": "cpu",
            "model.layers.1": "disk",
            "model.norm": "cpu",
            "lm_head": "cpu",
        },
        offload_folder=str(scratch),
    )
    return model.eval()


def pair_of(target: nn.Module, draft: nn.Module) -> Pair:
    tokenizer = byte_tokenizer()
    return Pair("in parts", "whole", target, draft, None, tokenizer, "fp32", PieceTable(tokenizer))


@pytest.mark.parametrize("drafter", ["draft-model", "early-exit", "lookup+model"])
def test_a_target_in_parts_writes_the_same_as_in_one_piece(folders, tmp_path, drafter):
    target = in_parts(folders[0], tmp_path)
    assert any(weight.is_meta for weight in target.parameters()), "nothing was left out"
    require_rollback("target", "in parts", target)
    assert not can_fuse(target) and ON_CPU.executable(target, False, None, refuse) is target
    whole = load_sources(Sources(*folders, device="cpu", precision="fp32"))
    assert isinstance(whole.target, CompiledLlama)
    expected = run(whole, drafter=drafter, max_new_tokens=24)[0]
    record, end = run(pair_of(target, whole.draft), drafter=drafter, max_new_tokens=24)
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
    passes.clear()
    early = make_drafter(DrafterSpec(KINDS[EARLY_EXIT], host, rule_for(config_for(), host.device)))
    early.begin(256)
    length = FixedLength(1)
    length.start(1)
    early.propose([1, 2, 3], length, rule_for(config_for(), host.device))
    assert passes == [0]


def test_a_target_that_is_partly_in_ram_is_refused(folders, monkeypatch):
    whole = AutoModelForCausalLM.from_pretrained(folders[0])
    whole.hf_device_map = {"model": 0, "lm_head": "cpu"}
    monkeypatch.setattr(model_loader, "load_causal_lm", lambda *_, **_options: whole)
    loader = Loader("fp32", Placement("cuda:0", "cuda:1", {"cuda:0": 5, "cuda:1": 6}), None)
    with pytest.raises(UserError, match="huge does not fit on the GPUs here"):
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


@pytest.mark.parametrize("drafter", ["draft-model", "lookup+model", "early-exit", "prompt-lookup"])
@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.SHARED_NOISE])
def test_a_draft_on_another_device_drafts_the_same(rule, drafter):
    pair = tiny_pair()
    settings = {"drafter": drafter, "rule": rule, "temperature": 0 if rule is Rule.GREEDY else 0.8}
    here, there = (run(one, max_new_tokens=24, **settings)[0] for one in (pair, apart(pair)))
    assert here.lanes["speculative"].ids == there.lanes["speculative"].ids
    drafted = [
        [[token.id for token in round_.drafted] for round_ in record.lanes["speculative"].rounds]
        for record in (here, there)
    ]
    assert drafted[0] == drafted[1]


class CountedRule(RejectionRule):
    """Keeps the random numbers that it returns."""

    def uniforms(self, count):
        self.given = [*getattr(self, "given", []), super().uniforms(count)]
        return self.given[-1]


def test_a_draft_on_another_device_uses_the_runs_own_random_numbers():
    rule = CountedRule(config_for(Rule.REJECTION), torch.device("cpu"))
    distant = DistantRule(rule, torch.device("cpu"))
    distant.start()
    taken = torch.cat([distant.uniforms(1), distant.uniforms(2), distant.uniforms(1)])
    assert len(rule.given) == 2 and torch.equal(taken, rule.given[1][:4])
    distant.start()
    assert not torch.equal(distant.uniforms(4), taken)


# Loaded on one device, run on another


def loose_tensors(module: nn.Module, device: str) -> list[str]:
    """Return the names of a module's tensors, attributes included, that are not on ``device``."""
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, part in module.named_modules():
        named += [(f"{name}.{key}", value) for key, value in vars(part).items() if torch.is_tensor(value)]
    return [name for name, tensor in named if tensor.device.type != device]


@pytest.mark.parametrize("which", ["llama", "gpt2", "built-in"])
def test_a_pair_that_moves_leaves_no_tensor_on_the_cpu(folders, which, tmp_path):
    if which == "built-in":
        named = ()
    elif which == "llama":
        named = folders
    else:
        unfused = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=258))
        named = (folders[0], save(unfused, byte_tokenizer(), tmp_path))
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
