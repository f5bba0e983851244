"""The files of a checkpoint: which are fetched, and why a folder or a file is refused."""

import re
from contextlib import suppress
from fnmatch import fnmatch

import pytest
import torch
import transformers
from helpers.hub_cache import put, use_cache
from helpers.on_disk import ON_CPU, save
from helpers.tiny import byte_tokenizer, tiny_llama
from safetensors.torch import save_file
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from specdemo.pairs.hub import WANTED, fetch_checkpoint
from specdemo.pairs.load import assemble_pair
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError


@pytest.mark.parametrize("source", ["folder", "hub"])
def test_an_adapter_is_refused(tmp_path, monkeypatch, source):
    use_cache(monkeypatch, tmp_path / "hub")
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file({"base_model.model.lm_head.lora_A.weight": torch.ones(2)}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "some/target"}')
    name = str(folder)
    if source == "hub":
        put(tmp_path / "hub", "some/adapter", folder)
        name = "some/adapter"
    with pytest.raises(UserError, match=f"^{name} is an adapter of another model; merge it into that model"):
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


def renamed_weights(folder):
    (folder / "model.safetensors").rename(folder / "weights.safetensors")


def no_config(folder):
    (folder / "config.json").unlink()


def broken_config(folder):
    (folder / "config.json").write_text("{")


def unknown_family(folder):
    (folder / "config.json").write_text('{"model_type": "no such family"}')


def no_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def cut_weights(folder):
    (folder / "model.safetensors").write_bytes(b"0")


def a_shard_is_gone(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        '{"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}'
    )


@pytest.mark.parametrize(
    "damage",
    [
        renamed_weights,
        no_config,
        broken_config,
        unknown_family,
        no_tokenizer,
        cut_weights,
        a_shard_is_gone,
    ],
)
def test_a_refusal_is_one_sentence_with_one_period_at_its_end(tmp_path, damage):
    tokenizer = byte_tokenizer()
    folder = save(tiny_llama(len(tokenizer), 0, torch.float32), tokenizer, tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError) as refused:
        assemble_pair(Sources(folder, "none", **ON_CPU))
    message = str(refused.value)
    assert message.endswith(".") and "\n" not in message
    assert not re.search(r"[.:;!] ?[.;)]", message.replace(folder, "")), message
