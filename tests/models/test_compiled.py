"""Compiled passes: transformers' numbers up to rounding, and the same bits for any cut and any threads."""

import copy
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from helpers.llamas import MODELS, POSITIONS, VOCAB, llama_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdemo.models.batch_invariance import find_batch_invariant_rows, is_batch_invariant
from specdemo.models.compiled import stack as stacks
from specdemo.models.compiled.feature import CompiledFeatureDraft
from specdemo.models.compiled.linear import CompiledLinear
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.compiled.product import pack
from specdemo.models.compiled.whole_pass import CHUNK
from specdemo.models.feature_draft import FeatureDraft, FeatureRuntime, feature_draft_for
from specdemo.models.layer_views import first_layers, hidden_states
from specdemo.models.reduced_draft import ReducedHeadDraft, fit_screen, slice_of_target
from specdemo.models.runtime import ExitRuntime, ModelRuntime
from specdemo.models.weight_files import quantize_rows

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
STORED = (*DTYPES, "int8")
IDS = torch.randint(VOCAB, (150,), generator=torch.Generator().manual_seed(1))
KEPT = torch.arange(0, VOCAB, 2)
MOST_ROWS, MOST_THREADS = 40, 4


@pytest.fixture(scope="module", autouse=True)
def four_threads():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "MOST_THREADS", MOST_THREADS)
        yield


@pytest.fixture
def use():
    """Yield a function that sets the number of threads of this thread's passes."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def build(name: str, stored: str = "fp32") -> PreTrainedModel:
    return llama_of(*MODELS[name], DTYPES.get(stored, torch.float32))


def in_fp32(model: PreTrainedModel) -> PreTrainedModel:
    return copy.deepcopy(model).float()


def dequantized(weight: Tensor) -> Tensor:
    rows, scales = quantize_rows(weight)
    return rows * scales


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5 * float(expected.abs().max() + 1))


# ---- transformers' numbers ----


@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_logits_and_states_are_those_of_transformers(name, stored):
    model = build(name, stored)
    plain = in_fp32(model)
    with hidden_states([plain.model.layers[0], plain.model.layers[2]]) as states:
        expected = plain(IDS[None], use_cache=False).logits[0]
    runtime = ModelRuntime(CompiledLlama(model), taps=(0, 2))
    runtime.begin(POSITIONS)
    runtime.prefill(IDS[:60])
    found = [runtime.forward(part) for part in IDS[60:].split([1, 5, 1, 13, 20, 50])]
    assert_close(torch.cat(found), expected[60:])
    assert_close(runtime.features(0, len(IDS)), torch.cat([state[0] for state in states], -1))


@pytest.mark.parametrize(("name", "depth"), [("groups of two", 1), ("qwen2", 2)])
@torch.inference_mode()
def test_early_exit_runs_the_first_layers_over_the_same_cache(name, depth):
    model = build(name)
    plain = in_fp32(model)
    host = ModelRuntime(CompiledLlama(model))
    host.begin(POSITIONS)
    host.prefill(IDS[:30])
    early = ExitRuntime(host, depth)
    early.begin(POSITIONS)
    found = torch.cat([early.forward(part) for part in IDS[30:40].split([1, 4, 5])])
    expected = first_layers(plain, depth)(IDS[None, :40], use_cache=False).logits[0]
    assert_close(found, expected[30:])
    early.rollback(30)
    assert torch.equal(early.forward(IDS[30:40]), found)
    whole = plain(IDS[None, :40], use_cache=False).logits[0]
    assert_close(host.forward(IDS[30:40]), whole[30:])


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", ["groups of three", "tied", "biases"])
@torch.inference_mode()
def test_restored_weights_are_those_that_were_converted_and_those_of_the_passes(name, stored):
    model, rounded = build(name, stored), stored == "int8"
    plain = in_fp32(model)
    runtime = ModelRuntime(CompiledLlama(model, rounded=rounded))
    restored = runtime.model.restored()
    expected = plain.state_dict()
    assert type(restored) is type(plain) and restored.state_dict().keys() == expected.keys()
    for key, weight in restored.state_dict().items():
        as_stored = rounded and weight.dim() == 2
        assert torch.equal(weight, dequantized(expected[key]) if as_stored else expected[key]), key
    runtime.begin(POSITIONS)
    assert_close(runtime.forward(IDS), restored(IDS[None], use_cache=False).logits[0])


# ---- the same bits ----


class Passes(NamedTuple):
    """Results of passes over a text, each with a row for each token; states are those after two layers."""

    logits: Tensor
    states: Tensor
    cache: Tensor

    def starts_like(self, other: "Passes") -> bool:
        """Return whether all bits are those of ``other``, which may be longer."""
        n = len(self.logits)
        return all(torch.equal(mine, theirs[..., :n, :]) for mine, theirs in zip(self, other, strict=True))


@torch.inference_mode()
def test_nothing_of_the_original_is_kept():
    # Its tensors may be parts of a file, which then stays in memory as a whole.
    model = build(next(iter(MODELS)))
    original = list(model.parameters())  # alive, so that their addresses are not used again
    made = CompiledLlama(model)
    kept = [made.norm, *(norm for layer in made.stack.layers for norm in (layer.norm1, layer.norm2))]
    addresses = [{tensor.untyped_storage().data_ptr() for tensor in tensors} for tensors in (original, kept)]
    assert addresses[0].isdisjoint(addresses[1])


def passes(
    model: CompiledLlama, parts: list[int], count: int | list[int] = 1, capacity: int = 160, last: int = 2
) -> Passes:
    """Run passes over ``parts`` tokens, each on ``count`` threads."""
    counts = count if isinstance(count, list) else [count] * len(parts)
    cache, start, logits, states = model.stack.open(capacity), 0, [], []
    for size, own in zip(parts, counts, strict=True):
        ids = IDS[start : start + size]
        found, tapped, _ = model.stack.run(cache, ids, start, size, own, taps=(0, last))
        assert tapped is not None
        logits.append(found)
        states.append(tapped)
        start += size
    layers = model.execution.layers(cache)
    buffers = torch.stack([buffer[..., :start, :] for layer in layers for buffer in layer])
    return Passes(torch.cat(logits), torch.cat(states), buffers)


@pytest.fixture(scope="module", params=STORED)
def one_by_one(request):
    """A model, and its results for one token after the other on one thread."""
    model = CompiledLlama(build("groups of three", request.param), rounded=request.param == "int8")
    return model, passes(model, [1] * 120)


@pytest.mark.parametrize("count", range(1, MOST_THREADS + 1))
def test_every_number_of_rows_gives_the_same_bits(one_by_one, count):
    model, expected = one_by_one
    for parts in ([120], [3, 117], *([7, rows, rows] for rows in (*range(1, 20), MOST_ROWS))):
        assert passes(model, parts, count).starts_like(expected), parts


@settings(max_examples=25)
@given(data=st.data())
def test_bits_depend_neither_on_the_cut_nor_on_threads_nor_on_the_capacity(one_by_one, data):
    model, expected = one_by_one
    parts = data.draw(st.lists(st.integers(1, MOST_ROWS), min_size=1, max_size=6))
    parts = [size for index, size in enumerate(parts) if sum(parts[: index + 1]) <= 120]
    counts = data.draw(st.lists(st.integers(1, MOST_THREADS), min_size=len(parts), max_size=len(parts)))
    capacity = data.draw(st.integers(max(1, sum(parts)), 400))
    assert not parts or passes(model, parts, counts, capacity).starts_like(expected)


@torch.inference_mode()
def test_the_last_rows_have_the_same_bits_if_only_they_are_scored_and_ids_lie_apart(one_by_one):
    model, expected = one_by_one
    apart = torch.stack([IDS, IDS.flip(0)], 1)[:120, 0]
    assert not apart.is_contiguous()
    for scored in (0, 1, 5, 23, 48, 49, 97, 120):
        logits = model.stack.run(model.stack.open(128), apart, 0, scored, 2).logits
        assert torch.equal(logits, expected.logits[120 - scored :])


@pytest.mark.parametrize("texts", [2, 50])
def test_texts_together_have_the_bits_of_each_alone(one_by_one, texts, use):
    model, _ = one_by_one
    use(2)
    ids = torch.randint(VOCAB, (texts, 25), generator=torch.Generator().manual_seed(2))
    forward = model.execution.batch(texts, 64)
    together = torch.cat([forward(ids[:, start:end], start) for start, end in ((0, 4), (4, 5), (5, 25))], 1)
    for text, logits in list(zip(ids, together, strict=True))[:: max(1, texts // 3)]:
        runtime = ModelRuntime(model)
        runtime.begin(32)
        alone = torch.cat([runtime.forward(token[None]) for token in text])
        assert torch.equal(logits, alone)


@torch.inference_mode()
def test_a_rollback_leaves_no_trace(one_by_one):
    model, expected = one_by_one
    runtime = ModelRuntime(model, taps=(0, 2))
    runtime.begin(160)
    runtime.prefill(IDS[:70])
    for length in (70, 64, 20, 5, 0):
        runtime.rollback(length)
        runtime.forward(IDS[100:113])
        runtime.rollback(length)
        found = runtime.forward(IDS[length : length + 9])
        assert torch.equal(found, expected.logits[length : length + 9])
        assert torch.equal(runtime.features(length, length + 9), expected.states[length : length + 9])


def test_the_search_for_row_counts_finds_all_of_them(one_by_one):
    model, _ = one_by_one
    assert is_batch_invariant(model) and find_batch_invariant_rows(model) == tuple(range(1, 17))


@pytest.mark.parametrize(
    ("ids", "start"),
    [([-1], 0), ([VOCAB], 0), ([1, 2**40], 0), ([3], -1), ([3], 64), ([3, 4], 63), ([3] * 65, 0)],
)
def test_ids_and_positions_out_of_range_are_refused(ids, start):
    execution = CompiledLlama(build("groups of two")).execution
    with pytest.raises(IndexError):
        execution.run(torch.tensor(ids), start, execution.open(64), 1, ())
    with pytest.raises(IndexError):
        execution.write(torch.tensor(ids), start, execution.open(64), 0, 1, None)


# ---- linear layers ----

SHAPES = [(1, 1), (3, 5), (4, 16), (7, 33), (66, 130), (5, 257), (3001, 33)]  # the last has several strips


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_compiled_layer_computes_what_the_plain_one_does(outputs, inputs, stored, bias, use):
    torch.manual_seed(0)
    plain = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
    plain = plain.to(DTYPES.get(stored, torch.float32))
    layer = CompiledLinear(plain.weight, plain.bias, rounded=stored == "int8")
    plain = plain.float()
    if stored == "int8":
        plain.weight.copy_(dequantized(plain.weight))
    rows = torch.randn(41, inputs)
    assert_close(layer(rows), plain(rows))
    assert_close(layer(rows[:6].view(2, 3, inputs)), plain(rows[:6].view(2, 3, inputs)))
    assert layer(rows[:0]).shape == (0, outputs)
    use(1)
    alone = torch.cat([layer(row[None]) for row in rows])
    for count in range(1, MOST_THREADS + 1):
        use(count)
        assert all(torch.equal(layer(rows[:n]), alone[:n]) for n in (1, 2, 3, 5, 6, 7, 13, 41))


# ---- drafts ----


@pytest.fixture(scope="module")
def feature_draft() -> FeatureDraft:
    """A feature draft whose weights int8 stores without another rounding."""
    torch.manual_seed(3)
    draft = feature_draft_for(build("groups of three"), KEPT).eval().requires_grad_(False)
    draft.fuse.weight += 0.3 * torch.randn_like(draft.fuse.weight)
    for norm in (draft.state_norm, draft.embedding_norm, draft.mlp_norm, draft.norm):
        norm.weight += 0.3 * torch.randn_like(norm.weight)
    for layer in draft.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.copy_(dequantized(layer.weight))
    return draft


def compiled_feature(draft: FeatureDraft) -> CompiledFeatureDraft:
    return CompiledFeatureDraft(draft, pack(draft.embedding.weight))


def test_a_compiled_feature_draft_computes_what_the_plain_one_does(feature_draft):
    features = torch.randn(70, feature_draft.fuse.in_features)
    steps = []
    for runtime in (FeatureRuntime(feature_draft), compiled_feature(feature_draft).runtime()):
        runtime.begin(POSITIONS)
        found = [runtime.read(features[:60], IDS[:60])]
        for token in IDS[60:62]:
            found.append(runtime.append(found[-1][0], token[None]))
        runtime.rollback(60)
        found.append(runtime.read(features[60:66], IDS[60:66]))
        steps.append(found)
    for wanted, got in zip(*steps, strict=True):
        assert got[0].shape == wanted[0].shape and got[1].shape == wanted[1].shape == KEPT.shape
        assert_close(got[0], wanted[0])
        assert_close(got[1], wanted[1])


@pytest.mark.parametrize("count", range(1, MOST_THREADS + 1))
def test_pairs_together_have_the_bits_of_each_alone(feature_draft, count, use):
    features = torch.randn(70, feature_draft.fuse.in_features)
    draft = compiled_feature(feature_draft)

    def read(parts: list[int], capacity: int = POSITIONS) -> list[tuple[Tensor, Tensor]]:
        runtime = draft.runtime()
        runtime.begin(capacity)
        pairs = zip(features.split(parts), IDS[:70].split(parts), strict=True)
        return [runtime.read(*pair) for pair in pairs]

    use(1)
    alone = read([1] * 70)
    use(count)
    for parts in ([70], [5, 65], [13, 1, 8, 48], [40, 30]):
        for end, found in zip(torch.tensor(parts).cumsum(0), read(parts, 90), strict=True):
            assert all(map(torch.equal, found, alone[end - 1]))


SCREENED = 3 * CHUNK + 37  # several chunks, the last of them not full


@pytest.fixture(scope="module")
def screened() -> ReducedHeadDraft:
    """A draft with a screen, and with logits that lie far apart."""
    name, sizes = MODELS["whole vectors"]
    model = llama_of(name, {**sizes, "vocab_size": 2 * SCREENED})
    draft = slice_of_target(model, [0, 1], torch.arange(0, 2 * SCREENED, 2)).requires_grad_(False)
    draft.lm_head.weight *= 4
    with torch.inference_mode():
        states = draft.model(torch.randint(VOCAB, (1, 100))).last_hidden_state[0]
    draft.screen = fit_screen(draft.lm_head.weight, states, rank=20)
    return draft


@pytest.mark.parametrize("threads", [1, MOST_THREADS])
@torch.inference_mode()
def test_a_screen_keeps_exact_logits_of_likely_tokens_and_approximates_the_rest(screened, threads, use):
    use(threads)
    draft, exact = copy.deepcopy(screened), copy.deepcopy(screened)
    exact.screen = None
    ids, screen = IDS[:40], screened.screen
    runtimes = [ModelRuntime(CompiledLlama(one, rounded=True), taps=(1,)) for one in (draft, exact)]
    for runtime in runtimes:
        runtime.begin(64)
    found, full = (runtime.forward(ids) for runtime in runtimes)
    norm = screened.model.norm
    states = F.rms_norm(runtimes[1].features(0, 40), norm.weight.shape, norm.weight, norm.variance_epsilon)
    guess = states @ dequantized(screen.down).T @ dequantized(screen.up).T + screen.bias
    best = guess.amax(-1, keepdim=True)
    of_four = F.max_pool1d(guess, 4, 4, ceil_mode=True).repeat_interleave(4, 1)[:, : guess.shape[1]]
    likely, unlikely = guess > best - 6.9, of_four < best - 7.1
    assert likely.any() and unlikely.float().mean() > 0.1
    assert torch.equal(found[likely], full[likely])
    assert_close(found[unlikely], guess[unlikely])
    top = found.argmax(-1, keepdim=True)
    assert torch.equal(found.gather(1, top), full.gather(1, top))


@torch.inference_mode()
def test_a_screened_head_gives_the_same_bits_for_any_number_of_rows_and_threads(screened):
    model = CompiledLlama(copy.deepcopy(screened), rounded=True)
    alone = passes(model, [1] * 40, last=1)
    for count in range(1, MOST_THREADS + 1):
        for parts in ([40], [3, 20, 17], [6, 7, 12, 15]):
            assert passes(model, parts, count, last=1).starts_like(alone)
