"""Other libraries beside ours: fair models for them, honest rows, and a page that stands alone."""

import json
import sys

import pytest
import torch
from helpers.tiny import byte_tokenizer, emitted, nearby, tiny_llama
from transformers import AutoModelForCausalLM

from specdemo.bench.peer import Peer
from specdemo.bench.peer_bench import ALONE, OURS, PeerBench, PeerSettings
from specdemo.bench.peers import available_peers, full_vocabulary, peer_models
from specdemo.bench.prompts import Prompt
from specdemo.models.draft_files import place_like
from specdemo.models.reduced_draft import load_draft, save_draft, slice_of_target
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")

TOKENS = 12
SETTINGS = PeerSettings(["draft-model", "prompt-lookup"], 3, TOKENS)
PROMPTS = [Prompt(f"p{i}", "a", "raw", f"text {i}") for i in range(3)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32, spread=0.4)
    paths = []
    for name, model in (("target", target), ("draft", nearby(target, 1, 0.05))):
        paths.append(str(tmp_path_factory.mktemp(name)))
        model.save_pretrained(paths[-1])
        tokenizer.save_pretrained(paths[-1])
    return paths


@pytest.fixture(scope="module")
def pair(folders):
    return load_sources(Sources(*folders, device="cpu", precision="fp32"))


def written(pair, prompt):
    (config, _) = SETTINGS.configs(prompt)
    rounds = list(Lanes(pair).baseline(config, pair.prompt_ids(config)))
    assert rounds[-1].finish in (Finish.LENGTH, Finish.EOS)
    return emitted(rounds)


@pytest.mark.slow
def test_transformers_writes_our_baselines_text_in_all_its_ways(pair, folders):
    with peer_models(pair, *folders, gguf=None) as models:
        said: list[str] = []
        peers = [p for p in available_peers(models, said.append) if p.package.startswith("transformers")]
        assert [peer.name for peer in peers] == ["generate", "assisted generation", "prompt lookup"]
        assert [peer.alone for peer in peers] == [True, False, False]
        assert any(line.startswith("llama_cpp is left out") for line in said)
        for prompt in PROMPTS:
            ids = pair.tokenizer(prompt.prompt)["input_ids"]
            assert all(peer.generate(ids, TOKENS) == written(pair, prompt) for peer in peers)


@pytest.mark.slow
def test_a_library_that_is_missing_or_broken_is_named_and_left_out(pair, folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "economize", None)
    monkeypatch.setattr("specdemo.bench.peers._flashspec", lambda models: 1 / 0)
    said: list[str] = []
    with peer_models(pair, *folders, gguf=None) as models:
        found = available_peers(models, said.append)
    assert {peer.package.split()[0] for peer in found} == {"transformers"}
    assert any(line.startswith("economize is left out") for line in said)
    assert any("ZeroDivisionError" in line for line in said)


def test_a_reduced_draft_with_a_whole_vocabulary_says_the_same(folders, tmp_path):
    target = AutoModelForCausalLM.from_pretrained(folders[0], dtype=torch.float32).eval()
    id_map = torch.arange(0, 250, 5)
    save_draft(slice_of_target(target, [0, 1], id_map), tmp_path)
    draft = load_draft(tmp_path, target, "sdpa")
    full = full_vocabulary(tmp_path, target)
    ids = torch.tensor([[3, 7, 100, 42]])
    expected, found = draft(ids).logits, full(ids).logits
    torch.testing.assert_close(found[..., id_map], expected)
    others = torch.ones(found.shape[-1], dtype=torch.bool)
    others[id_map] = False
    assert (found[..., others] == 0).all()
    half = full_vocabulary(tmp_path, place_like(target, torch.empty(0, dtype=torch.bfloat16)))
    assert half.get_output_embeddings().weight.dtype == torch.bfloat16
    assert half.base_model.rotary_emb.inv_freq.dtype == torch.float32


def test_rows_compare_each_way_with_its_own_baseline_and_with_ours(pair, tmp_path):
    def parrot(ids, tokens):
        return [1] * tokens

    def broken(ids, tokens):
        raise KeyError("no such thing")

    peers = [
        Peer("broken 1.0", "plain", True, broken, "fp32"),
        Peer("parrot 1.0", "plain", True, parrot, "fp32"),
        Peer("parrot 1.0", "drafted", False, parrot, "fp32"),
        Peer("parrot 1.0", "short", False, lambda ids, tokens: parrot(ids, tokens - 1), "fp32"),
    ]
    bench = PeerBench(PROMPTS, SETTINGS, tmp_path / "peers.json")
    bench.run(pair, peers)
    saved = json.loads((tmp_path / "peers.json").read_text())
    assert len(saved["rows"]) == 3 * 6
    first = {row["name"]: row for row in saved["rows"][:6]}
    assert list(first) == [ALONE, *SETTINGS.drafters, "plain", "drafted", "short"]
    assert first["short"]["identical"] is False
    assert all(first[name]["library"] == OURS and first[name]["ours"] is None for name in list(first)[:3])
    assert first["draft-model"]["identical"] is True and first[ALONE]["identical"] is None
    assert first["drafted"]["identical"] is True and first["drafted"]["speedup"] > 0
    for mine, theirs in ((ALONE, "plain"), ("draft-model", "drafted")):
        ratio = first[mine]["tokens_per_s"] / first[theirs]["tokens_per_s"]
        assert first[theirs]["ours"] == pytest.approx(ratio)
    assert all(row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"]) for row in saved["rows"])
    table = bench.table().splitlines()
    assert len(table) == 7 and "3 of 3" in table[2]
    page = (tmp_path / "peers.html").read_text()
    assert "parrot 1.0: drafted (fp32)" in page and "<script src=" not in page


def test_a_library_has_a_baseline_in_each_precision_it_runs_in(pair, tmp_path):
    def writer(token):
        return lambda ids, tokens: [token] * tokens

    peers = [
        Peer("parrot 1.0", "plain", True, writer(1), "Q4_1"),
        Peer("parrot 1.0", "plain", True, writer(2), "Q4_0"),
        Peer("parrot 1.0", "drafted", False, writer(1), "Q4_1"),
        Peer("parrot 1.0", "drafted", False, writer(1), "Q4_0"),
    ]
    bench = PeerBench(PROMPTS[:1], SETTINGS, tmp_path / "peers.json")
    bench.run(pair, peers)
    summary = json.loads((tmp_path / "peers.json").read_text())["summary"][3:]
    assert [(item["precision"], item["identical"]) for item in summary] == [
        ("Q4_1", None),
        ("Q4_0", None),
        ("Q4_1", 1),
        ("Q4_0", 0),
    ]


def test_beside_our_fp16_others_run_in_what_it_computes_in(folders):
    half = load_sources(Sources(*folders, device="cpu", precision="fp16"))
    with peer_models(half, *folders, gguf=None) as models:
        peers = [
            p for p in available_peers(models, lambda text: None) if p.package.startswith("transformers")
        ]
        assert {peer.precision for peer in peers} == {"fp32"}
        assert models.target.dtype == torch.float32


def test_what_cannot_be_compared_is_said_in_a_sentence(pair, folders, tmp_path):
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(UserError, match="exists; choose another name"):
        PeerBench(PROMPTS, SETTINGS, tmp_path / "old.json")
    with pytest.raises(UserError, match="k must be from"):
        PeerBench(PROMPTS, PeerSettings(["draft-model"], 99, TOKENS), tmp_path / "out.json")
    with pytest.raises(UserError, match="name one with --draft"), peer_models(pair, folders[0], "none", None):
        pass
