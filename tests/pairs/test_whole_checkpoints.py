"""A load accounts for every tensor: damaged checkpoints are refused with the names of the first ones."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers.on_disk import ON_CPU, own_text, run, save
from helpers.tiny import byte_tokenizer, tiny_llama
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdemo.models.draft_files import SCALE
from specdemo.models.feature_draft import CONFIG_FILE, feature_draft_for, save_feature_draft
from specdemo.models.reduced_draft import save_draft, slice_of_target
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


def settings(folder: Path, name: str = "config.json", **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight")


def without_head(model: Any, folder: Path) -> str:
    drop(folder, r"^(lm_head|embed_out)\.")
    return r"missing: lm_head\.weight"


def without_a_norm(model: Any, folder: Path) -> str:
    lost = next(name for name in sorted(load_file(folder / WEIGHTS)) if "1.input_layernorm.w" in name)
    drop(folder, re.escape(lost))
    return f"missing: {lost}"


def foreign_prefix(model: Any, folder: Path) -> str:
    edit(folder, lambda state: {f"base_model.model.{name}": tensor for name, tensor in state.items()})
    return r"missing: .* and \d+ more; unexpected: base_model\.model\..* and \d+ more"


def fewer_layers_in_the_config(model: Any, folder: Path) -> str:
    settings(folder, num_hidden_layers=1, n_layer=1, layer_types=None)
    return r"unexpected: .*\.1\."


def more_layers_in_the_config(model: Any, folder: Path) -> str:
    settings(folder, num_hidden_layers=3, n_layer=3, layer_types=None)
    return r"missing: .*\.2\."


def another_shape(model: Any, folder: Path) -> str:
    embedding = next(name for name in load_file(folder / WEIGHTS) if name.endswith(EMBEDDINGS))
    edit(folder, lambda state: state | {embedding: state[embedding][:-3].clone()})
    return f"of another shape: {embedding}"


def tied_in_the_config_only(model: Any, folder: Path) -> str:
    settings(folder, tie_word_embeddings=True)
    return r"stored twice with different values: lm_head\.weight"


def classifier(model: Any, folder: Path) -> str:
    transformers.AutoModelForSequenceClassification.from_config(model.config).save_pretrained(folder)
    return r"missing: lm_head\.weight; unexpected: score\.weight"


EVERYWHERE = (without_head, foreign_prefix, fewer_layers_in_the_config, more_layers_in_the_config)
EVERYWHERE += (another_shape, tied_in_the_config_only)
IMPOSSIBLE = {(classifier, "opt"), (without_a_norm, "gpt2"), (without_a_norm, "opt")}
DAMAGES = [
    pytest.param(damage, name, marks=() if name == "llama" or damage is another_shape else pytest.mark.slow)
    for damage in (*EVERYWHERE, classifier, without_a_norm)
    for name in ARCHITECTURES
    if (damage, name) not in IMPOSSIBLE
]
"""All of Llama in the fast run; all others with the slow tests."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    model = tiny_llama(len(TOKENIZER), 0, torch.float32)
    return save(model, TOKENIZER, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("damage", "name"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_a_damaged_checkpoint_is_refused_with_the_first_names(tmp_path, damage, name):
    model = built(ARCHITECTURES[name])
    folder = save(model, TOKENIZER, tmp_path)
    words = damage(model, tmp_path)
    with pytest.raises(UserError, match=rf"^Cannot load {folder}: .*\({words}.*\); choose [^.]*\.$"):
        assemble_pair(Sources(folder, "none", **ON_CPU))


def test_a_damaged_draft_model_is_refused_and_a_damaged_target_writes_no_training_text(whole, tmp_path):
    model = built(ARCHITECTURES["llama"])
    folder = save(model, TOKENIZER, tmp_path)
    words = without_head(model, tmp_path)
    with pytest.raises(UserError, match=rf"^Cannot load {folder}: .*\({words}"):
        assemble_pair(Sources(whole, folder, **ON_CPU))
    with pytest.raises(UserError, match=words):
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


TRAINED = {
    "draft": (lambda target: slice_of_target(target, [0], torch.arange(100)), save_draft),
    "feature_draft": (lambda target: feature_draft_for(target, torch.arange(100)), save_feature_draft),
}


def assemble_with(whole: str, part: str, folder: Path) -> None:
    assemble_pair(Sources(**{"target": whole, "draft": "none", part: str(folder)}, **ON_CPU))


DAMAGED_TENSORS = {
    "norm": r"missing: .*norm\.weight.*",
    rf"\{SCALE}$": "of another shape or type: .*",
    "": r"unexpected: adapter\.weight",
    "id_map": "'id_map'",
}
"""Names of the tensors that are dropped, or none for a tensor that is added; the error."""


@pytest.mark.parametrize(
    ("part", "names"), [*product(TRAINED, [*DAMAGED_TENSORS][:3]), ("feature_draft", "id_map")]
)
def test_a_damaged_trained_draft_is_refused(whole, tmp_path, part, names):
    make, write = TRAINED[part]
    write(make(tiny_llama(len(TOKENIZER), 0, torch.float32)), tmp_path)
    if not names:
        edit(tmp_path, lambda state: state | {"adapter.weight": torch.ones(2, dtype=torch.bfloat16)})
    else:
        drop(tmp_path, names)
    words = rf"^Cannot load a .*draft for this target from {tmp_path} \({DAMAGED_TENSORS[names]}\)"
    with pytest.raises(UserError, match=words):
        assemble_with(whole, part, tmp_path)


@pytest.mark.parametrize("part", TRAINED)
def test_a_draft_for_a_target_of_another_width_is_refused(whole, tmp_path, part):
    make, write = TRAINED[part]
    write(make(tiny_llama(len(TOKENIZER), 0, torch.float32, width=32)), tmp_path)
    with pytest.raises(UserError, match=r"\(made for a target of width 32, not 16\); choose a folder"):
        assemble_with(whole, part, tmp_path)


@pytest.mark.parametrize("wrong_id", [-1, 2])
def test_a_draft_with_damaged_token_ids_is_refused(whole, tmp_path, wrong_id):
    ids = torch.arange(100)
    ids[3] = wrong_id
    save_draft(slice_of_target(tiny_llama(len(TOKENIZER), 0, torch.float32), [0], ids), tmp_path)
    with pytest.raises(UserError, match=r"^The token ids in this draft's files are damaged"):
        assemble_with(whole, "draft", tmp_path)


def test_a_feature_draft_for_a_deeper_target_is_refused(whole, tmp_path):
    make, write = TRAINED["feature_draft"]
    write(make(tiny_llama(len(TOKENIZER), 0, torch.float32)), tmp_path)
    settings(tmp_path, CONFIG_FILE, taps=[1, 7])
    with pytest.raises(UserError, match=r"\(made for a target of more than 2 layers\); choose a folder"):
        assemble_with(whole, "feature_draft", tmp_path)
