"""The audit compares every token, and finds a planted divergence with its probability gap."""

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
from specdemo.records.figures import MIN_TOKENS
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
def test_identical_texts_are_compared_to_the_last_token(pair, config):
    rows = list(audit(pair, PROMPTS, config))
    assert [Prompt(row.id, row.category, row.mode, row.prompt) for row in rows] == PROMPTS
    assert all(row.identical and row.divergence is None and row.gap is None for row in rows)
    alone = []
    for prompt in PROMPTS:
        own = replace(config, prompt=prompt.prompt, mode=Mode(prompt.mode))
        alone.append(len(emitted(list(Lanes(pair).baseline(own, pair.prompt_ids(own))))))
    assert [row.tokens for row in rows] == alone and sum(alone) > 20
    assert [row.speedup is not None for row in rows] == [tokens >= MIN_TOKENS for tokens in alone]
    assert audit_sentence(rows) == f"3 of 3 texts identical, {sum(alone)} tokens compared."


PLANTED = 5


def test_planted_divergence_is_found_with_its_gap(pair, monkeypatch):
    config = replace(GREEDY, prompt="def f", mode=Mode.CHAT)
    text = pair.prompt_ids(config)
    for round_ in itertools.islice(Lanes(pair).baseline(config, text), PLANTED):
        text = [*text, *round_.emitted]
    with torch.inference_mode():
        best = pair.target(torch.tensor([text])).logits[0, -1].softmax(-1).topk(2).values
    real = specdemo.engine.rules.GreedyRule.verify

    def verify(self, draft, logits, position):
        # With drafts, one token is the target's second choice.
        verdict, index = real(self, draft, logits, position), len(text) - position
        if len(draft) and 0 <= index <= int(verdict.accepted):
            return replace(verdict, accepted=torch.tensor(index), token=logits[index].topk(2).indices[1:])
        return verdict

    monkeypatch.setattr(specdemo.engine.rules.GreedyRule, "verify", verify)
    [row] = audit(pair, PROMPTS[1:2], GREEDY)
    assert not row.identical and row.divergence == PLANTED
    assert row.gap == pytest.approx((best[0] - best[1]).item(), abs=1e-6)
    words = f"two differs from token {PLANTED + 1} on, where the target's top two are {row.gap:.4f} apart"
    assert words in audit_sentence([row])


def test_stop_ends_the_audit_within_a_round_and_drops_the_unfinished_row(pair):
    asked, again = itertools.count(), itertools.count()
    list(audit(pair, PROMPTS[:1], GREEDY, lambda: next(asked) < 0))
    first = next(asked)
    rows = list(audit(pair, PROMPTS, GREEDY, lambda: next(again) > first))
    assert [row.id for row in rows] == ["one"]
    assert next(again) <= first + 3, "decoding ends within a round"


def test_rule_follows_the_temperature_and_rejection_is_refused(pair):
    assert audit_config(0.0).rule is Rule.GREEDY
    sampled = audit_config(0.8)
    assert sampled.rule is Rule.SHARED_NOISE and sampled.temperature == 0.8
    with pytest.raises(UserError, match="temperature"):
        audit_config(9.0)
    with pytest.raises(UserError, match="greedy or shared-noise"):
        next(audit(pair, PROMPTS, replace(GREEDY, rule=Rule.REJECTION, temperature=1.0)))
