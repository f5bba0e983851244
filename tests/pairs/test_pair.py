"""The lanes of a pair: the draft model as a decoder of its own, and the clocks of all lanes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny import at_least, config_for, emitted, tiny_llama, tiny_pair
from torch import nn

from specdemo.api import compare
from specdemo.engine.race import race
from specdemo.engine.sampling import gumbel, warp
from specdemo.engine.speculate import autoregress
from specdemo.engine.verdicts import top_fives
from specdemo.models import runtime
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.records.limits import UserError
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Finish, Rule

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPT = [7, 40, 12, 99]


def reduced(model: nn.Module, ids: torch.Tensor) -> nn.Module:
    """Return ``model`` with only these rows of its head."""
    rows = model.lm_head.weight.data[ids]
    model.lm_head = nn.Linear(model.config.hidden_size, len(ids), bias=False)
    model.lm_head.weight.data = rows
    return model


def pair_with_reduced_draft(seed: int = 0):
    """Return a tiny pair whose draft scores a third of the ids, in another order."""
    pair = tiny_pair(seed)
    vocab = len(pair.tokenizer)
    id_map = torch.randperm(vocab, generator=torch.Generator().manual_seed(seed))[: vocab // 3]
    return replace(pair, id_map=id_map, draft=reduced(pair.draft, id_map))


def written_by_hand(pair, config) -> list[int]:
    """Return the draft's text from a plain loop with no cache: a row of its head, then that row's id."""
    text = list(PROMPT)
    ids = torch.arange(len(pair.tokenizer)) if pair.id_map is None else pair.id_map
    for _ in range(config.max_new_tokens):
        with torch.inference_mode():
            scores = pair.draft(torch.tensor([text]), use_cache=False).logits[0, -1]
        if config.rule is Rule.SHARED_NOISE:
            scores = warp(scores, config.temperature, config.top_k, config.top_p).log_softmax(-1)
            scores = scores + gumbel(config.seed, torch.tensor([len(text)]), ids)[0]
        text.append(ids[scores.argmax()].item())
    return text[len(PROMPT) :]


def raced(pair, config) -> dict[str, list]:
    rounds: dict[str, list] = {}
    for lane, round_ in race(Lanes(pair).requested(config, PROMPT)):
        rounds.setdefault(lane, []).append(round_)
    return rounds


def texts(rounds: dict[str, list]) -> dict[str, list[int]]:
    return {lane: emitted(lane_rounds) for lane, lane_rounds in rounds.items()}


@pytest.mark.parametrize("make", [tiny_pair, pair_with_reduced_draft])
@pytest.mark.parametrize(
    ("rule", "warping"),
    [
        (Rule.GREEDY, {}),
        (Rule.SHARED_NOISE, {"top_k": 3}),
        (Rule.SHARED_NOISE, {"top_k": 120, "top_p": 0.8}),
    ],
)
def test_the_draft_alone_writes_the_text_of_a_plain_loop(make, rule, warping):
    for seed in range(2):
        pair = make(seed)
        config = config_for(rule, max_new_tokens=16, seed=seed, **warping)
        rounds = list(Lanes(pair).draft_alone(config, PROMPT))
        assert emitted(rounds) == written_by_hand(pair, config)
        assert len(set(emitted(rounds))) > 2, "a text of one repeated token would prove little"
        assert rounds[-1].finish is Finish.LENGTH and not any(r.drafted for r in rounds)


@pytest.mark.parametrize("rule", list(Rule))
def test_the_record_of_the_draft_alone_has_the_targets_ids(rule):
    pair = pair_with_reduced_draft()
    known = set(pair.id_map.tolist())
    config = config_for(rule, max_new_tokens=12, seed=4)
    for round_ in Lanes(pair, top_fives).draft_alone(config, PROMPT):
        emission = round_.emission
        assert emission.id in known and {other.id for other in emission.top} <= known
        assert len(emission.top) == 5 and emission.top[0].prob >= emission.top[4].prob > 0
        if rule is Rule.SHARED_NOISE:
            where = torch.tensor([round_.position])
            assert emission.noise == gumbel(4, where, torch.tensor([emission.id]))[0, 0].item()


def test_the_draft_alone_samples_as_a_decoder_of_that_model_and_ends_at_the_end_of_sequence():
    pair = tiny_pair()
    config = config_for(Rule.REJECTION, max_new_tokens=16, seed=9)
    alone = autoregress(ModelRuntime(pair.draft), PROMPT, config)
    assert emitted(Lanes(pair).draft_alone(config, PROMPT)) == emitted(alone)
    config = config_for(max_new_tokens=16)
    text = emitted(Lanes(pair).draft_alone(config, PROMPT))
    pair.target.generation_config.eos_token_id = text[3]
    rounds = list(Lanes(pair).draft_alone(config, PROMPT))
    assert emitted(rounds) == text[: text.index(text[3]) + 1] and rounds[-1].finish is Finish.EOS


@pytest.mark.parametrize("rule", list(Rule))
def test_the_other_lanes_write_the_same_with_and_without_the_draft_alone(rule):
    pair = pair_with_reduced_draft()
    config = config_for(rule, max_new_tokens=20, k=3, drafter="draft-model")
    without = texts(raced(pair, config))
    assert set(without) == {SPECULATIVE, BASELINE}
    beside = texts(raced(pair, replace(config, draft_alone=True)))
    assert beside.pop(DRAFT) == emitted(Lanes(pair).draft_alone(config, PROMPT))
    assert beside == without


def test_a_lanes_clock_excludes_the_time_of_other_lanes(monkeypatch):
    pair = tiny_pair()
    config = config_for(max_new_tokens=10, drafter="prompt-lookup", draft_alone=True)
    Lanes(pair).calibrate(config)
    clock = [0.0]  # only the models move it: 10 s for a target pass, 1 s for a draft pass
    for model, seconds in ((pair.target, 10.0), (pair.draft, 1.0)):
        model.register_forward_pre_hook(lambda *_, seconds=seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(runtime, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    rounds = raced(pair, config)
    assert {lane: {r.seconds for r in rs} for lane, rs in rounds.items()} == {
        SPECULATIVE: {10.0},
        BASELINE: {10.0},
        DRAFT: {1.0},
    }


@pytest.mark.parametrize("found", [1.25, 0.97])
def test_the_baselines_clock_holds_unpadded_passes_whatever_the_calibration_found(found, monkeypatch):
    pair = tiny_pair()
    for kind, costs in pair.costs.known.items():
        pair.costs.known[kind] = replace(costs, v=(found, *costs.v[1:]), rows=at_least(3), row_floor=3)
    clock = [0.0]  # only the target moves it: 8 s for a pass over one row, 10 s over more

    def tick(_model, _args, options):
        clock[0] += 8.0 if options["input_ids"].shape[1] == 1 else 10.0

    pair.target.register_forward_pre_hook(tick, with_kwargs=True)
    monkeypatch.setattr(runtime, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    run = compare(pair, "hello there", mode="raw", k=3, max_new_tokens=12, drafter="prompt-lookup")
    rounds = {lane: run.lanes[lane].rounds for lane in (SPECULATIVE, BASELINE)}
    assert {one.seconds for one in rounds[BASELINE]} == {8.0}
    assert {one.seconds for one in rounds[SPECULATIVE]} == {10.0}
    assert run.totals["identical"]
    passes = len(rounds[SPECULATIVE])
    assert run.totals["speedup"] == pytest.approx(12 * 8.0 / (passes * 10.0))


def test_the_draft_alone_needs_a_draft_model_that_can_read_the_prompt():
    config = config_for(max_new_tokens=20, drafter="prompt-lookup", draft_alone=True)
    with pytest.raises(UserError, match="has no draft model"):
        Lanes(replace(tiny_pair(), draft=None)).requested(config, PROMPT)
    pair = tiny_pair()
    pair = replace(pair, draft=tiny_llama(len(pair.tokenizer), 0, torch.float32, context=32))
    with pytest.raises(UserError, match="has 32 tokens, but the draft model can read at most 31"):
        Lanes(pair).requested(config, PROMPT * 8)
    rounds = list(Lanes(pair).draft_alone(config, PROMPT * 7))
    assert rounds[-1].finish is Finish.CONTEXT and len(rounds) == 4


@pytest.mark.parametrize(
    ("rule", "k", "repeats"),
    [(Rule.REJECTION, 3, True), (Rule.SHARED_NOISE, "auto", True), (Rule.REJECTION, "auto", False)],
)
def test_a_seed_repeats_the_text_unless_draft_lengths_follow_the_clock(rule, k, repeats):
    written = []
    for seconds in (0.01, 3.0):
        pair = tiny_pair()
        for key, found in pair.costs.known.items():
            pair.costs.known[key] = replace(found, c=seconds)
        config = config_for(rule, k=k, seed=5, max_new_tokens=40)
        written.append(emitted(raced(pair, config)[SPECULATIVE]))
    assert (written[0] == written[1]) is repeats
