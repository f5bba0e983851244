"""Batched passes compute the same logits as single ones."""

import pytest
import torch
from helpers.tiny import tiny_llama
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config

from specdemo.models.attention import ATTENTION
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.execution import execution_of
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.reduced_draft import slice_of_target

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS, CAPACITY = 3, 64
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
OTHERS = {
    "gpt2": GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=64, vocab_size=50),
    "gemma3": Gemma3TextConfig(
        **SMALL, intermediate_size=32, num_key_value_heads=2, head_dim=4, vocab_size=50, sliding_window=4
    ),
}


def texts(count: int, vocab: int = 50) -> torch.Tensor:
    """Return different texts of one length, [ROWS, count]."""
    return torch.randint(vocab, (ROWS, count), generator=torch.Generator().manual_seed(0))


def plain_logits(model, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([model(row[None], use_cache=False).logits[0] for row in ids])


KINDS = {
    "fused": FusedLlama,
    "plain": lambda model: model,
}


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_a_batch_scores_every_text_as_if_it_were_alone(kind):
    model = tiny_llama(50, seed=1, dtype=torch.float32)
    if kind in OTHERS:
        model = AutoModelForCausalLM.from_config(OTHERS[kind], attn_implementation=ATTENTION).eval()
    ids = texts(9)
    wanted = plain_logits(model, ids)
    batch = execution_of(KINDS.get(kind, KINDS["plain"])(model)).batch(ROWS, CAPACITY)
    got = [batch(ids[:, :4], 0), batch(ids[:, 4:5], 4)]
    batch(texts(3), 5)  # the next pass overwrites it
    got.append(batch(ids[:, 5:], 5))
    torch.testing.assert_close(torch.cat(got, 1), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [CompiledLlama, KINDS["plain"]])
def test_a_draft_with_a_reduced_head_can_be_batched(kind):
    target = tiny_llama(50, seed=1, dtype=torch.float32)
    draft = kind(slice_of_target(target, [0, 1], torch.arange(0, 50, 2)))
    ids = texts(5)
    got = execution_of(draft).batch(ROWS, CAPACITY)(ids, 0)
    torch.testing.assert_close(got, plain_logits(target, ids)[..., ::2], rtol=1e-4, atol=1e-4)
