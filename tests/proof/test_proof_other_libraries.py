"""Decoding as other libraries do: only rounding differs, and a divergence is shown with its logits."""

import itertools
from dataclasses import replace

import pytest
import torch
from helpers.tiny import config_for, tiny_llama, tiny_pair

from specdemo.bench.prompts import Prompt
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.proof import other_libraries
from specdemo.proof.other_libraries import (
    GrowingRuntime,
    as_in_transformers,
    compare_as_others,
    others_sentence,
)

PROMPTS = [Prompt("one", "facts", "raw", "hello"), Prompt("two", "code", "chat", "def f")]
GREEDY = config_for(k=3, max_new_tokens=14)
PLANTED = 5

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.mark.parametrize("kind", ["fused", "generic", "compiled"])
def test_growing_cache_changes_logits_by_rounding_only(kind):
    model = tiny_llama(50, 0, torch.float32 if kind == "compiled" else torch.float64)
    model = {"fused": FusedLlama, "generic": lambda model: model, "compiled": CompiledLlama}[kind](model)
    ids = torch.arange(1, 13)
    growing, usual = GrowingRuntime(as_in_transformers(model)), ModelRuntime(model)
    lengths = []
    for runtime in (growing, usual):
        runtime.begin(64)
        runtime.prefill(ids[:4])
    real = growing.execution.run

    def run(ids, start, cache, *rest):
        known = getattr(cache, "positions", None)
        lengths.append(cache.layers[0].get_mask_sizes(len(ids))[0] if known is None else len(known))
        return real(ids, start, cache, *rest)

    growing.execution.run = run
    for start, end in ((4, 5), (5, 9), (7, 12)):
        for runtime in (growing, usual):
            runtime.rollback(start)
        found, expected = growing.forward(ids[start:end]), usual.forward(ids[start:end])
        close = {"rtol": 1e-4, "atol": 1e-4} if kind == "compiled" else {}
        torch.testing.assert_close(found, expected, **close)
        best = found[-1].float().topk(other_libraries.BEST)
        assert growing.best[end - 1] == dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    assert lengths == [5, 9, 12], "a pass reads as many positions as the text has"


@pytest.mark.parametrize("compiled", [True, False])
def test_exact_sums_give_identical_texts_and_the_smallest_gap(pair, compiled):
    pair = replace(tiny_pair(), target=CompiledLlama(tiny_pair().target)) if compiled else pair
    rows = list(compare_as_others(pair, PROMPTS, GREEDY))
    assert [(row.id, row.prompt) for row in rows] == [("one", "hello"), ("two", "def f")]
    assert all((row.identical, row.divergence, row.tokens) == (True, None, 14) for row in rows)
    assert all(row.candidates == () for row in rows)
    assert all(row.gap > 2 * row.shift >= 0 for row in rows), "otherwise rounding could have decided"
    assert others_sentence(rows).startswith("0 of 2 texts differ, 28 tokens compared. The two highest logits")


def test_divergence_by_rounding_is_shown_with_both_logits(pair, monkeypatch):
    place = len(pair.prompt_ids(GREEDY)) - 1 + PLANTED
    real = GrowingRuntime._run

    def rounded(self, ids, rows):
        logits = real(self, ids, rows)
        index = place - self.length
        if len(ids) > 1 and rows and 0 <= index < len(ids):
            first, second = logits[index].topk(2).indices
            logits[index, second] = logits[index, first] + 0.25
        return logits

    monkeypatch.setattr(GrowingRuntime, "_run", rounded)
    prompts = [Prompt("one", "facts", "raw", GREEDY.prompt)]
    [row] = compare_as_others(pair, prompts, GREEDY)
    assert not row.identical and row.divergence == PLANTED
    own, other = row.candidates
    assert row.gap == pytest.approx(own.alone - other.alone) and row.gap > 0
    assert other.verified - own.verified == pytest.approx(0.25, abs=1e-4)
    assert row.shift == pytest.approx(row.gap + 0.25, abs=1e-4)
    assert others_sentence([row]).startswith("1 of 1 texts differ, 14 tokens compared.")


def test_stop_drops_the_unfinished_row(pair):
    asked = itertools.count()
    assert list(compare_as_others(pair, PROMPTS, GREEDY, lambda: next(asked) > 3)) == []
