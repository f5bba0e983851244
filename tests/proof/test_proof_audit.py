"""The audit compares every token, finds a planted divergence, and says how close a call it was."""

import itertools
from dataclasses import replace

import pytest
import torch
from helpers.tiny import config_for, emitted, tiny_pair

import specdemo.engine.rules
from specdemo.bench.prompts import Prompt
from specdemo.pairs.lanes import Lanes
from specdemo.proof.audit import audit, audit_sentence
from specdemo.proof.proof_request import audit_config
from specdemo.records.limits import UserError
from specdemo.records.trace import Mode, Rule

PROMPTS = [
    Prompt("one", "facts", "raw", "hello"),
    Prompt("two", "code", "chat", "def f"),
    Prompt("three", "facts", "raw", "abc"),
]
GREEDY = config_for(k=3, max_new_tokens=14)
SHARED = replace(GREEDY, rule=Rule.SHARED_NOISE, temperature=0.9)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.mark.parametrize("config", [GREEDY, SHARED], ids=["greedy", "shared-noise"])
def test_equal_texts_are_equal_and_every_token_counts(pair, config):
    rows = list(audit(pair, PROMPTS, config))
    assert [(row.id, row.category, row.mode, row.prompt) for row in rows] == [
        (prompt.id, prompt.category, prompt.mode, prompt.prompt) for prompt in PROMPTS
    ]
    assert all(row.identical and row.divergence is None and row.gap is None for row in rows)
    alone = [tokens_alone(pair, prompt, config) for prompt in PROMPTS]
    assert [row.tokens for row in rows] == alone and sum(alone) > 20
    assert all(row.speedup > 0 for row in rows)
    assert audit_sentence(rows) == f"3 of 3 texts identical, {sum(alone)} tokens compared."


def tokens_alone(pair, prompt, config):
    """How many tokens the target alone writes."""
    config = replace(config, prompt=prompt.prompt, mode=Mode(prompt.mode))
    return len(emitted(list(Lanes(pair).baseline(config, pair.prompt_ids(config)))))


PLANTED = 5


@pytest.fixture
def planted(pair, monkeypatch):
    """Where there are drafts, one output token of the second prompt is the target's second choice."""
    place = len(pair.prompt_ids(replace(GREEDY, prompt="def f", mode=Mode.CHAT))) + PLANTED
    real = specdemo.engine.rules.GreedyRule.verify

    def verify(self, draft, logits, position):
        verdict, index = real(self, draft, logits, position), place - position
        if len(draft) and 0 <= index <= int(verdict.accepted):
            return replace(verdict, accepted=torch.tensor(index), token=logits[index].topk(2).indices[1:])
        return verdict

    monkeypatch.setattr(specdemo.engine.rules.GreedyRule, "verify", verify)
    return place


def test_a_planted_divergence_is_found_with_its_gap(pair, planted):
    rows = list(audit(pair, PROMPTS[1:2], GREEDY))
    config = replace(GREEDY, prompt="def f", mode=Mode.CHAT)
    text = pair.prompt_ids(config)
    for round_ in itertools.islice(Lanes(pair).baseline(config, text), PLANTED):
        text = [*text, *round_.emitted]
    assert len(text) == planted
    with torch.inference_mode():
        best = pair.target(torch.tensor([text])).logits[0, -1].softmax(-1).topk(2).values
    assert not rows[0].identical and rows[0].divergence == PLANTED
    assert rows[0].gap == pytest.approx((best[0] - best[1]).item(), abs=1e-6)
    sentence = audit_sentence(rows)
    assert (
        f"two differs from token {PLANTED + 1} on, where the target's top two are {rows[0].gap:.4f} apart"
        in sentence
    )


def test_rejection_is_refused_for_its_lanes_may_differ(pair):
    with pytest.raises(UserError, match="greedy or shared-noise"):
        next(audit(pair, PROMPTS, replace(GREEDY, rule=Rule.REJECTION, temperature=1.0)))


def test_a_request_to_stop_is_heard_within_a_round_and_leaves_no_half_row(pair):
    asked, again = itertools.count(), itertools.count()
    list(audit(pair, PROMPTS[:1], GREEDY, lambda: next(asked) < 0))
    first = next(asked)
    rows = list(audit(pair, PROMPTS, GREEDY, lambda: next(again) > first))
    assert [row.id for row in rows] == ["one"]
    assert next(again) <= first + 3, "nobody decodes on"


def test_closing_it_leaves_the_other_prompts_alone(pair):
    given = iter(PROMPTS)
    rows = audit(pair, given, GREEDY)
    assert next(rows).id == "one"
    rows.close()
    assert [prompt.id for prompt in given] == ["two", "three"]


def test_the_settings_fit_the_temperature():
    assert audit_config(0.0).rule is Rule.GREEDY
    sampled = audit_config(0.8)
    assert sampled.rule is Rule.SHARED_NOISE and sampled.temperature == 0.8
    with pytest.raises(UserError, match="temperature"):
        audit_config(9.0)
