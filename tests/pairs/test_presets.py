"""Presets: the facts about their models, and loading such models from the hub and from its cache."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from helpers.hub_cache import NEWEST, Hub, put, served, use_cache
from helpers.on_disk import run
from helpers.tiny import byte_tokenizer, nearby, tiny_llama
from huggingface_hub import constants, file_download
from transformers import AutoModelForCausalLM

from specdemo.asset_paths import BUILT_IN
from specdemo.pairs.hub import fetch_checkpoint
from specdemo.pairs.load import load_sources
from specdemo.pairs.presets import LOADED_BYTES, PRESETS, fitting, preset_named
from specdemo.pairs.sources import Sources
from specdemo.records.limits import PRECISIONS, UserError
from specdemo.records.trace_file import load as read_trace

pytestmark = [pytest.mark.usefixtures("one_thread", "few_measurements"), pytest.mark.slow]

ON_CPU = {"device": "cpu", "precision": "fp32"}
QWEN = {"vocab_size": 151_936, "tie_word_embeddings": True}
PYTHIA = {"vocab_size": 50_304}


def sizes(width: int, inner: int, layers: int, heads: int, kv_heads: int, **others: object) -> dict:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **others,
    }


SMOL = {"vocab_size": 49_152, "tie_word_embeddings": True}
LLAMA3 = {"vocab_size": 128_256}
PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": ("Qwen2", sizes(896, 4_864, 24, 14, 2, **QWEN)),
    "Qwen/Qwen2.5-1.5B-Instruct": ("Qwen2", sizes(1_536, 8_960, 28, 12, 2, **QWEN)),
    "Qwen/Qwen2.5-7B-Instruct": ("Qwen2", sizes(3_584, 18_944, 28, 28, 4, vocab_size=152_064)),
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("Llama", sizes(576, 1_536, 30, 9, 3, **SMOL)),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": ("Llama", sizes(2_048, 8_192, 24, 32, 32, **SMOL)),
    "meta-llama/Llama-3.1-8B-Instruct": ("Llama", sizes(4_096, 14_336, 32, 32, 8, **LLAMA3)),
    "meta-llama/Llama-3.2-1B-Instruct": (
        "Llama",
        sizes(2_048, 8_192, 16, 32, 8, head_dim=64, tie_word_embeddings=True, **LLAMA3),
    ),
    "openai-community/gpt2": ("GPT2", {"n_embd": 768, "n_layer": 12, "n_head": 12}),
    "openai-community/gpt2-large": ("GPT2", {"n_embd": 1_280, "n_layer": 36, "n_head": 20}),
    "openai-community/gpt2-xl": ("GPT2", {"n_embd": 1_600, "n_layer": 48, "n_head": 25}),
    "EleutherAI/pythia-70m": ("GPTNeoX", sizes(512, 2_048, 6, 8, 8, **PYTHIA)),
    "EleutherAI/pythia-160m": ("GPTNeoX", sizes(768, 3_072, 12, 12, 12, **PYTHIA)),
    "EleutherAI/pythia-1.4b": ("GPTNeoX", sizes(2_048, 8_192, 24, 16, 16, **PYTHIA)),
    "EleutherAI/pythia-2.8b": ("GPTNeoX", sizes(2_560, 10_240, 32, 32, 32, **PYTHIA)),
}
"""Architecture and sizes from each model's own ``config.json``."""
CHECKPOINTS = {model.name: model for preset in PRESETS[1:] for model in (preset.target, preset.draft)}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_models_parameters_are_the_sum_over_its_architecture(name):
    kind, settings = PUBLISHED[name]
    # The library adds default rotations, which are not parameters.
    config = getattr(transformers, f"{kind}Config")(**settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    said = CHECKPOINTS[name]
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert (said.parameters, said.embedding, said.tied) == (
        sum(weight.numel() for weight in model.parameters()),
        model.get_input_embeddings().weight.numel(),
        tied,
    )


def test_every_preset_is_found_by_its_name_and_no_other():
    assert PRESETS[0].name == BUILT_IN
    assert [preset_named(preset.name) for preset in PRESETS] == list(PRESETS)
    with pytest.raises(UserError, match=r"^Unknown pair of models 'gpt5'; choose one of: built-in, qwen2"):
        preset_named("gpt5")


def test_revisions_are_commits():
    for model in CHECKPOINTS.values():
        assert model.revision is None or (len(model.revision) == 40 and int(model.revision, 16))


def test_the_memory_needed_counts_both_models_at_their_largest():
    assert LOADED_BYTES.keys() == set(PRECISIONS)
    assert max(LOADED_BYTES.values()) == LOADED_BYTES["auto"]
    large = preset_named("qwen2.5-7b")
    weights = 7_615_616_512 + 494_032_768
    assert 2 * weights < large.needed_bytes("bf16") < 2.5 * weights
    assert large.needed_bytes("fp32") > 1.9 * large.needed_bytes("bf16") - 2**31
    # Both are there in bf16 before one is converted.
    assert large.needed_bytes("int8") == pytest.approx(large.needed_bytes("bf16"), rel=0.05)


def test_presets_that_fit_are_listed_for_a_precision():
    assert [preset.name for preset in fitting(2 * 10**9, "bf16")] == [BUILT_IN]
    assert fitting(10**12, "bf16") == list(PRESETS)
    packed = {preset.name for preset in fitting(10**12, "int8")}
    assert "qwen2.5-7b" in packed and not packed & {"gpt2-large", "gpt2-xl"}
    exactly = preset_named("pythia-1.4b").needed_bytes("fp32")
    assert "pythia-1.4b" in {preset.name for preset in fitting(exactly, "fp32")}
    assert "pythia-1.4b" not in {preset.name for preset in fitting(exactly - 1, "fp32")}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small checkpoint of a hub, with files that must not be fetched."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = byte_tokenizer()
    tiny_llama(len(tokenizer), 0, torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    return folder


@pytest.fixture(scope="module")
def draft_checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draft")
    tokenizer = byte_tokenizer()
    nearby(tiny_llama(len(tokenizer), 0, torch.float32), 1, 0.02).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_preset_loads_from_the_hubs_cache_and_writes_what_its_target_writes(
    checkpoint, draft_checkpoint, tmp_path, monkeypatch
):
    preset = preset_named("smollm2-1.7b")
    use_cache(monkeypatch, tmp_path)
    put(tmp_path, preset.target.name, checkpoint, preset.target.revision)
    put(tmp_path, preset.draft.name, draft_checkpoint, preset.draft.revision)
    record, end = run(load_sources(replace(preset.sources, **ON_CPU)), max_new_tokens=24)
    assert end["badge"]["kind"] == "same"
    prompt = torch.tensor([record.prompt_ids])
    target = AutoModelForCausalLM.from_pretrained(checkpoint)
    expected = target.generate(prompt, do_sample=False, max_new_tokens=24, use_cache=False)
    assert list(record.lanes["speculative"].ids) == expected[0, prompt.shape[1] :].tolist()
    assert any(round_.accepted for round_ in record.lanes["speculative"].rounds)
    assert record.pair.items() <= vars(preset.sources).items() and len(record.pair) == 4
    assert read_trace(record.to_json()).pair == record.pair


def test_the_newest_revision_is_resolved_and_recorded(checkpoint, draft_checkpoint, tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)
    put(tmp_path, "some/target", checkpoint, "a" * 40)
    pair = load_sources(Sources("some/target", str(draft_checkpoint), **ON_CPU))
    assert (pair.target_revision, pair.draft_revision) == ("a" * 40, None)
    assert run(pair)[0].pair == {
        "target": "some/target",
        "draft": str(draft_checkpoint),
        "target_revision": "a" * 40,
    }


def no_weights(folder: Path, into: Path) -> Path:
    """Copy a checkpoint without its safetensors, so that its weights are only in a pickle."""
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("*.safetensors"))
    return into


@pytest.mark.parametrize("source", ["folder", "hub"])
def test_a_checkpoint_of_pickles_is_refused(checkpoint, tmp_path, monkeypatch, source):
    use_cache(monkeypatch, tmp_path / "hub")
    name = str(no_weights(checkpoint, tmp_path / "pickled"))
    if source == "hub":
        put(tmp_path / "hub", "some/pickled", Path(name))
        name = "some/pickled"
    with pytest.raises(UserError, match=f"^{name} contains no safetensors files, .* choose [^.]*\\.$"):
        load_sources(Sources(name, str(checkpoint), **ON_CPU))


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        (
            "some/target",
            "b" * 40,
            f"Cannot load some/target at revision {'b' * 40}: .* unset HF_HUB_OFFLINE",
        ),
        ("some/other", None, "Cannot load some/other: it is not complete in"),
        ("no model of this name", None, "it is neither a folder nor a hub id"),
        ("{folder}", "main", "is a folder, so it has no revision main"),
    ],
)
def test_a_model_that_is_not_in_the_cache_is_named(checkpoint, tmp_path, monkeypatch, name, revision, words):
    use_cache(monkeypatch, tmp_path)
    put(tmp_path, "some/target", checkpoint)
    with pytest.raises(UserError, match=words):
        target = name.format(folder=checkpoint)
        load_sources(Sources(target, str(checkpoint), target_revision=revision, **ON_CPU))


@pytest.fixture
def hub(checkpoint, draft_checkpoint, tmp_path, monkeypatch):
    """A hub on this machine instead of the real one, and an empty cache."""
    use_cache(monkeypatch, tmp_path / "hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    monkeypatch.setattr(file_download.time, "sleep", lambda _seconds: None)
    hub = Hub()
    hub.models = {"some/target": checkpoint, "some/draft": draft_checkpoint}
    with served(hub) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def test_a_download_shows_its_progress_and_fetches_only_needed_files(hub, monkeypatch):
    shown = []
    sources = Sources("some/target", "some/draft", **ON_CPU)
    pair = load_sources(sources, progress=lambda text, share: shown.append((text, share)))
    assert (pair.target_revision, pair.draft_revision) == (NEWEST, NEWEST)
    assert sorted({name.rpartition(".")[2] for name in hub.asked}) == ["jinja", "json", "safetensors"]
    shares = [share for _, share in shown]
    assert shares == sorted(shares) and shares[-1] == 1.0
    texts = [text for text, _ in shown]
    for model in ("some/target", "some/draft"):
        assert sum(text.startswith(f"Fetching {model} (") for text in texts) > 3
        assert sum(text == f"Loading {model}" for text in texts) > 3
    fetched = {text for text in texts if text.startswith("Fetching")}
    assert len(fetched) == 2 and all(text.endswith(" MB)") for text in fetched)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    again = fetch_checkpoint("some/target")
    assert again.revision == NEWEST and (again.folder / "model.safetensors").is_file()


def test_a_download_that_breaks_off_is_reported_and_resumed(hub):
    hub.broken = {"model.safetensors": 10**6}
    with pytest.raises(UserError, match=r"^Fetching some/target failed \(.*\); check the connection and"):
        fetch_checkpoint("some/target")
    assert hub.asked.count("config.json") == 1
    hub.broken = {"model.safetensors": 1}
    found = fetch_checkpoint("some/target")
    assert (found.folder / "model.safetensors").read_bytes() == (
        hub.models["some/target"] / "model.safetensors"
    ).read_bytes()
    assert hub.asked.count("config.json") == 1, "a complete file is not fetched again"


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        ("some/nothing", None, "the hub has no model of that name, or it is private"),
        ("some/target", "c" * 40, f"it has no revision {'c' * 40}; check the revision"),
        ("some/gated", None, "some/gated is gated: accept its licence at http://127.0.0.1"),
    ],
)
def test_a_refusal_of_the_hub_is_explained(hub, name, revision, words):
    hub.gated = {"some/gated"}
    with pytest.raises(UserError, match=words):
        fetch_checkpoint(name, revision)


def test_an_unreachable_hub_is_reported(tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="it is not in the cache, and the hub is offline"):
        fetch_checkpoint("some/target")


def test_a_full_disk_is_reported(hub, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_download, "http_get", full)
    with pytest.raises(UserError, match="The disk is full; free some space for some/target"):
        fetch_checkpoint("some/target")
