"""The cache: after any rollback, the same logits as a plain forward pass."""

import pytest
import torch
from helpers.tiny import at_least, tiny_llama
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.models.runtime import ModelRuntime

pytestmark = pytest.mark.usefixtures("one_thread")


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
        with torch.inference_mode():
            plain = model(torch.tensor([text]), use_cache=False).logits[0, -len(chunk) :]
        torch.testing.assert_close(logits, plain, rtol=1e-9, atol=1e-9)
        text = text[: data.draw(st.integers(0, len(text)))]
        runtime.rollback(len(text))
        with pytest.raises(ValueError, match="cannot roll back"):
            runtime.rollback(len(text) + 1)
