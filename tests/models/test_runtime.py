"""The cache: same logits as a plain forward pass, rollback equal to a fresh prefill."""

import pytest
import torch
from helpers.tiny import at_least, tiny_llama
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.models.runtime import ModelRuntime

pytestmark = pytest.mark.usefixtures("one_thread")


def plain_logits(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


@settings(max_examples=12)
@given(data=st.data(), seed=st.integers(0, 1000), floor=st.sampled_from([1, 2, 4]))
def test_any_mix_of_passes_and_rollbacks_equals_a_plain_forward(data, seed, floor):
    model = tiny_llama(7, seed)
    runtime = ModelRuntime(model, at_least(floor))
    runtime.begin(64)
    text: list[int] = []
    for _ in range(data.draw(st.integers(1, 6))):
        chunk = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
        logits = runtime.forward(torch.tensor(chunk))
        text += chunk
        assert runtime.length == len(text)
        torch.testing.assert_close(logits, plain_logits(model, text)[-len(chunk) :], rtol=1e-9, atol=1e-9)
        text = text[: data.draw(st.integers(0, len(text)))]
        runtime.rollback(len(text))


def test_rollback_leaves_the_cache_equal_to_a_fresh_prefill():
    model = tiny_llama(7, 3)
    ids = torch.tensor([1, 5, 2, 6, 0, 3])
    rolled, fresh = ModelRuntime(model), ModelRuntime(model)
    for runtime in (rolled, fresh):
        runtime.begin(64)
        runtime.prefill(ids)
    rolled.forward(torch.tensor([4, 4, 4]))
    rolled.rollback(len(ids))
    for old, new in zip(rolled.cache.layers, fresh.cache.layers, strict=True):
        assert torch.equal(old.keys[:, :, : len(ids)], new.keys[:, :, : len(ids)])
        assert torch.equal(old.values[:, :, : len(ids)], new.values[:, :, : len(ids)])
    following = torch.tensor([2, 0])
    assert torch.equal(rolled.forward(following), fresh.forward(following))
    with pytest.raises(ValueError, match="cannot roll back"):
        rolled.rollback(9)
