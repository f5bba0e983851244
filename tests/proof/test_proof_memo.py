"""A memoised model returns the model's own bits and computes each row once."""

import random
import threading
from typing import Any

import pytest
import torch
from helpers.tiny import padding, tiny_llama

from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.proof.memo import MemoRuntime, threads

VOCAB = 5
PROMPT = [3, 1, 4, 1]

pytestmark = pytest.mark.usefixtures("one_thread")


class Counting(ModelRuntime):
    def __init__(self, model):
        super().__init__(model)
        self.forwards: list[list[int]] = []
        self.prefills: list[list[int]] = []

    def forward(self, ids):
        self.forwards.append(ids.tolist())
        return super().forward(ids)

    def prefill(self, ids):
        self.prefills.append(ids.tolist())
        super().prefill(ids)


@pytest.fixture
def inner():
    return Counting(tiny_llama(VOCAB, 2))


@pytest.fixture
def memo(inner):
    return start(MemoRuntime(inner))


def start(runtime: Any, prompt: list[int] = PROMPT, capacity: int = 256) -> Any:
    runtime.begin(capacity)
    runtime.prefill(torch.tensor(prompt[:-1]))
    return runtime


def passes(memo: MemoRuntime, *chunks: list[int]) -> list[torch.Tensor]:
    return [memo.forward(torch.tensor(chunk)) for chunk in chunks]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fp32", "compiled"])
def test_every_row_equals_the_models_bit_for_bit(kind):
    model = tiny_llama(VOCAB, 2, torch.float32)
    rows = padding(model) if kind == "fp32" else ()
    model = model if kind == "fp32" else CompiledLlama(model)
    same = torch.equal if rows or kind == "compiled" else torch.allclose
    memo = MemoRuntime(ModelRuntime(model, rows))
    choices = random.Random(0)
    for _ in range(20):
        plain = ModelRuntime(model, rows)
        for runtime in (memo, plain):
            start(runtime)
        chunk = PROMPT[-1:]
        while memo.length < 10:
            ids = torch.tensor(chunk)
            assert same(memo.forward(ids), plain.forward(ids))
            length = choices.randint(len(PROMPT), memo.length)
            for runtime in (memo, plain):
                runtime.rollback(length)
            chunk = [choices.randrange(2) for _ in range(choices.randint(1, 3))]
    assert memo.passes < memo.asked / 2


def test_a_text_is_computed_once_and_a_branch_from_its_first_new_token(inner, memo):
    first = passes(memo, [1, 0, 2])[0]
    start(memo)
    assert torch.equal(first, torch.cat(passes(memo, [1], [0, 2])))
    assert inner.forwards == [[1, 0, 2]] and inner.prefills == [PROMPT[:-1]]
    assert (memo.asked, memo.passes) == (3, 1)
    memo.rollback(len(PROMPT) + 1)
    passes(memo, [3])
    start(memo)
    passes(memo, [1], [0], [2], [4])
    # What replaced the 2 in the model's cache is replaced again.
    assert inner.forwards == [[1, 0, 2], [3], [2, 4]]
    for length in (-1, memo.length + 1):
        with pytest.raises(ValueError, match="cannot roll back"):
            memo.rollback(length)


def test_pass_skips_known_rows_and_fills_a_gap_in_the_cache(inner, memo):
    passes(memo, [1, 0])
    memo.rollback(len(PROMPT) - 1)
    passes(memo, [2])
    memo.rollback(len(PROMPT) - 1)
    rows = passes(memo, [1, 0, 3, 3])[0]
    assert inner.forwards == [[1, 0], [2], [1, 0, 3, 3]]
    assert rows.shape == (4, VOCAB) and memo.length == len(PROMPT) + 3


def test_rows_are_separate_for_each_capacity_and_prompt(inner, memo):
    passes(memo, [1])
    passes(start(memo, capacity=512), [1])
    assert inner.forwards == [[1], [1]] and inner.capacity == 512
    other = passes(start(memo, [2, 2, 2], 512), [1])[0]
    plain = start(ModelRuntime(inner.model), [2, 2, 2], 512)
    assert torch.equal(other, plain.forward(torch.tensor([1])))


def test_thread_limit_applies_only_to_its_own_thread():
    seen = []
    torch.set_num_threads(3)
    try:
        with threads(1):
            other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
            other.start()
            other.join()
            seen.append(torch.get_num_threads())
            with threads(2):
                seen.append(torch.get_num_threads())
        assert [*seen, torch.get_num_threads()] == [3, 1, 2, 3]
    finally:
        torch.set_num_threads(1)
