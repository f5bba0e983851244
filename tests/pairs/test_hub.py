"""The files of a checkpoint, from a folder, the hub or its cache, and why they are refused."""

import re
import shutil
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch

import pytest
import torch
import transformers
from helpers.hub_cache import NEWEST, Hub, put, served, use_cache
from helpers.on_disk import ON_CPU, own_text, run, save
from helpers.tiny import byte_tokenizer, nearby, tiny_llama
from huggingface_hub import constants, file_download
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from specdemo.pairs.hub import WANTED, fetch_checkpoint
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.presets import preset_named
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace_file import load as read_trace

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small checkpoint, with files that must not be fetched."""
    folder, tokenizer = tmp_path_factory.mktemp("checkpoint"), byte_tokenizer()
    save(tiny_llama(len(tokenizer), 0, torch.float32), tokenizer, folder)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    return folder


@pytest.fixture(scope="module")
def draft_checkpoint(tmp_path_factory):
    folder, tokenizer = tmp_path_factory.mktemp("draft"), byte_tokenizer()
    save(nearby(tiny_llama(len(tokenizer), 0, torch.float32), 1, 0.02), tokenizer, folder)
    return folder


@pytest.mark.parametrize("source", ["folder", "hub"])
@pytest.mark.parametrize("kind", ["an adapter", "only pickles"])
def test_a_checkpoint_without_whole_safetensors_is_refused(checkpoint, tmp_path, monkeypatch, kind, source):
    use_cache(monkeypatch, tmp_path / "hub")
    folder = tmp_path / "files"
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    words = "contains no safetensors files"
    if kind == "an adapter":
        (folder / "adapter_model.safetensors").touch()
        (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "some/target"}')
        words = "is an adapter, not a whole model; merge"
    put(tmp_path / "hub", "some/files", folder)
    name = "some/files" if source == "hub" else str(folder)
    with pytest.raises(UserError, match=f"^{name} {words}"):
        fetch_checkpoint(name)


def test_a_gguf_file_is_refused_as_a_file(tmp_path):
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    with pytest.raises(UserError, match=f"^{gguf} is a file, but single files such as GGUF"):
        fetch_checkpoint(str(gguf))


def test_every_file_of_a_tokenizer_is_fetched():
    files = set()
    for name in filter(None, map(TOKENIZER_MAPPING_NAMES.get, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)):
        with suppress(ImportError):  # a tokenizer whose library is not installed
            files |= set(getattr(transformers, name).vocab_files_names.values())
    assert {"spiece.model", "sentencepiece.bpe.model", "tokenizer.model"} <= files
    assert not {file for file in files if not any(fnmatch(file, pattern) for pattern in WANTED)}


MISSING_SHARD = b'{"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}'
INDEX, SHARD = "model.safetensors.index.json", "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    "changes",
    [
        {"model.safetensors": "weights.safetensors"},
        {"config.json": None},
        {"config.json": b"{"},
        {"config.json": b'{"model_type": "no such family"}'},
        {"tokenizer.json": None, "tokenizer_config.json": None},
        {"model.safetensors": b"0"},
        {"model.safetensors": SHARD, INDEX: MISSING_SHARD},
    ],
    ids=["other name", "no config", "broken config", "unknown family", "no tokenizer", "cut", "shard"],
)
def test_a_refusal_is_one_sentence_with_one_period_at_its_end(checkpoint, tmp_path, changes):
    folder = shutil.copytree(checkpoint, tmp_path / "files")
    for name, change in changes.items():
        if isinstance(change, bytes):
            (folder / name).write_bytes(change)
        elif change:
            (folder / name).rename(folder / change)
        else:
            (folder / name).unlink()
    with pytest.raises(UserError) as refused:
        assemble_pair(Sources(str(folder), "none", **ON_CPU))
    message = str(refused.value)
    assert message.endswith(".") and "\n" not in message
    assert not re.search(r"[.:;!] ?[.;)]", message.replace(str(folder), "")), message


@pytest.mark.slow
def test_a_preset_loads_from_the_hubs_cache_and_writes_what_its_target_writes(
    checkpoint, draft_checkpoint, tmp_path, monkeypatch
):
    preset = preset_named("smollm2-1.7b")
    use_cache(monkeypatch, tmp_path)
    put(tmp_path, preset.target.name, checkpoint, preset.target.revision)
    put(tmp_path, preset.draft.name, draft_checkpoint, preset.draft.revision)
    record, end = run(load_sources(replace(preset.sources, **ON_CPU)), max_new_tokens=24)
    assert end["badge"]["kind"] == "same"
    target = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert list(record.lanes["speculative"].ids) == own_text(target, record, 24)
    assert any(round_.accepted for round_ in record.lanes["speculative"].rounds)
    assert record.pair.items() <= vars(preset.sources).items() and len(record.pair) == 4
    assert read_trace(record.to_json()).pair == record.pair


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        ("some/target", "b" * 40, f"at revision {'b' * 40}: .*; unset HF_HUB_OFFLINE"),
        ("some/other", None, "some/other: it is not complete in"),
        ("no model of this name", None, "it is neither a folder nor a hub id"),
        ("{folder}", "main", "folders have no revisions; leave out the revision main"),
    ],
)
def test_a_model_that_is_not_in_the_cache_is_named(checkpoint, tmp_path, monkeypatch, name, revision, words):
    use_cache(monkeypatch, tmp_path)
    put(tmp_path, "some/target", checkpoint)
    with pytest.raises(UserError, match=words):
        fetch_checkpoint(name.format(folder=checkpoint), revision)


@pytest.fixture
def hub(checkpoint, draft_checkpoint, tmp_path, monkeypatch):
    """A hub on this machine instead of the real one, and an empty cache."""
    use_cache(monkeypatch, tmp_path / "hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    monkeypatch.setattr(file_download.time, "sleep", lambda _seconds: None)
    hub = Hub()
    hub.models = {"some/target": checkpoint, "some/draft": draft_checkpoint}
    hub.gated = {"some/gated"}
    with served(hub) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


@pytest.mark.slow
def test_a_download_shows_its_progress_and_fetches_only_needed_files(hub, monkeypatch):
    shown = []
    sources = Sources("some/target", "some/draft", **ON_CPU)
    pair = load_sources(sources, progress=lambda text, share: shown.append((text, share)))
    assert (pair.target_revision, pair.draft_revision) == (NEWEST, NEWEST)
    assert {name.rpartition(".")[2] for name in hub.asked} == {"jinja", "json", "safetensors"}
    texts, shares = zip(*shown, strict=True)
    assert list(shares) == sorted(shares) and shares[-1] == 1.0
    for model in ("some/target", "some/draft"):
        assert sum(text.startswith(f"Fetching {model} (") for text in texts) > 3
        assert texts.count(f"Loading {model}") > 3
    fetched = {text for text in texts if text.startswith("Fetching")}
    assert len(fetched) == 2 and all(text.endswith(" MB)") for text in fetched)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    again = fetch_checkpoint("some/target")
    assert again.revision == NEWEST and (again.folder / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_download_that_breaks_off_is_reported_and_resumed(hub):
    hub.broken = {"model.safetensors": 10**6}
    with pytest.raises(UserError, match=r"^Fetching some/target failed \(.*\); check the connection and"):
        fetch_checkpoint("some/target")
    hub.broken = {"model.safetensors": 1}
    fetched, whole = fetch_checkpoint("some/target").folder, hub.models["some/target"]
    assert (fetched / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert hub.asked.count("config.json") == 1, "a complete file is not fetched again"


def test_a_refusal_of_the_hub_and_a_full_disk_are_explained(hub, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_download, "http_get", full)
    for name, revision, words in (
        ("some/nothing", None, "the hub has no model of that name, or it is private"),
        ("some/target", "c" * 40, f"it has no revision {'c' * 40}; check the revision"),
        ("some/gated", None, "some/gated is gated: accept its licence at http://127.0.0.1"),
        ("some/target", None, "The disk is full; free some space for some/target"),
    ):
        with pytest.raises(UserError, match=words):
            fetch_checkpoint(name, revision)


@pytest.mark.slow
def test_an_unreachable_hub_is_reported(tmp_path, monkeypatch):
    use_cache(monkeypatch, tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="it is not in the cache, and the hub is offline"):
        fetch_checkpoint("some/target")
