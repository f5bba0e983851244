"""The drafts of a class on real engines: many in one pass, each judged as the scripted lane judges it."""

import itertools
import random
from dataclasses import asdict, replace

import pytest
import torch
from helpers.tiny import service_of, tiny_pair

from specdemo.models.batch import FusedBatch, PlainBatch, batch_of
from specdemo.models.fused_llama import FusedLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.play import batch_judge
from specdemo.play.class_drafts import judge_class
from specdemo.play.class_request import parse_class
from specdemo.play.turn import one_round, one_round_config
from specdemo.records.limits import MAX_K, SCRIPTED, UserError, parse_config
from specdemo.records.trace import Finish, RunConfig, Status
from specdemo.service.jobs import JobKind

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "abca"


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture(scope="module")
def fused(pair):
    """The same on the short path."""
    return replace(tiny_pair(), target=FusedLlama(tiny_pair().target, "fp32", "fp32"), costs=pair.costs)


def own_text(pair, text, tokens):
    """What the target writes behind ``text`` by itself."""
    config = parse_config({"prompt": text, "mode": "raw", "max_new_tokens": tokens})
    rounds = Lanes(pair).baseline(config, pair.prompt_ids(config))
    return [token for round_ in rounds for token in round_.emitted]


FIRST = 0x4E00
"""The letter that stands for token 0: what these targets write is seldom text that anybody could type."""


def spelled(ids):
    """A draft of these very tokens."""
    return "".join(chr(FIRST + token) for token in ids)


@pytest.fixture(autouse=True)
def spelling(monkeypatch):
    """Letters that stand for tokens are read as them, other text as ever."""
    tokens = Pair.script_ids

    def script_ids(self, script):
        parts = itertools.groupby(script, lambda letter: FIRST <= ord(letter) < FIRST + 300)
        ids = []
        for spelt, part in parts:
            ids += [ord(letter) - FIRST for letter in part] if spelt else tokens(self, "".join(part))
        return ids

    monkeypatch.setattr(Pair, "script_ids", script_ids)


def drafts_near(pair, text, count, seed=0):
    """Drafts that leave the target's own text at any point, and go on longer than a draft may."""
    rng = random.Random(seed)
    own = own_text(pair, text, MAX_K + 3)
    drafts = []
    for _ in range(count):
        kept = own[: rng.choice([0, 0, 1, 2, 3, 5, 8, 11, len(own)])]
        drafts.append(spelled([*kept, *rng.choices(range(pair.vocab), k=rng.randrange(1, 6))]))
    return [*drafts, spelled(own), spelled(own[:3]), *drafts[:5], "</s>", "x</s>y", "naïve \u00ff"]


def told(round_):
    """What has to be the same however a draft was judged, of a round as plain data."""
    tokens = round_["drafted"]
    emission = round_["emission"]
    return {
        "drafted": [[token[name] for name in ("id", "status", "compared", "rejected")] for token in tokens],
        "emission": emission and [emission["id"], emission["status"]],
        **{name: round_[name] for name in ("index", "position", "finish", "drafted_by", "draft_steps")},
    }


def alone(pair, text, draft):
    """The scripted lane's round for this draft by itself, as plain data."""
    tokens = max(1, len(pair.script_ids(draft)))
    config = one_round_config(text, tokens, drafter=SCRIPTED, script=draft)
    return asdict(one_round(pair, config, pair.prompt_ids(config)))


def class_of(pair, text, drafts):
    *progress, event = judge_class(pair, parse_class({"text": text, "drafts": drafts}))
    assert {one["type"] for one in progress} == {"progress"} and progress[-1]["fraction"] == 1.0
    assert event["type"] == "class-judged"
    return event


def require_equal_to_scripted(pair, text, drafts):
    event = class_of(pair, text, drafts)
    wanted = {draft: alone(pair, text, draft) for draft in set(drafts)}
    for draft, index in zip(drafts, event["drafts"], strict=True):
        assert told(event["verdicts"][index]["round"]) == told(wanted[draft]), draft
    return event


@pytest.fixture
def ending(pair, fused):
    """A token of the target's own text that ends every text meanwhile."""
    token = own_text(pair, TEXT, 3)[-1]
    before = [one.target.generation_config.eos_token_id for one in (pair, fused)]
    for one in (pair, fused):
        one.target.generation_config.eos_token_id = token
    yield token
    for one, eos in zip((pair, fused), before, strict=True):
        one.target.generation_config.eos_token_id = eos


@pytest.mark.parametrize("path", ["pair", "fused"])
@pytest.mark.parametrize("text", [TEXT, "q", "<s>The 🎉 of\n"], ids=["text", "one token", "bytes"])
def test_every_draft_of_a_class_is_judged_as_it_is_alone(path, text, request):
    here = request.getfixturevalue(path)
    drafts = drafts_near(here, text, 140)
    event = require_equal_to_scripted(here, text, drafts)
    assert len(event["verdicts"]) == len({tuple(here.script_ids(draft)) for draft in drafts})
    rounds = [one["round"]["drafted"] for one in event["verdicts"]]
    kept = {sum(token["status"] == Status.ACCEPTED for token in drafted) for drafted in rounds}
    assert kept >= {0, 1, 2, 3, 5, 8, 11, 12}


@pytest.mark.parametrize("path", ["pair", "fused"])
def test_an_accepted_end_of_text_ends_a_draft_there(path, ending, request):
    here = request.getfixturevalue(path)
    own = spelled(own_text(here, TEXT, 3))
    drafts = [own + "more", own, own[:1], own[:1] + "?", "?", own + "els"]
    event = require_equal_to_scripted(here, TEXT, drafts)
    finishes = [one["round"]["finish"] for one in event["verdicts"]]
    assert Finish.EOS in finishes and Finish.STOPPED in finishes
    assert event["verdicts"][0]["round"]["emission"] is None


def test_the_end_of_a_long_draft_is_cut_and_said(pair):
    event = require_equal_to_scripted(pair, TEXT, ["0123456789abcdef", "0123456789abcdxy", "0123"])
    assert [one["cut"] for one in event["verdicts"]] == ["cdef", "cdxy", ""]
    assert len(event["model"]["drafted"]) == MAX_K and event["model"]["drafted_by"] == "draft-model"


def test_a_draft_that_has_no_tokens_gets_the_target_s_next_one(pair, monkeypatch):
    tokens = Pair.script_ids
    monkeypatch.setattr(Pair, "script_ids", lambda self, text: [] if text == "?" else tokens(self, text))
    event = require_equal_to_scripted(pair, TEXT, ["?", "ab", "?"])
    [first] = [one for one in event["verdicts"] if not one["round"]["drafted"]]
    assert first["count"] == 2 and first["round"]["emission"]["status"] == Status.BONUS
    assert class_of(pair, TEXT, ["?"])["alpha"] is None


def test_drafts_are_cut_to_what_the_context_has_room_for(pair, monkeypatch):
    monkeypatch.setattr(pair.target.config, "max_position_embeddings", 40)
    rows = Lanes(pair).calibrate(RunConfig(prompt="")).rows
    floor = 1 + max((padded - count for count, padded in enumerate(rows, 1)), default=0)
    for room in (0, 1, 5):
        text = "x" * (40 - floor - room)
        event = require_equal_to_scripted(pair, text, ["yyyyyyyyyyyyyy", "y", "z", "</s>"])
        assert max(len(one["round"]["drafted"]) for one in event["verdicts"]) == room
    with pytest.raises(UserError, match="shorten it"):
        class_of(pair, "x" * (41 - floor), ["y"])
    with pytest.raises(UserError, match="shorten it"):
        class_of(pair, "x" * 60, ["y"])


def counted(monkeypatch, owner, name):
    """The calls of a method from now on."""
    calls = []
    method = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda self, *args: calls.append(args) or method(self, *args))
    return calls


@pytest.mark.parametrize(
    ("rows", "positions", "passes"), [(32, 8192, 1), (8, 8192, 3), (32, 100, 4), (32, 1, 20)]
)
def test_there_are_as_few_passes_as_batches(fused, monkeypatch, rows, positions, passes):
    monkeypatch.setattr(batch_judge, "ROWS", rows)
    monkeypatch.setattr(batch_judge, "POSITIONS", positions)
    made = counted(monkeypatch, FusedBatch, "run")
    drafts = ["".join(pair) for pair in itertools.islice(itertools.product("abcd", repeat=3), 20)]
    class_of(fused, TEXT, drafts)
    assert len(made) == passes
    assert {len(ids) for ids, _ in made} == {-(-20 // passes)}
    del made[:]
    require_equal_to_scripted(fused, TEXT, drafts * 2)
    assert len(made) == passes, "equal drafts share a row"


def tied(pair, difference):
    """The pair with a target whose tokens all have a twin, ``difference`` of a weight apart."""
    target = tiny_pair().target
    with torch.no_grad():
        weight = target.lm_head.weight
        half = len(weight) // 2
        weight[half : 2 * half] = weight[:half] * (1 + difference)
    return replace(pair, target=target)


class Rounding:
    """A batch whose logits are off by up to half of what counts as close."""

    def __init__(self, batch):
        self.batch, self.generator = batch, torch.Generator().manual_seed(0)

    def begin_with(self, held):
        self.batch.begin_with(held)

    def run(self, ids, start):
        logits = self.batch.run(ids, start)
        most = 0.45 * batch_judge.MARGIN * torch.finfo(logits.dtype).eps * logits.abs().max()
        return logits + most * (2 * torch.rand(logits.shape, generator=self.generator) - 1)


@pytest.mark.parametrize("difference", [0.0, 1e-7, 1e-5])
def test_what_rounding_could_decide_is_decided_as_alone(pair, monkeypatch, difference):
    near = tied(pair, difference)
    drafts = drafts_near(near, TEXT, 60)
    monkeypatch.setattr(batch_judge, "batch_of", lambda *args: Rounding(batch_of(*args)))
    require_equal_to_scripted(near, TEXT, drafts)


def test_a_near_tie_takes_one_pass_for_all_drafts_that_share_it(pair, monkeypatch):
    near = tied(pair, 0.0)
    lone = counted(monkeypatch, ModelRuntime, "forward")
    costs = Lanes(near).calibrate(RunConfig(prompt="", max_new_tokens=1))
    before = len(lone)
    drafts = ["".join(letters) for letters in itertools.product("ABCDEFGH", repeat=2)]
    event = class_of(near, TEXT, drafts)
    assert {one["round"]["drafted"][0]["compared"] for one in event["verdicts"]} == {True}
    shapes = 1 if costs.rows else 2
    passes_beside = 1 + len(event["model"]["drafted"])
    assert len(lone) - before <= shapes * (MAX_K + 1) + 2 * passes_beside < len(drafts)


def test_all_tokens_alike_are_told_apart_as_alone(pair):
    target = tiny_pair().target
    with torch.no_grad():
        target.lm_head.weight.zero_()
    require_equal_to_scripted(replace(pair, target=target), TEXT, ["a", "ab", "<s>", "<s><s><s>", "abc"])


class SteadyWatch:
    """Every lap takes six seconds."""

    def __init__(self, device):
        self.count = 0

    def lap(self):
        self.count += 1

    def laps(self):
        return [6.0] * self.count


def test_seconds_are_those_of_the_passes_divided_by_who_shared_them(pair, monkeypatch):
    monkeypatch.setattr(batch_judge, "ROWS", 2)
    monkeypatch.setattr(batch_judge, "Stopwatch", SteadyWatch)
    drafts = ["a", "ab", "c"]
    rounds = [one["round"] for one in class_of(pair, TEXT, drafts)["verdicts"]]
    assert [(round_["verify_s"], round_["prefill_s"]) for round_ in rounds] == [(3.0, 2.0)] * 3
    rounds = [one["round"] for one in class_of(tied(pair, 0.0), TEXT, drafts)["verdicts"]]
    assert rounds[0]["verify_s"] == 9.0, "and its own pass"


def test_drafts_of_about_one_length_share_a_pass(pair, monkeypatch):
    monkeypatch.setattr(batch_judge, "ROWS", 2)
    made = counted(monkeypatch, PlainBatch, "run")
    event = require_equal_to_scripted(pair, TEXT, ["abcde", "a", "fghij", "b"])
    assert [tuple(ids.shape) for ids, _ in made] == [(2, 2), (2, 6)]
    assert [len(one["round"]["drafted"]) for one in event["verdicts"]] == [5, 1, 5, 1], "in the order given"


@pytest.mark.parametrize("asked", [0, 1, 2, 3])
def test_stop_ends_a_class_before_the_next_batch_and_tells_nothing(pair, monkeypatch, asked):
    monkeypatch.setattr(batch_judge, "ROWS", 2)
    made = counted(monkeypatch, PlainBatch, "run")
    answers = iter([False] * asked + [True] * 9)
    request = parse_class({"text": TEXT, "drafts": ["a", "b", "c", "d", "e", "f"]})
    events = list(judge_class(pair, request, lambda: next(answers)))
    assert [event["type"] for event in events] == ["progress"] * asked
    assert len(made) == asked


def test_numbers_that_are_none_end_the_class(pair):
    target = tiny_pair().target
    with torch.no_grad():
        target.lm_head.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError):
        class_of(replace(pair, target=target), TEXT, ["a", "b"])


def test_the_drafter_beside_the_class_drafts_as_in_play(pair):
    event = class_of(pair, TEXT, ["ab", "abcd"])
    config = one_round_config(TEXT, 4, drafter="draft-model")
    wanted = one_round(pair, config, pair.prompt_ids(config))
    assert [token["id"] for token in event["model"]["drafted"]] == [token.id for token in wanted.drafted]
    assert event["target"] == own_text(pair, TEXT, len(event["target"]))
    bare = class_of(replace(tiny_pair(), draft=None), TEXT, ["ab"])
    assert bare["model_name"] == "Copying"


def test_the_service_judges_a_class_and_refuses_in_words(pair):
    service = service_of(pair)
    *_, event = service.events(JobKind.CLASS, {"text": "abc", "drafts": ["x", "y"]}, lambda: False)
    assert event["type"] == "class-judged" and event["drafts"] == [0, 1]
    with pytest.raises(UserError, match="Draft 2: The draft is empty"):
        list(service.events(JobKind.CLASS, {"text": "abc", "drafts": ["x", ""]}, lambda: False))


def off_by(pair, text, drafts):
    """The largest difference of a logit between a pass over all drafts, of one length, and one over each."""
    config = one_round_config(text, MAX_K, drafter=SCRIPTED, script="x")
    *read, last = pair.prompt_ids(config)
    lane = Lanes(pair).verifier(config, len(read) + 1)
    lane.prefill(torch.tensor(read))
    batch = batch_of(pair.target, len(drafts), len(read) + MAX_K + 1)
    batch.begin_with(lane.keys_and_values())
    logits = batch.run(torch.tensor([[last, *draft] for draft in drafts]), len(read))
    differences = []
    for draft, together in zip(drafts, logits, strict=True):
        differences.append((lane.forward(torch.tensor([last, *draft])) - together).abs().max().item())
        lane.rollback(len(read))
    return max(differences), batch_judge.margin_of(logits)


WORDS = ["Paris", "the", "city", "of", "a", "and", "is", "not", "Lyon", ",", ".", "which", "capital"]


@pytest.mark.slow
def test_the_embedded_target_judges_a_class_as_it_judges_each(embedded_pair):
    text, rng = "The capital of France is", random.Random(0)
    own = embedded_pair.pieces.text(own_text(embedded_pair, text, MAX_K + 1))
    drafts = [" " + " ".join(rng.choices(WORDS, k=rng.randrange(1, 7))) for _ in range(40)]
    drafts += [*[own[:end] + rng.choice(WORDS) for end in range(1, len(own), 3)][:18], own, " Paris"]
    event = require_equal_to_scripted(embedded_pair, text, drafts)
    assert event["verdicts"][event["drafts"][-1]]["round"]["drafted"][0]["status"] == Status.ACCEPTED
    assert event["longest"] and 0 < event["alpha"] < 1 and event["model_alpha"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("text", ["The capital of France is", "x", "In 1969 " + "the moon and the " * 40])
def test_the_margin_is_several_times_what_the_embedded_target_s_passes_differ_by(embedded_pair, text):
    rng = random.Random(1)
    drafts = [[rng.randrange(1000, 40_000) for _ in range(7)] for _ in range(12)]
    difference, margin = off_by(embedded_pair, text, drafts)
    assert 2 * difference < margin / 3
