"""Decisions of compiled passes: torch's answers for any threads, so that a round need not read logits."""

import copy
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from helpers.llamas import MODELS, POSITIONS, llama_of
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import specdemo.engine.speculate as engine
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.feature import FeatureDrafter
from specdemo.engine.draft_length import AutoLength, DraftLength
from specdemo.engine.rules import GreedyRule
from specdemo.engine.sampling import highest_probability
from specdemo.models.compiled import stack as stacks
from specdemo.models.compiled.feature import CompiledFeatureDraft
from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.compiled.whole_pass import CHUNK
from specdemo.models.decisions import decisions_of
from specdemo.models.feature_draft import feature_draft_for
from specdemo.models.reduced_draft import fit_screen, slice_of_target
from specdemo.models.runtime import ModelRuntime
from specdemo.models.threads import choice
from specdemo.records.trace import Calibration, Rule, RunConfig

VOCAB = 3 * CHUNK + 71  # several chunks, the last of them not full
KEPT = torch.arange(1, VOCAB, 2)
IDS = torch.randint(VOCAB, (60,), generator=torch.Generator().manual_seed(1))
NAN, INF = math.nan, math.inf
COSTS = Calibration(c=0.05, v=tuple(1 + 0.02 * row for row in range(13)), step_s=0.01, row_floor=None)


@pytest.fixture(autouse=True)
def use(monkeypatch):
    """Let up to four threads compute, and return a function that sets the number of this thread's passes."""
    monkeypatch.setattr(stacks, "MOST_THREADS", 4)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def build(**changes):
    name, sizes = MODELS["groups of two"]
    return llama_of(name, {**sizes, "vocab_size": VOCAB, **changes})


@pytest.fixture(scope="module")
def target():
    model = build()
    model.lm_head.weight.data *= 4
    return model


@pytest.fixture(scope="module")
def draft(target):
    """A draft with a reduced head and a screen, and with logits that lie far apart."""
    found = slice_of_target(target, [0, 1], KEPT).requires_grad_(False)
    found.lm_head.weight *= 4
    with torch.inference_mode():
        found.screen = fit_screen(found.lm_head.weight, found.model(IDS[None]).last_hidden_state[0], rank=20)
    return found


@pytest.fixture(scope="module")
def feature_draft(target):
    torch.manual_seed(3)
    return feature_draft_for(target, KEPT).eval().requires_grad_(False)


@pytest.mark.parametrize(
    "planted",
    [
        {5: 9.0},
        {CHUNK: 9.0, CHUNK - 1: 9.0, 2 * CHUNK + 3: 9.0},
        {VOCAB - 1: 9.0},
        {place: -3.0 - place / 1e3 for place in range(VOCAB)},
        dict.fromkeys(range(VOCAB), -2.0),
        {0: 100.0, VOCAB - 1: -INF},
        dict.fromkeys(range(CHUNK + 40), -INF),
        dict.fromkeys(range(VOCAB), -INF),
        {CHUNK + 9: INF},
        {7: NAN, 2 * CHUNK: 50.0},
        {VOCAB - 1: NAN},
        {0: NAN, 1: INF},
    ],
)
@torch.inference_mode()
def test_decisions_are_those_of_torch_with_ties_infinities_and_nan(planted, use):
    model = build()
    head = nn.Linear(model.config.hidden_size, VOCAB).requires_grad_(False)
    head.weight.zero_()
    head.bias.copy_(torch.linspace(-1, 1, VOCAB).sin())
    head.bias[list(planted)] = torch.tensor(list(planted.values()))
    model.lm_head = head
    runtime = ModelRuntime(CompiledLlama(model))
    everything = []
    for threads in (1, 2, 3, 4):
        use(threads)
        runtime.begin(POSITIONS)
        logits = runtime.forward(IDS[:3])
        found = decisions_of(logits)
        torch.testing.assert_close(logits, head.bias.expand(3, -1), rtol=0, atol=0, equal_nan=True)
        everything.append(repr(found))
        largest, best = logits.max(-1)
        torch.testing.assert_close(torch.tensor(found.largest), largest, rtol=0, atol=0, equal_nan=True)
        if largest.isfinite().all():
            assert found.best == best.tolist()
            highest = torch.tensor([1 / total for total in found.total])
            torch.testing.assert_close(highest, logits.softmax(-1).amax(-1), rtol=2e-6, atol=0)
    assert len(set(everything)) == 1, "no bit depends on the number of threads"
    lane = engine.autoregress(runtime, IDS[:3].tolist(), RunConfig(prompt="", max_new_tokens=2))
    with nullcontext() if largest.isfinite().all() else pytest.raises(FloatingPointError):
        assert next(lane).emitted == best[:1].tolist()


@pytest.mark.parametrize("screened", [False, True])
@torch.inference_mode()
def test_a_draft_in_one_call_has_the_tokens_and_bits_of_one_step_after_another(draft, screened, use):
    model = copy.deepcopy(draft)
    model.screen = model.screen if screened else None
    runtime = ModelRuntime(CompiledLlama(model, rounded=True), id_map=KEPT)
    for threads in (1, 2, 4):
        use(threads)
        runtime.begin(POSITIONS)
        runtime.prefill(IDS[:20])
        rows, last = [], IDS[20:22]
        for _ in range(6):
            rows.append(runtime.forward(last)[-1])
            last = KEPT[rows[-1].max(-1).indices][None]
        expected = torch.stack(rows)
        for parts in ([6], [1] * 6, [2, 1, 3]):
            runtime.rollback(20)
            first = 0
            for steps in parts:
                ids, logits = runtime.write(IDS[20:22], first, steps)
                first += steps
            assert torch.equal(logits, expected) and runtime.length == 20 + 2 + 5
            assert torch.equal(ids, KEPT[expected.max(-1).indices])
            assert decisions_of(logits).best == expected.max(-1).indices.tolist()
    with pytest.raises(IndexError):
        runtime.rollback(20)
        runtime.write(IDS[20:22], 0, POSITIONS)


@torch.inference_mode()
def test_a_feature_draft_in_one_call_has_the_tokens_and_bits_of_one_step_after_another(feature_draft):
    features = torch.randn(70, feature_draft.fuse.in_features)
    compiled = CompiledLlama(build())
    runtime = CompiledFeatureDraft(feature_draft, compiled.stack.embedding).runtime()
    runtime.begin(POSITIONS)
    for count in (2, 40):
        state, row = runtime.read(features[:count], IDS[:count])
        rows = [row]
        for _ in range(5):
            state, row = runtime.append(state, KEPT[rows[-1].max(-1).indices][None])
            rows.append(row)
        for parts in ([6], [1] * 6, [2, 1, 3]):
            runtime.rollback(0)
            first = 0
            for steps in parts:
                ids, logits = runtime.write(features[:count], IDS[:count], first, steps)
                first += steps
            assert torch.equal(logits, torch.stack(rows)) and runtime.length == count + 5
            assert torch.equal(ids, KEPT[logits.max(-1).indices])
        runtime.rollback(0)


class Confident(DraftLength):
    """Drafts while the highest probability is above a limit; all in one call if the limit is 0."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.seen, self.reads_scores = limit, [], limit > 0

    def start(self, limit):
        self._left = limit

    def wants_token(self, scores):
        self._left -= 1
        if not self.reads_scores:
            return True
        self.seen.append(highest_probability(scores))
        return self.seen[-1] > self.limit


@pytest.mark.parametrize("limit", [0, 0.35, 0.5, 0.9, 1.1])
@torch.inference_mode()
def test_a_compiled_draft_and_its_length_are_those_that_torch_decides_step_by_step(draft, limit):
    found = []
    for wrap in (lambda runtime: runtime, lambda runtime: SimpleNamespace(**_methods(runtime), length=20)):
        runtime = ModelRuntime(CompiledLlama(copy.deepcopy(draft), rounded=True), id_map=KEPT)
        runtime.begin(POSITIONS)
        runtime.prefill(IDS[:20])
        length = Confident(limit)
        length.start(8)
        made = DraftModelDrafter(wrap(runtime)).propose(IDS[:22].tolist(), length, GreedyRule())
        logits = [] if made.logits is None else made.logits.tolist()
        found.append((made.ids.tolist(), logits, made.steps, made.by, runtime.length))
        found.append([round(value, 4) for value in length.seen])
    assert found[:2] == found[2:]


def _methods(runtime):
    return {name: getattr(runtime, name) for name in ("forward", "device", "id_map")}


class Operations(TorchDispatchMode):
    """Records torch's operations: the threads that they may use, and those that read whole rows of logits."""

    def __init__(self):
        super().__init__()
        self.threads, self.large, self.in_clock = set(), [], False

    def __torch_dispatch__(self, function, kinds, arguments=(), options=None):
        self.threads.add(torch.get_num_threads())
        views = ("slice", "alias", "detach", "empty", "select", "as_strided", "new_empty")
        widths = [value.shape[-1] for value in arguments if isinstance(value, torch.Tensor) and value.dim()]
        if (
            self.in_clock
            and max(widths, default=0) >= len(KEPT)
            and not any(v in str(function) for v in views)
        ):
            self.large.append(str(function))
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("drafter", ["draft-model", "feature-draft"])
@pytest.mark.parametrize("k", [3, "auto"])
@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.REJECTION])
def test_torch_uses_one_thread_in_a_run_and_reads_no_logits_in_the_clock_of_a_greedy_one(
    target, draft, feature_draft, drafter, k, rule, use, monkeypatch
):
    use(2)
    monkeypatch.setattr("specdemo.models.threads.is_fixed", lambda: True)
    operations, counts, real = Operations(), set(), engine.describe
    compiled = CompiledLlama(copy.deepcopy(target))
    host = ModelRuntime(compiled, taps=feature_draft.config.taps)
    if drafter == "draft-model":
        made = DraftModelDrafter(ModelRuntime(CompiledLlama(copy.deepcopy(draft), rounded=True), id_map=KEPT))
    else:
        made = FeatureDrafter(CompiledFeatureDraft(feature_draft, compiled.stack.embedding).runtime(), host)

    def after_the_clock(*arguments):
        counts.add(choice().count)
        operations.in_clock = False
        try:
            return real(*arguments)
        finally:
            operations.in_clock = True

    monkeypatch.setattr(engine, "describe", after_the_clock)
    temperature = 0.0 if rule is Rule.GREEDY else 1.0
    config = RunConfig(prompt="", k=k, max_new_tokens=12, rule=rule, temperature=temperature)
    length = AutoLength(COSTS) if k == "auto" else None
    prompt = IDS[:9].tolist()
    prefill = engine.Prefill(host, made, prompt, 12)
    with operations:
        assert list(prefill)
        operations.in_clock = True
        rounds = list(engine.speculate(host, made, prompt, config, length=length, prefill=prefill))
    assert sum(len(one.emitted) for one in rounds) == 12 and any(one.drafted for one in rounds)
    assert operations.threads == {1} and counts == {2}, "compiled passes keep their threads"
    assert torch.get_num_threads() == 2, "the number is restored after the run"
    assert (operations.large == []) is (rule is Rule.GREEDY), operations.large
