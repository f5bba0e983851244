"""Other libraries compared with ours: the models they get, their processes, the rows, and the page."""

import json
import sys
import threading
from dataclasses import replace
from multiprocessing import Pipe
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.on_disk import ON_CPU, save_pair
from helpers.tiny import emitted
from transformers import AutoModelForCausalLM

from specdemo.bench.peer_engines import METHODS, Contender, PeerModels, serve
from specdemo.bench.peers import ALONE, OURS, PeerBench, full_vocabulary, peer_contenders, peer_models
from specdemo.bench.prompts import Prompt, Settings
from specdemo.models.reduced_draft import load_draft, save_draft, slice_of_target
from specdemo.models.weight_files import place_like
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")

TOKENS = 12
SETTINGS = Settings(["draft-model", "prompt-lookup"], [3], [0.0], None, TOKENS, 1, 0)
PROMPTS = [Prompt(f"p{i}", "a", "raw", f"text {i}") for i in range(3)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_pair(tmp_path_factory, spread=0.4)


@pytest.fixture(scope="module")
def pair(folders):
    return load_sources(Sources(*folders, **ON_CPU))


def written(pair, prompt):
    (config, _) = SETTINGS.configs(prompt, 0.0)
    rounds = list(Lanes(pair).baseline(config, pair.prompt_ids(config)))
    assert rounds[-1].finish in (Finish.LENGTH, Finish.EOS)
    return emitted(rounds)


@pytest.mark.slow
def test_transformers_writes_our_baselines_text(pair, folders):
    reports: list[str] = []
    with (
        peer_models(pair, *folders, gguf=None) as models,
        peer_contenders(pair, models, reports.append) as peers,
    ):
        names = {peer.name: peer.alone for peer in peers}
        assert names == {"generate": True, "assisted generation": False, "prompt lookup": False}
        for prompt in PROMPTS:
            ids = pair.tokenizer(prompt.prompt)["input_ids"]
            for peer in peers:
                found, seconds = peer.write(ids, TOKENS)
                assert found == written(pair, prompt) and seconds > 0
    assert all("--gguf" in sentence for sentence in reports) and len(reports) == len(METHODS) - 1


@pytest.mark.slow
def test_llama_cpp_writes_the_builtin_target_from_its_file(builtin_pair, monkeypatch):
    pytest.importorskip("xllamacpp")
    monkeypatch.setattr("specdemo.bench.peers.METHODS", ["xllamacpp"])
    with (
        peer_models(builtin_pair, "built-in", "built-in", None) as models,
        peer_contenders(builtin_pair, models, pytest.fail) as (plain, lookup),
    ):
        ids = builtin_pair.tokenizer("The capital of France is")["input_ids"]
        assert len(plain.write(ids, TOKENS)[0]) == TOKENS
        assert plain.write(ids, TOKENS)[0] == lookup.write(ids, TOKENS)[0]
        assert (plain.precision, plain.alone, lookup.alone) == ("Q4_1", True, False)


def served(package, models, *requests):
    """Return the first message of a library's process and its answers, served by a thread instead."""
    ours, theirs = Pipe()
    threading.Thread(target=serve, args=(package, models, [1, 2], theirs), daemon=True).start()
    first, answers = ours.recv(), []
    for request in requests:
        ours.send(request)
        answers.append(ours.recv()[0])
    return first, answers


@pytest.fixture
def openvino(monkeypatch, tmp_path):
    """Replace OpenVINO's modules by stand-ins; return the pipelines they make, and models."""
    made = []

    class LLMPipeline:
        def __init__(self, path, device, **options):
            made.append((path, device, options))

        def generate(self, inputs, config):
            assert config.stop_token_ids == {9} and not config.do_sample
            return SimpleNamespace(tokens=[np.arange(config.max_new_tokens) + inputs.ids.shape[1]])

    library = SimpleNamespace(
        LLMPipeline=LLMPipeline,
        GenerationConfig=SimpleNamespace,
        TokenizedInputs=lambda ids, mask: SimpleNamespace(ids=ids, mask=mask),
    )
    monkeypatch.setitem(sys.modules, "openvino_genai", library)
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Tensor=lambda values: values))
    monkeypatch.setattr("importlib.metadata.version", lambda package: "1.0")
    return made, PeerModels("", "", tmp_path / "tiny.Q8_0.gguf", frozenset({9}), "bf16", threads=2)


def test_openvino_reads_the_same_file(openvino):
    made, models = openvino
    first, answers = served(
        "openvino-genai", models, ("plain", [3, 1, 4], 3), ("prompt lookup", [3, 1, 4], 2)
    )
    assert first == ("openvino-genai 1.0", "Q8_0", ["plain", "prompt lookup"], "")
    threads = {"INFERENCE_NUM_THREADS": 2}
    assert made == [(str(models.gguf), "CPU", threads | more) for more in ({}, {"prompt_lookup": True})]
    assert answers == [[3, 4, 5], [3, 4]]


def test_failing_library_is_reported_with_its_reason(openvino, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    (_, _, working, failure), _ = served("openvino-genai", openvino[1])
    assert working == [] and "openvino-genai 1.0 is left out" in failure
    (_, _, _, failure), _ = served("transformers", openvino[1])
    assert "transformers 1.0 is left out" in failure


def test_reduced_draft_with_the_whole_vocabulary_has_the_same_logits(folders, tmp_path):
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


def parrot(ids, tokens):
    return [1] * tokens, 0.5


def test_rows_compare_each_method_with_its_own_baseline_and_with_ours(pair, tmp_path):
    peers = [
        Contender("parrot 1.0", "plain", True, "fp32", parrot),
        Contender("parrot 1.0", "drafted", False, "fp32", parrot),
        Contender("parrot 1.0", "short", False, "fp32", lambda ids, tokens: parrot(ids, tokens - 1)),
    ]
    bench = PeerBench(PROMPTS, SETTINGS, tmp_path / "peers.json")
    bench.run(pair, peers)
    rows = json.loads((tmp_path / "peers.json").read_text())["rows"]
    assert len(rows) == 3 * 6
    assert all(row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"]) for row in rows)
    first = {row["name"]: row for row in rows[:6]}
    assert list(first) == [ALONE, *SETTINGS.drafters, "plain", "drafted", "short"]
    assert all(first[name]["library"] == OURS and first[name]["ours"] is None for name in list(first)[:3])
    same = {name: row["identical"] for name, row in first.items()}
    assert (same[ALONE], same["draft-model"], same["drafted"], same["short"]) == (None, True, True, False)
    assert first["drafted"]["speedup"] > 0
    for mine, theirs in ((ALONE, "plain"), ("draft-model", "drafted")):
        ratio = first[mine]["tokens_per_s"] / first[theirs]["tokens_per_s"]
        assert first[theirs]["ours"] == pytest.approx(ratio)
    table = bench.table().splitlines()
    assert len(table) == 7 and "3 of 3" in table[2]
    page = (tmp_path / "peers.html").read_text()
    assert "parrot 1.0: drafted (fp32)" in page and "<script src=" not in page


def test_order_of_contenders_rotates(pair, tmp_path):
    order = []
    writers = [
        Contender(
            "x", name, name == "a", "fp32", lambda *asked, name=name: order.append(name) or parrot(*asked)
        )
        for name in "ab"
    ]
    settings = replace(SETTINGS, drafters=["prompt-lookup"], max_new_tokens=4)
    PeerBench([*PROMPTS, PROMPTS[0]], settings, tmp_path / "out.json").run(pair, writers)
    assert "".join(order) == "abababba"
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert all(row["speedup"] is None for row in rows), "too few tokens"


def test_next_to_our_bf16_others_run_in_fp32(folders):
    half = load_sources(Sources(*folders, device="cpu", precision="bf16"))
    with peer_models(half, *folders, gguf=None) as models:
        assert models.precision == "fp32"


def test_unsuitable_comparisons_are_refused(pair, folders, tmp_path):
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(UserError, match="already exists; choose another file"):
        PeerBench(PROMPTS, SETTINGS, tmp_path / "old.json")
    with pytest.raises(UserError, match="k must be from"):
        PeerBench(PROMPTS, replace(SETTINGS, ks=[99]), tmp_path / "out.json")
    models = peer_models(pair, folders[0], "none", None)
    with pytest.raises(UserError, match="choose a draft model with --draft"), models:
        pass
