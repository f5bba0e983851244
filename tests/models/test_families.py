"""Families of causal language models: each writes the same as transformers, or is refused with a reason."""

import copy

import pytest
import torch
import transformers
from helpers.on_disk import save
from helpers.tiny import baseline_rounds, byte_tokenizer, config_for, emitted, speculative_rounds, tiny_llama
from torch import nn
from transformers import AutoModelForCausalLM

from specdemo.models.attention import ATTENTION, UnsupportedAttentionError, grouped_attention
from specdemo.models.batch_invariance import find_batch_invariant_rows
from specdemo.models.layer_views import decoder_layers, first_layers, hidden_states
from specdemo.models.reduced_draft import slice_of_target
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.compatible import require_no_state, require_rollback
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB = 60
PROMPT = [5, 9, 17, 33, 21, 8, 40]
TOKENS = 30
WINDOW = 8  # far shorter than the output, so that a token outside the window would change the text
ALTERNATING = ["sliding_attention", "full_attention"] * 2
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 4.0, 8.0, 16.0],
    "original_max_position_embeddings": 32,
}
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.5,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4}
GRANITE = {
    "num_local_experts": 0,
    "shared_intermediate_size": 48,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
}


class Family:
    def __init__(self, config: str, **settings: object):
        self.config = getattr(transformers, config)(**{**COMMON, **settings})

    def build(self, attention: str = ATTENTION, dtype: torch.dtype = torch.float64) -> nn.Module:
        torch.manual_seed(0)
        config = copy.deepcopy(self.config)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval()


FAMILIES = {
    "llama": Family("LlamaConfig"),
    "qwen2": Family("Qwen2Config", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2),
    "qwen3": Family("Qwen3Config"),
    "mistral": Family("MistralConfig", sliding_window=WINDOW),
    "gemma2": Family(
        "Gemma2Config", sliding_window=WINDOW, attn_logit_softcapping=2.0, query_pre_attn_scalar=1
    ),
    "gemma3": Family("Gemma3TextConfig", sliding_window=WINDOW, layer_types=ALTERNATING),
    "gpt2": Family("GPT2Config", **OLD),
    "gpt-neox": Family("GPTNeoXConfig"),
    "phi3": Family("Phi3Config", sliding_window=WINDOW),
    "olmo3": Family("Olmo3Config", sliding_window=WINDOW, layer_types=ALTERNATING),
    "llama4": Family("Llama4TextConfig", attention_chunk_size=WINDOW, num_local_experts=2),
    "opt": Family("OPTConfig", ffn_dim=48, word_embed_proj_dim=32, init_std=0.5),
    "bloom": Family("BloomConfig", n_layer=2, n_head=4),
    # Needs the result of attention in one piece of memory.
    "jetmoe": Family("JetMoeConfig", kv_channels=8, num_local_experts=4),
    # Classes for recurrent layers, here without any.
    "granite": Family("GraniteMoeHybridConfig", **GRANITE, layer_types=["attention"] * 4),
    "jamba": Family("JambaConfig", num_experts=2, attn_layer_period=1, attn_layer_offset=0),
}
SINGLE = dict.fromkeys(("jetmoe", "jamba"), torch.float32)  # experts are not computed in float64

NEXT = {
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    "num_experts": 4,
}
STATE = "has a recurrent state, which cannot be rolled back; choose a model with standard causal attention"
FAILS = "fails after a rollback of the KV cache"
REFUSED = {
    "mamba": (Family("MambaConfig", state_size=8), STATE),
    "rwkv": (Family("RwkvConfig", attention_hidden_size=32), STATE),
    "lfm2": (Family("Lfm2Config", layer_types=["conv", "full_attention"] * 2), STATE),
    "qwen3-next": (Family("Qwen3NextConfig", **NEXT), STATE),
    "granite": (Family("GraniteMoeHybridConfig", **GRANITE, layer_types=["mamba", "attention"] * 2), STATE),
    "gpt-oss": (
        Family("GptOssConfig", num_local_experts=4, sliding_window=WINDOW),
        "uses attention with s_aux",
    ),
    # Reads each pass as a text of its own.
    "openai-gpt": (
        Family("OpenAIGPTConfig", **OLD),
        "computes different logits with a KV cache than without",
    ),
    # Attends in both directions.
    "bert": (Family("BertConfig", is_decoder=False), FAILS),
    # Sizes a table by its longest text, which the cache's rounded length exceeds.
    "mpt": (Family("MptConfig", d_model=32, n_heads=4, max_seq_len=128), FAILS),
}


def nearby(model: nn.Module, noise: float) -> nn.Module:
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in other.parameters():
            if weight.dim() > 1:
                scale = noise * weight.std()
                weight += scale * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return other


def expected_ids(model: nn.Module, tokens: int) -> list[int]:
    """Return the text of transformers itself: eager attention, the whole text processed for every token."""
    config = copy.deepcopy(model.config)
    plain = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    plain = plain.to(next(model.parameters()).dtype).eval()
    plain.load_state_dict(model.state_dict())
    text = torch.tensor([PROMPT])
    written = plain.generate(text, do_sample=False, max_new_tokens=tokens, use_cache=False)
    return written[0, len(PROMPT) :].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_writes_what_transformers_writes_with_and_without_a_draft(name):
    model = FAMILIES[name].build(dtype=SINGLE.get(name, torch.float64))
    require_no_state("target", name, model)
    require_rollback("target", name, model)
    assert model.config._attn_implementation == ATTENTION
    expected = expected_ids(model, TOKENS)
    assert len(set(expected)) > 5, "a text that repeats itself proves little"
    config = config_for(k=4, max_new_tokens=TOKENS)
    assert emitted(baseline_rounds(model, PROMPT, config)) == expected
    rounds = speculative_rounds(model, nearby(model, 0.05), PROMPT, config)
    assert emitted(rounds) == expected
    assert sum(round_.accepted for round_ in rounds) > 0
    assert any(round_.accepted < len(round_.drafted) for round_ in rounds)


@pytest.mark.parametrize("name", FAMILIES)
def test_rounding_in_bf16_is_not_taken_for_another_computation(name):
    model = FAMILIES[name].build(dtype=torch.bfloat16)
    require_no_state("target", name, model)
    require_rollback("target", name, model)


@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_cannot_be_rolled_back_is_refused(name):
    kind, words = REFUSED[name]
    model = kind.build(dtype=torch.float32)
    with pytest.raises(UserError, match=f"^The target model some/{name} {words}"):
        require_no_state("target", f"some/{name}", model)
        require_rollback("target", f"some/{name}", model)


def test_a_folder_that_cannot_be_rolled_back_is_refused_in_either_role(tmp_path):
    tokenizer = byte_tokenizer()
    vocab = len(tokenizer)
    # Has its own list of attentions, which lacks ours.
    neo = Family("GPTNeoConfig", attention_types=[[["global"], 4]], vocab_size=vocab)
    models = {
        "good": tiny_llama(vocab, 0, torch.float32),
        "mamba": Family("MambaConfig", state_size=8, vocab_size=vocab).build(dtype=torch.float32),
        "gpt-neo": neo.build("eager", torch.float32),
    }
    good, mamba, gpt_neo = (save(model, tokenizer, tmp_path / name) for name, model in models.items())
    for pair, words in (
        ((mamba, good), f"^The target model {mamba} has a recurrent state"),
        ((good, mamba), f"^The draft model {mamba} has a recurrent state"),
        ((good, gpt_neo), f"^{gpt_neo} computes attention in a way that specdemo cannot replace"),
    ):
        with pytest.raises(UserError, match=words):
            load_sources(Sources(*pair, device="cpu", precision="fp32"))


@pytest.mark.parametrize("name", ["s_aux", "position_bias"])
def test_attention_inputs_that_are_not_computed_are_never_ignored(name):
    heads = torch.rand(1, 2, 3, 4)
    mask = torch.zeros(1, 1, 3, 3)
    grouped_attention(nn.Module(), heads, heads, heads, mask, dropout=0.0, **{name: None})
    with pytest.raises(UnsupportedAttentionError, match=name):
        grouped_attention(nn.Module(), heads, heads, heads, mask, dropout=0.0, **{name: torch.ones(2)})


def with_images(layers: int) -> nn.Module:
    """Return a model of text and images with ``layers`` layers for each."""
    sizes = COMMON | {"num_hidden_layers": layers}
    images = {"image_size": 4, "patch_size": 2, "num_channels": 1}
    images |= {key: sizes[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    config = transformers.Gemma3Config(
        text_config=sizes, vision_config={**images, "num_attention_heads": 4}, mm_tokens_per_image=4
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()


@pytest.mark.parametrize("name", [*FAMILIES, "with images"])
@torch.inference_mode()
def test_the_layers_of_text_are_found_for_early_exit_and_for_drafts(name):
    model = with_images(4) if name == "with images" else FAMILIES[name].build(dtype=torch.float32)
    ids, layers = torch.tensor([PROMPT]), list(range(len(decoder_layers(model))))
    with hidden_states([decoder_layers(model)[-1]]) as states:
        expected = model(input_ids=ids, use_cache=False).logits
    assert torch.equal(first_layers(model, len(layers))(input_ids=ids, use_cache=False).logits, expected)
    assert first_layers(model, 1)(input_ids=ids, use_cache=False).logits.isfinite().all()
    draft = slice_of_target(model, layers, torch.arange(VOCAB)).eval()
    with hidden_states([decoder_layers(draft)[-1]]) as copied:
        draft(input_ids=ids, use_cache=False)
    assert torch.equal(copied[0], states[0])


def test_a_context_ends_where_the_encoding_of_positions_would_change():
    limit = LONGROPE["original_max_position_embeddings"]
    model = Family("Phi3Config", rope_parameters=LONGROPE, original_max_position_embeddings=limit).build()
    rounds = baseline_rounds(model, PROMPT, config_for(max_new_tokens=TOKENS))
    assert rounds[-1].finish is Finish.CONTEXT
    assert emitted(rounds) == expected_ids(model, limit - len(PROMPT))


def test_a_draft_that_reads_less_than_its_target_does_not_fail():
    target, draft = FAMILIES["llama"].build(), Family("GPT2Config", **OLD, max_position_embeddings=16).build()
    config = config_for(k=4, max_new_tokens=TOKENS)
    assert emitted(speculative_rounds(target, draft, PROMPT, config)) == expected_ids(target, TOKENS)


def test_capped_attention_and_a_cache_longer_than_the_context_can_be_measured():
    assert ModelRuntime(FAMILIES["gpt2"].build()).max_context == 128
    for name, dtype in (("gemma2", torch.bfloat16), ("gpt2", torch.float32)):
        assert find_batch_invariant_rows(FAMILIES[name].build(dtype=dtype))
