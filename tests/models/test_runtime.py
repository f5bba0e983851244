"""The cache: same logits as a plain forward pass, rollback equal to a fresh prefill, any architecture."""

import itertools
import json
from dataclasses import asdict, replace

import pytest
import torch
from helpers.tiny import at_least, tiny_llama
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, GPTNeoXConfig, Qwen2Config

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.rules import GreedyRule
from specdemo.models.attention import ATTENTION
from specdemo.models.runtime import ModelRuntime, Stopwatch, capacity_for
from specdemo.pairs import calibrate
from specdemo.pairs.calibrate import (
    REPEATS,
    calibration_from,
    find_good_rows,
    measure_draft_step,
    measure_target,
    refreshed,
    steady_medians,
)
from specdemo.records.trace import Calibration

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
ARCHITECTURES = {
    "gpt2": GPT2Config(n_embd=16, n_layer=2, n_head=4, n_positions=64, vocab_size=11),
    "qwen2": Qwen2Config(**SMALL, intermediate_size=32, num_key_value_heads=2, vocab_size=11),
    "gpt-neox": GPTNeoXConfig(**SMALL, intermediate_size=32, vocab_size=11),
    "gemma3": Gemma3TextConfig(
        **SMALL, intermediate_size=32, num_key_value_heads=2, head_dim=4, vocab_size=11, sliding_window=4
    ),
}


def plain_logits(model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


@settings(max_examples=30)
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
    rolled.prefill(ids)
    rolled.forward(torch.tensor([4, 4, 4]))
    rolled.rollback(len(ids))
    fresh.prefill(ids)
    for old, new in zip(rolled.cache.layers, fresh.cache.layers, strict=True):
        assert torch.equal(old.keys[:, :, : len(ids)], new.keys[:, :, : len(ids)])
        assert torch.equal(old.values[:, :, : len(ids)], new.values[:, :, : len(ids)])
    following = torch.tensor([2, 0])
    assert torch.equal(rolled.forward(following), fresh.forward(following))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_other_architectures_run_over_the_same_cache(name):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[name], attn_implementation=ATTENTION)
    model = model.to(torch.float64).eval()
    ids = [1, 5, 2, 9, 0, 3, 7, 7, 10, 4, 6]
    runtime = ModelRuntime(model, at_least(2))
    runtime.begin(64)
    runtime.prefill(torch.tensor(ids[:6]))
    runtime.forward(torch.tensor([8, 8, 8]))
    runtime.rollback(6)
    steps = [runtime.forward(torch.tensor(part)) for part in ([ids[6]], ids[7:10], [ids[10]])]
    torch.testing.assert_close(torch.cat(steps), plain_logits(model, ids)[6:], rtol=1e-6, atol=1e-8)


def test_rolling_back_to_the_future_is_an_error():
    runtime = ModelRuntime(tiny_llama(7, 0))
    runtime.begin(64)
    with pytest.raises(ValueError, match="cannot roll back"):
        runtime.rollback(1)


def off_by(amount_of):
    """A forward pass that is exact but for what ``amount_of`` says of its number of rows."""

    def forward(self, ids):
        self.length += len(ids)
        return ids[:, None].double() + amount_of(self.padded(len(ids)))

    return forward


@pytest.mark.parametrize(
    ("odd", "good"),
    [
        # As with tiles of six rows: what is left over behind whole tiles is summed in another order.
        ((1, 2, 7, 14), {3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16}),
        ((15, 16), set(range(1, 15))),
        ((), set(range(1, 17))),
    ],
)
def test_good_rows_are_the_largest_set_that_agrees_and_holds_the_longest_pass(odd, good, monkeypatch):
    monkeypatch.setattr(calibrate, "alike", lambda model, reference, counts: set(counts))
    monkeypatch.setattr(ModelRuntime, "forward", off_by(lambda rows: float(rows in odd)))
    assert set(find_good_rows(tiny_llama(7, 0), 256, 7)) == good


def test_the_self_test_notices_when_no_numbers_of_rows_agree(monkeypatch):
    monkeypatch.setattr(ModelRuntime, "forward", off_by(lambda rows: torch.rand(1).item()))
    assert find_good_rows(tiny_llama(7, 0), 256, 7) == ()


def test_passes_take_the_cheapest_good_number_of_rows_that_holds_them(monkeypatch):
    model = tiny_llama(7, 0)
    seconds = {1: 9.0, 3: 3.0, 4: 2.0, 5: 2.01, 8: 4.0, 13: 8.0, 16: 7.0}
    monkeypatch.setattr(calibrate, "steady_medians", lambda measures: {n: seconds[n] for n in measures})
    asked = []
    monkeypatch.setattr(calibrate, "_padding_cost", lambda runtime, ids, rows: asked.append(rows) or 1.25)
    costs = measure_target(model, 256, 7, good=[3, 4, 5, 8, 13, 16])
    assert costs.rows == (4, 4, 4, 4, 5, 8, 8, 8, *[16] * 5) and costs.row_floor == 4 and asked == [4]
    assert costs.step_s == 2.0 / 1.25 and costs.v[:4] == (1.25,) * 4 and costs.v[12] == 3.5 * 1.25
    assert costs.floor_cost == 1.25


@pytest.mark.parametrize(("ratio", "told"), [(1.06, 1.06), (1.5, 1.5), (0.9, 1.0)])
def test_what_padding_costs_is_the_ratio_of_many_turns(ratio, told, monkeypatch):
    moments = itertools.count()

    def timed(_runtime, ids):
        """A single slow moment, and a machine that gets faster all the while."""
        return lambda: (
            (9.0 if next(moments) == 6 else 1 / (1 + next(moments) / 1000)) * (ratio if len(ids) > 1 else 1)
        )

    monkeypatch.setattr(calibrate, "timed_pass", timed)
    monkeypatch.setattr(calibrate, "PADDING_S", 0.0)
    monkeypatch.setattr(calibrate, "FEWEST_TURNS", 15)
    assert calibrate._padding_cost(None, torch.zeros(4), 3) == pytest.approx(told, rel=0.02)
    assert calibrate._padding_cost(None, torch.zeros(4), 1) == 1.0


def test_a_pass_is_never_thought_dearer_than_as_many_single_ones(monkeypatch):
    seconds = dict.fromkeys(range(1, 17), 1.0) | {3: 50.0}
    monkeypatch.setattr(calibrate, "steady_medians", lambda measures: {n: seconds[n] for n in measures})
    assert measure_target(tiny_llama(7, 0), 256, 7, good=()).v[2] == 3.0


def test_medians_are_repeated_until_two_agree_and_a_slow_moment_is_forgotten():
    slow = iter([9.0] * (1 + REPEATS) + [1.0] * 99)
    assert steady_medians({1: lambda: next(slow)}) == {1: 1.0}
    count = iter(range(10**6))
    steady_medians({1: lambda: 1.0 + 0 * next(count)})
    assert next(count) == 1 + 2 * REPEATS, "two batches that agree are enough"
    restless = iter(range(10**6, 0, -(10**4)))
    assert steady_medians({1: lambda: float(next(restless))})[1] < 10**6


def test_costs_of_an_earlier_start_are_checked(monkeypatch):
    model = tiny_llama(7, 0)
    kept = Calibration(step_s=5.0, c=0.0, v=(1.0, *[1.5] * 12), row_floor=1)
    for longer, holds in ((1.6, True), (3.0, False), (1.0, False)):
        monkeypatch.setattr(calibrate, "steady_medians", lambda measures, v=longer: {1: 2.0, 5: 2.0 * v})
        found = refreshed(model, 256, 7, calibration_from(json.loads(json.dumps(asdict(kept)))))
        assert found == (replace(kept, step_s=2.0) if holds else None)


def test_what_padding_costs_is_measured_at_each_start(monkeypatch):
    kept = Calibration(step_s=5.0, c=0.0, v=(1.25, *[1.5] * 12), row_floor=3, rows=at_least(3))
    monkeypatch.setattr(calibrate, "steady_medians", lambda measures: {1: 2.0, 5: 2.4})
    monkeypatch.setattr(calibrate, "_padding_cost", lambda runtime, ids, rows: 1.0 + rows / 100)
    monkeypatch.setattr(calibrate, "_agreeing", lambda runtime, ids, reference, candidates: tuple(candidates))
    found = refreshed(tiny_llama(7, 0), 256, 7, kept)
    assert found.step_s == pytest.approx(2.0 / 1.03) and found.floor_cost == pytest.approx(1.03)
    assert found.v[1] == pytest.approx(1.5 / 1.25 * 1.03)


KEPT = {"step_s": 5.0, "c": 0.0, "v": [1.0] * 13, "row_floor": 3, "rows": list(at_least(3))}


@pytest.mark.parametrize(
    "change",
    [
        {"v": [1.0] * 12},
        {"v": [1.0] * 14},
        {"v": [0.0] * 13},
        {"v": ["1"] * 13},
        {"v": [float("nan")] * 13},
        {"v": 1.0},
        {"rows": [3]},
        {"rows": [1] * 13},
        {"rows": [17] * 13},
        {"rows": [3.5] * 13},
        {"rows": None},
        {"step_s": 0.0},
        {"step_s": None},
        {"c": -1.0},
        {"row_floor": "3"},
        {"of a later version": 1},
    ],
    ids=repr,
)
def test_costs_of_another_shape_are_none(change):
    assert calibration_from(KEPT).rows == at_least(3)
    assert calibration_from({**KEPT, **change}) is None


@pytest.mark.parametrize("kept", [None, 1, "x", [], {}, [KEPT]], ids=repr)
def test_what_is_no_calibration_is_none(kept):
    assert calibration_from(kept) is None


def test_padding_of_an_earlier_start_is_tested_again(monkeypatch):
    kept = Calibration(step_s=5.0, c=0.0, v=(1.0,) * 13, row_floor=3, rows=at_least(3))
    monkeypatch.setattr(calibrate, "steady_medians", lambda measures: {1: 2.0, 5: 2.0})
    monkeypatch.setattr(calibrate, "_padding_cost", lambda runtime, ids, rows: 1.0)
    for odd, holds in (((1, 2), True), ((7,), False)):
        monkeypatch.setattr(ModelRuntime, "forward", off_by(lambda rows, odd=odd: float(rows in odd)))
        assert refreshed(tiny_llama(7, 0), 256, 7, kept) == (replace(kept, step_s=2.0) if holds else None)


def test_measured_costs_are_positive_and_relative_to_one_pass():
    model = tiny_llama(7, 0, torch.float32)
    runtime = ModelRuntime(model)
    costs = measure_target(model, 256, 7, good=range(2, 17))
    assert costs.step_s > 0 and costs.c == 0 and len(costs.v) == 13 and min(costs.v) > 0
    assert 2 <= costs.row_floor == costs.rows[0] <= 16 and costs.v[0] >= 1
    assert measure_target(model, 256, 7, good=()).v[0] == 1
    assert measure_draft_step(runtime, DraftModelDrafter(ModelRuntime(model)), GreedyRule(), 256, 7) > 0


def test_capacity_grows_in_steps():
    assert [capacity_for(n) for n in (1, 256, 257)] == [256, 256, 512]


def test_stopwatch_gives_one_figure_a_lap():
    watch = Stopwatch(torch.device("cpu"))
    watch.lap()
    watch.lap()
    assert len(watch.laps()) == 2 and min(watch.laps()) >= 0
