"""A load accounts for every tensor: damaged checkpoints are refused with the names of the first ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.on_disk import ON_CPU, own_text, run, save
from helpers.tiny import byte_tokenizer, tiny_llama
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdemo.models.feature_draft import CONFIG_FILE, feature_draft_for, save_feature_draft
from specdemo.models.reduced_draft import save_draft, slice_of_target
from specdemo.models.weight_files import SCALE
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.training.batched import load_target

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")

TOKENIZER = byte_tokenizer()
WEIGHTS = "model.safetensors"
SIZES = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
OLD = {"vocab_size": len(TOKENIZER), "n_embd": 16, "n_layer": 2, "n_head": 4, "tie_word_embeddings": False}
ARCHITECTURES = {
    "llama": ("LlamaConfig", SIZES),
    "qwen2": ("Qwen2Config", SIZES),
    "gpt2": ("GPT2Config", OLD),
    "gpt-neox": ("GPTNeoXConfig", SIZES),
    "opt": ("OPTConfig", {**SIZES, "ffn_dim": 32, "word_embed_proj_dim": 16}),
}
FIRST = torch.arange(100)
MIXTURE = ("MixtralConfig", {**SIZES, "num_local_experts": 2})


def built(architecture: tuple[str, dict[str, Any]], **changes: object) -> Any:
    kind, sizes = architecture
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(getattr(transformers, kind)(**{**sizes, **changes})).eval()


def edit(folder: Path, change: Any) -> None:
    """Replace the tensors in ``folder`` by ``change`` of them."""
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})


def drop(folder: Path, names: str) -> None:
    edit(folder, lambda state: {k: v for k, v in state.items() if not re.search(names, k)})


def configure(folder: Path, name: str = "config.json", **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rename(folder: Path) -> None:
    edit(folder, lambda state: {f"base_model.model.{name}": tensor for name, tensor in state.items()})


def shorten_embedding(folder: Path) -> None:
    embedding = next(name for name in load_file(folder / WEIGHTS) if re.search(EMBEDDING, name))
    edit(folder, lambda state: state | {embedding: state[embedding][:-3].clone()})


def make_classifier(folder: Path) -> None:
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)


EMBEDDING = r"(embed_tokens|wte|embed_in)\.weight$"
WITHOUT_HEAD = r"missing: lm_head\.weight"
DAMAGES = {
    "no head": (lambda folder: drop(folder, r"^(lm_head|embed_out)\."), WITHOUT_HEAD),
    "another shape": (shorten_embedding, f"of another shape: .*{EMBEDDING[:-1]}"),
    "no norm": (
        lambda folder: drop(folder, r"1\.input_layernorm\.w"),
        r"missing: .*1\.input_layernorm\.weight",
    ),
    "foreign prefix": (rename, r"missing: .* and \d+ more; unexpected: base_model\.model\..* and \d+ more"),
    "fewer layers": (lambda folder: configure(folder, num_hidden_layers=1), r"unexpected: .*\.1\."),
    "more layers": (lambda folder: configure(folder, num_hidden_layers=3), r"missing: .*\.2\."),
    "tied in the config only": (
        lambda folder: configure(folder, tie_word_embeddings=True),
        r"stored twice with different values: lm_head\.weight",
    ),
    "classifier": (make_classifier, rf"{WITHOUT_HEAD}; unexpected: score\.weight"),
}
OTHERS = [name for name in ARCHITECTURES if name != "llama"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    model = tiny_llama(len(TOKENIZER), 0, torch.float32)
    return save(model, TOKENIZER, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        *((damage, "llama") for damage in DAMAGES),
        *(("another shape", name) for name in OTHERS),
        *(pytest.param("no head", name, marks=pytest.mark.slow) for name in OTHERS),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_the_first_names(tmp_path, damage, name):
    folder = save(built(ARCHITECTURES[name]), TOKENIZER, tmp_path)
    change, words = DAMAGES[damage]
    change(tmp_path)
    with pytest.raises(UserError, match=rf"^Cannot load {folder}: .*\({words}.*\); choose [^.]*\.$"):
        assemble_pair(Sources(folder, "none", **ON_CPU))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "mxfp4"}, "its configuration names the type 'mxfp4', which torch [^ ]+ lacks"),
        ({"dtype": "int4"}, ".*not a floating-point dtype"),
        ({"hidden_act": "zelu"}, "unknown value 'zelu'"),
        ({"model_type": "granite9"}, ".*model type `granite9`.*"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, ".*GPTQ.*"),
    ],
)
def test_a_configuration_that_cannot_be_loaded_is_named_and_not_the_connection(tmp_path, changes, reason):
    folder = save(built(ARCHITECTURES["llama"]), TOKENIZER, tmp_path)
    configure(tmp_path, **changes)
    advice = r"choose a checkpoint that transformers [\d.]+ can load\.$"
    with pytest.raises(UserError, match=f"^Cannot load {folder}: {reason}; {advice}"):
        assemble_pair(Sources(folder, "none", device="cpu"))


def test_a_damaged_draft_model_is_refused_and_a_damaged_target_writes_no_training_text(whole, tmp_path):
    folder = save(built(ARCHITECTURES["llama"]), TOKENIZER, tmp_path)
    drop(tmp_path, "^lm_head")
    with pytest.raises(UserError, match=rf"^Cannot load {folder}: .*\({WITHOUT_HEAD}"):
        assemble_pair(Sources(whole, folder, **ON_CPU))
    with pytest.raises(UserError, match=WITHOUT_HEAD):
        load_target(folder, torch.device("cpu"), "fp32")


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ("w1", "tensors of some layers are missing or have the wrong shape; choose"),
        ("w2", r"of another shape: model\.layers\.0\.mlp\.experts\.down_proj"),
    ],
)
def test_a_mixture_without_a_part_of_one_expert_is_refused(tmp_path, matrix, words):
    folder = save(built(MIXTURE), TOKENIZER, tmp_path)
    drop(tmp_path, rf"layers\.0\..*experts\.1\.{matrix}")
    with pytest.raises(UserError, match=words):
        assemble_pair(Sources(folder, "none", **ON_CPU))


@pytest.mark.parametrize("name", [*ARCHITECTURES, "mixtral"])
@pytest.mark.parametrize(("tied", "shard"), [(True, "10KB"), (False, "1GB")])
def test_a_whole_checkpoint_loads(tmp_path, name, tied, shard):
    model = built(ARCHITECTURES.get(name, MIXTURE), tie_word_embeddings=tied)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    TOKENIZER.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or shard == "1GB"
    pair = assemble_pair(Sources(str(tmp_path), "none", **ON_CPU))
    assert sum(weight.numel() for weight in pair.target.parameters()) > 0


def hub_gpt2(state):
    """Name tensors as the first checkpoints of GPT-2 do: without prefix and head, and with the masks."""
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 512, 512).tril() for layer in range(2)}
    constants = {f"h.{layer}.attn.masked_bias": torch.tensor(-1e4) for layer in range(2)}
    return {name.removeprefix("transformer."): tensor for name, tensor in state.items()} | masks | constants


def old_neox(state):
    attention = [f"gpt_neox.layers.{layer}.attention" for layer in range(2)]
    return (
        state
        | {f"{name}.bias": torch.ones(1, 1, 512, 512).tril() for name in attention}
        | {f"{name}.masked_bias": torch.tensor(-1e9) for name in attention}
        | {f"{name}.rotary_emb.inv_freq": torch.ones(1) for name in attention}
    )


def with_both_copies(state):
    return state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()}


@pytest.mark.parametrize(
    ("name", "tied", "change"),
    [
        ("gpt2", True, hub_gpt2),
        ("gpt-neox", False, old_neox),
        ("qwen2", True, with_both_copies),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_buffers_of_old_checkpoints_and_copies_of_tied_weights_are_no_damage(tmp_path, name, tied, change):
    model = built(ARCHITECTURES[name], tie_word_embeddings=tied)
    folder = save(model, TOKENIZER, tmp_path)
    edit(tmp_path, change)
    record, _ = run(load_sources(Sources(folder, "none", **ON_CPU)), drafter="prompt-lookup")
    assert list(record.lanes["speculative"].ids) == own_text(model, record, 10)


def train(part: str, folder: Path, width: int = 16, ids: torch.Tensor = FIRST) -> None:
    """Save a draft of a kind for a target of this width."""
    target = tiny_llama(len(TOKENIZER), 0, torch.float32, width=width)
    if part == "draft":
        save_draft(slice_of_target(target, [0], ids), folder)
    else:
        save_feature_draft(feature_draft_for(target, ids), folder)


def with_id(token: int) -> torch.Tensor:
    return torch.where(FIRST == 3, token, FIRST)


def add_adapter(part: str, folder: Path) -> None:
    edit(folder, lambda state: state | {"adapter.weight": torch.ones(2, dtype=torch.bfloat16)})


BOTH = ("draft", "feature_draft")
DAMAGED = [
    *((part, lambda _, folder: drop(folder, "norm"), r"missing: .*norm\.weight") for part in BOTH),
    *((part, lambda _, folder: drop(folder, rf"\{SCALE}$"), "of another shape or type: ") for part in BOTH),
    *((part, add_adapter, r"unexpected: adapter\.weight") for part in BOTH),
    *(
        (part, lambda part, folder: train(part, folder, width=32), "for a target of width 32")
        for part in BOTH
    ),
    ("draft", lambda part, folder: train(part, folder, ids=with_id(-1)), "token ids .* are damaged"),
    ("draft", lambda part, folder: train(part, folder, ids=with_id(2)), "token ids .* are damaged"),
    ("feature_draft", lambda _, folder: drop(folder, "id_map"), "'id_map'"),
    ("feature_draft", lambda _, folder: configure(folder, CONFIG_FILE, taps=[1, 7]), "more than 2 layers"),
]


@pytest.mark.parametrize(("part", "damage", "words"), DAMAGED)
def test_a_trained_draft_that_is_damaged_or_for_another_target_is_refused(
    whole, tmp_path, part, damage, words
):
    train(part, tmp_path)
    damage(part, tmp_path)
    with pytest.raises(UserError, match=words):
        assemble_pair(Sources(**{"target": whole, "draft": "none", part: str(tmp_path)}, **ON_CPU))
