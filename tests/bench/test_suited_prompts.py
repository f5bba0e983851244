"""Measurements over prompts with a target that has no chat template, or that reads too few tokens."""

import json
from dataclasses import replace

import pytest
from helpers.tiny import nearby, tiny_llama, tiny_pair

from specdemo.bench.bench import Bench
from specdemo.bench.peers import PeerBench
from specdemo.bench.prompts import Prompt, Settings
from specdemo.lab.experiments import measure_plan, plan_experiment
from specdemo.pairs.lanes import Lanes
from specdemo.proof.proof_events import proof_events
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import quiz_events
from specdemo.records.limits import UserError

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
NOTICE = next(
    number for number, one in enumerate(QUESTIONS, 1) if any(side.prompt.id == "notice" for side in one.sides)
)
CHATS = [Prompt(f"chat-{n}", "a", "chat", "Why? " * n) for n in (1, 30, 40)]
SETTINGS = Settings(["draft-model"], [2], [0.0], None, 4, 1, 0)


def never() -> bool:
    return False


def bench(pair, folder):
    Bench(CHATS, SETTINGS, folder / "bench.json").run(pair)
    return json.loads((folder / "bench.json").read_text())["rows"]


def peers(pair, folder):
    PeerBench(CHATS, SETTINGS, folder / "peers.json").run(pair, [])
    return json.loads((folder / "peers.json").read_text())["rows"]


def proof(kind):
    return lambda pair, _: list(proof_events(pair, parse_proof({"proof": kind, "prompts": 48}), never))


def lab(pair, _):
    request = {"max_new_tokens": 4, "drafter": "draft-model"}
    return list(measure_plan(pair, plan_experiment("category", pair, request, CHATS)))


def contrasts(pair, _):
    return list(measure_plan(pair, plan_experiment("contrasts", pair, {"max_new_tokens": 4})))


def quiz(pair, _):
    return list(quiz_events(pair, NOTICE, QUESTIONS[NOTICE - 1]))


MEASUREMENTS = {
    "bench": bench,
    "peers": peers,
    "audit": proof("greedy"),
    "other libraries": proof("other-libraries"),
    "lab": lab,
    "contrasts": contrasts,
    "quiz": quiz,
}


def lanes_started(monkeypatch) -> list[str]:
    started: list[str] = []
    for lane in ("speculative", "baseline"):
        monkeypatch.setattr(Lanes, lane, lambda *_, lane=lane: started.append(lane))
    return started


@pytest.mark.parametrize("template", [None, ""])
@pytest.mark.parametrize("name", ["bench", "peers", "audit", "other libraries", "lab", "quiz"])
def test_without_a_chat_template_prompts_are_continued(name, template, tmp_path, monkeypatch):
    pair = tiny_pair()
    pair.tokenizer.chat_template = template
    monkeypatch.setattr("specdemo.proof.proof_request.TOKENS", 4)
    assert MEASUREMENTS[name](pair, tmp_path)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_template_that_fails_is_reported_before_the_first_run(name, tmp_path, monkeypatch):
    pair = tiny_pair()
    pair.tokenizer.chat_template = "{{ raise_exception('No visitors.') }}"
    started = lanes_started(monkeypatch)
    with pytest.raises(UserError, match=r"^The target's chat template fails: No visitors; choose raw"):
        MEASUREMENTS[name](pair, tmp_path)
    assert not started


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_prompts_that_are_too_long_are_named_before_the_first_run(name, tmp_path, monkeypatch):
    pair = tiny_pair()
    small = tiny_llama(len(pair.tokenizer), 0, pair.target.dtype, context=32)
    pair = replace(pair, target=small, draft=nearby(small, 1, 0.05))
    started = lanes_started(monkeypatch)
    with pytest.raises(UserError, match="too long for the target, which reads fewer than 32 tokens: "):
        MEASUREMENTS[name](pair, tmp_path)
    assert not started


def test_only_the_first_ids_of_many_long_prompts_are_named(tmp_path):
    prompts = [Prompt(f"p{n}", "a", "raw", "x" * 600) for n in range(20)]
    with pytest.raises(UserError, match="tokens: p0, p1, p2, p3, p4, p5, p6, p7 and 12 more"):
        Bench(prompts, SETTINGS, tmp_path / "out.json").run(tiny_pair())
