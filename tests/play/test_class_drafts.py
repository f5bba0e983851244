"""The drafts of a class: requests, verdicts of real engines, and results of handmade rounds."""

import itertools
import random
from dataclasses import asdict, replace

import pytest
from helpers.tiny import byte_tokenizer, tiny_pair

from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.play.class_drafts import class_judged, judge_class, parse_class
from specdemo.play.game import one_round, one_round_config
from specdemo.records.limits import MAX_CLASS_DRAFTS, MAX_K, SCRIPTED, UserError, parse_config
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Finish, Round, RunConfig, Status, TargetToken, Token

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "abca"
GOOD = {"text": "The capital of France is", "drafts": [" Paris", " a city", " Paris"]}
TOKENIZER = byte_tokenizer()
PIECES = PieceTable(TOKENIZER)
FIRST = 0x4E00  # the letter that stands for token 0: these targets seldom write text that can be typed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": ""}, "^The prompt is empty"),
        *(({"drafts": drafts}, "^drafts must be a list of texts") for drafts in (None, "Paris", {"a": "b"})),
        *(({"drafts": ["x"] * count}, f"1 to 300 texts; this request has {count}") for count in (0, 301)),
        ({"drafts": [7]}, "^Draft 1: The draft must be text"),
        ({"drafts": ["a", "b", "x" * 401]}, "^Draft 3: The draft must have at most 400 characters, got 401"),
        ({"draft": "x"}, "^Unknown setting 'draft'"),
    ],
)
def test_a_request_has_up_to_300_drafts_and_bad_values_get_one_sentence(change, words):
    most = {**GOOD, "drafts": [f"x{number}" for number in range(MAX_CLASS_DRAFTS)]}
    assert list(parse_class(most).drafts) == most["drafts"]
    with pytest.raises(UserError, match=words) as caught:
        parse_class({**GOOD, **change})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture(scope="module")
def compiled(pair):
    return replace(tiny_pair(), target=CompiledLlama(tiny_pair().target), costs=pair.costs)


@pytest.fixture(autouse=True)
def spelling(monkeypatch):
    tokens = Pair.script_ids

    def script_ids(self, script):
        ids = []
        for spelt, group in itertools.groupby(script, lambda letter: FIRST <= ord(letter) < FIRST + 300):
            part = "".join(group)
            ids += [ord(letter) - FIRST for letter in part] if spelt else tokens(self, part)
        return ids

    monkeypatch.setattr(Pair, "script_ids", script_ids)


def spelled(ids):
    return "".join(chr(FIRST + token) for token in ids)


def own_text(pair, text, tokens):
    config = parse_config({"prompt": text, "mode": "raw", "max_new_tokens": tokens})
    rounds = Lanes(pair).baseline(config, pair.prompt_ids(config))
    return [token for round_ in rounds for token in round_.emitted]


def drafts_near(pair, text):
    """Return drafts that diverge from the target's own text at any point, some longer than the maximum."""
    rng = random.Random(0)
    own = own_text(pair, text, MAX_K + 3)
    drafts = [
        spelled([*own[:kept], *rng.choices(range(pair.vocab), k=rng.randrange(1, 6))])
        for kept in (0, 1, 2, 3, 5, 8, 11, len(own)) * 3
    ]
    return [*drafts, spelled(own), spelled(own[:3]), *drafts[:5], "</s>", "x</s>y", "naïve \u00ff"]


def class_of(pair, text, drafts):
    *progress, event = judge_class(pair, parse_class({"text": text, "drafts": drafts}))
    assert {one["type"] for one in progress} == {"progress"} and progress[-1]["fraction"] == 1.0
    assert event["type"] == "class-judged"
    return event


def judged_as_alone(pair, text, drafts):
    """Check each round against the scripted lane alone, and return the event."""
    event = class_of(pair, text, drafts)
    for draft, index in dict(zip(drafts, event["drafts"], strict=True)).items():
        tokens = max(1, len(pair.script_ids(draft)))
        config = one_round_config(text, tokens, drafter=SCRIPTED, script=draft)
        alone = asdict(one_round(pair, config, pair.prompt_ids(config)))
        assert untimed(event["verdicts"][index]["round"]) == untimed(alone), draft
    return event


def untimed(round_):
    return {key: value for key, value in round_.items() if not key.endswith("_s")}


@pytest.mark.parametrize(
    ("path", "text"), [("pair", TEXT), ("pair", "q"), ("pair", "<s>The 🎉 of\n"), ("compiled", TEXT)]
)
def test_every_draft_of_a_class_is_judged_as_it_is_alone(path, text, request):
    here = request.getfixturevalue(path)
    drafts = drafts_near(here, text)
    event = judged_as_alone(here, text, drafts)
    assert len(event["verdicts"]) == len({tuple(here.script_ids(draft)) for draft in drafts})
    rounds = [one["round"]["drafted"] for one in event["verdicts"]]
    kept = {sum(token["status"] == Status.ACCEPTED for token in drafted) for drafted in rounds}
    assert kept >= {0, 1, 2, 3, 5, 8, 11, 12}


def test_the_target_reads_the_prompt_once_and_makes_one_pass_per_different_draft(pair, monkeypatch):
    class_of(pair, TEXT, ["a"])  # measures the costs
    calls = {"prefill": 0, "forward": 0}
    for name in calls:
        method = getattr(ModelRuntime, name)

        def counting(self, ids, name=name, method=method):
            calls[name] += self.model is pair.target
            return method(self, ids)

        monkeypatch.setattr(ModelRuntime, name, counting)
    class_of(pair, TEXT, ["a", "b", "c", "ab", "b"])
    assert calls == {"prefill": 2, "forward": 5}, "one more of each for the drafter that plays along"


@pytest.fixture
def ending(pair):
    """Make a token of the target's own text end every text, and return it."""
    token = own_text(pair, TEXT, 3)[-1]
    before = pair.target.generation_config.eos_token_id
    pair.target.generation_config.eos_token_id = token
    yield token
    pair.target.generation_config.eos_token_id = before


def test_an_accepted_end_of_text_ends_a_draft_there(pair, ending):
    own = spelled(own_text(pair, TEXT, 3))
    event = judged_as_alone(pair, TEXT, [own + "more", own, own[:1], own[:1] + "?", "?", own + "els"])
    finishes = [one["round"]["finish"] for one in event["verdicts"]]
    assert Finish.EOS in finishes and None in finishes
    assert event["verdicts"][0]["round"]["emission"] is None


def test_the_end_of_a_long_draft_is_cut_and_an_empty_draft_gets_the_targets_next_token(pair, monkeypatch):
    event = judged_as_alone(pair, TEXT, ["0123456789abcdef", "0123456789abcdxy", "0123"])
    assert [one["cut"] for one in event["verdicts"]] == ["cdef", "cdxy", ""]
    assert len(event["model"]["drafted"]) == MAX_K and event["model"]["drafted_by"] == "draft-model"
    tokens = Pair.script_ids
    monkeypatch.setattr(Pair, "script_ids", lambda self, text: [] if text == "?" else tokens(self, text))
    event = judged_as_alone(pair, TEXT, ["?", "ab", "?"])
    [first] = [one for one in event["verdicts"] if not one["round"]["drafted"]]
    assert first["count"] == 2 and first["round"]["emission"]["status"] == Status.BONUS
    assert class_of(pair, TEXT, ["?"])["alpha"] is None


def test_drafts_are_cut_to_the_room_in_the_context(pair, monkeypatch):
    monkeypatch.setattr(pair.target.config, "max_position_embeddings", 40)
    rows = Lanes(pair).calibrate(RunConfig(prompt="")).rows
    floor = 1 + max((padded - count for count, padded in enumerate(rows, 1)), default=0)
    for room in (0, 1, 5):
        event = judged_as_alone(pair, "x" * (40 - floor - room), ["yyyyyyyyyyyyyy", "y", "z", "</s>"])
        assert max(len(one["round"]["drafted"]) for one in event["verdicts"]) == room
    with pytest.raises(UserError, match="shorten the prompt"):
        class_of(pair, "x" * (41 - floor), ["y"])


@pytest.mark.parametrize("asked", [0, 1, 3])
def test_stop_ends_a_class_before_the_next_draft(pair, asked):
    answers = iter([False] * asked + [True] * 9)
    request = parse_class({"text": TEXT, "drafts": ["a", "b", "c"]})
    events = list(judge_class(pair, request, lambda: next(answers)))
    assert [event["type"] for event in events] == ["progress"] * asked


def test_the_pairs_drafter_plays_along_as_in_play(pair):
    event = class_of(pair, TEXT, ["ab", "abcd"])
    config = one_round_config(TEXT, 4, drafter="draft-model")
    wanted = one_round(pair, config, pair.prompt_ids(config))
    assert [token["id"] for token in event["model"]["drafted"]] == [token.id for token in wanted.drafted]
    assert event["target"] == own_text(pair, TEXT, len(event["target"]))


@pytest.mark.slow
def test_the_builtin_target_judges_a_class_as_it_judges_each(builtin_pair):
    text, rng = "The capital of France is", random.Random(0)
    words = ["Paris", "the", "city", "of", "a", "and", "is", "not", "Lyon", ",", ".", "which", "capital"]
    own = builtin_pair.pieces.text(own_text(builtin_pair, text, MAX_K + 1))
    drafts = [" " + " ".join(rng.choices(words, k=rng.randrange(1, 7))) for _ in range(40)]
    drafts += [*[own[:end] + rng.choice(words) for end in range(1, len(own), 3)][:18], own, " Paris"]
    event = judged_as_alone(builtin_pair, text, drafts)
    assert event["verdicts"][event["drafts"][-1]]["round"]["drafted"][0]["status"] == Status.ACCEPTED
    assert event["longest"] and 0 < event["alpha"] < 1 and event["model_alpha"] is not None


def id_of(letter: str) -> int:
    [token] = TOKENIZER(letter, add_special_tokens=False)["input_ids"]
    return token


def round_of(draft: str, target: str) -> Round:
    """Return the round of a draft of letters; ``target`` is a longer text."""
    differing = [i for i, pair in enumerate(zip(draft, target, strict=False)) if pair[0] != pair[1]]
    kept = min(differing, default=len(draft))
    tokens = [
        Token(
            id_of(letter),
            1.0,
            float(i < kept),
            Status.ACCEPTED if i < kept else Status.DISCARDED,
            i <= kept,
            i == kept,
        )
        for i, letter in enumerate(draft)
    ]
    status = Status.CORRECTED if kept < len(draft) else Status.BONUS
    emission = TargetToken(id_of(target[kept]), status, prob=1.0)
    return Round(0, 3, tuple(tokens), emission, 0.0, 0.0, 0.0, finish=Finish.STOPPED)


def results(drafts: list[str], target: str, model: str = "x", cut: str = ""):
    distinct = list(dict.fromkeys(drafts))
    return class_judged(
        [distinct.index(draft) for draft in drafts],
        [round_of(draft, target) for draft in distinct],
        [cut] * len(distinct),
        round_of(model, target),
        "draft-model",
        PIECES,
    )


def test_equal_drafts_share_a_verdict_and_figures_count_every_student():
    event = results(["ab", "ac", "ab", "q"], "abcdef", model="abq", cut="more")
    assert event["type"] == "class-judged" and event["drafts"] == [0, 1, 0, 2]
    assert [verdict["count"] for verdict in event["verdicts"]] == [2, 1, 1]
    assert {verdict["cut"] for verdict in event["verdicts"]} == {"more"}
    assert event["verdicts"][1]["round"]["emission"]["id"] == id_of("b")
    assert set(map(id_of, "abcq")) <= set(event["pieces"])
    assert event["specials"] == sorted(PIECES.specials)
    # Compared 2, 2, 2, 1; accepted 2, 1, 2, 0; emitted 3, 2, 3, 1.
    assert event["alpha"] == pytest.approx(5 / 7) and event["tau"] == pytest.approx(9 / 4)
    assert event["model_alpha"] == pytest.approx(2 / 3) and event["model_name"] == "Draft model"
    rates = "Acceptance rates: the class (4 drafts) 71%, the draft model 67%. Most of the class wrote “ab”; "
    assert event["sentence"].startswith(rates)
    assert results(["q"], "abcdef", model="")["sentence"].startswith(
        "Acceptance rates: the class (1 draft) 0%, the draft model n/a. "
    )


@pytest.mark.parametrize(
    ("drafts", "most"),
    [
        (["abc", "abd", "abx", "q"], [("a", 3), ("b", 3)]),
        (["abc", "abc", "abd", "q"], [("a", 3), ("b", 3), ("c", 2)]),
        (["ab", "ab", "ac", "ac"], [("a", 4)]),
        (["a", "a", "ab", "ab", "ab"], [("a", 5), ("b", 3)]),
        (["a", "a", "ab", "ab"], [("a", 4)]),
        (["a", "b", "c", "a"], []),
        (["abc"], []),
        (["abc", "xyz"], []),
    ],
    ids=str,
)
def test_the_class_agrees_while_more_than_half_of_those_left_write_the_same(drafts, most):
    agreed = results(drafts, "zzzzzzzz")["agreed"]
    assert [(PIECES.text([token["id"]]), token["count"]) for token in agreed] == most


def test_results_have_the_targets_verdicts_its_longest_text_and_the_best_drafts():
    event = results(["abq", "abq", "abr", "abq"], "abcdef")
    statuses = [(token["status"], token["rejected"]) for token in event["agreed"]]
    assert statuses == [(Status.ACCEPTED, False), (Status.ACCEPTED, False), (Status.DISCARDED, True)]
    assert results(["ab", "abc", "q", "abc", "abcx"], "abcdef")["longest"] == [1, 3, 4]
    event = results(["q", "r"], "abcdef", model="abcd")
    assert event["longest"] == [] and event["target"] == list(map(id_of, "abcde"))
    assert results(["ab", "q"], "abcdef")["target"] == list(map(id_of, "abc"))


@pytest.mark.parametrize(
    ("drafts", "model", "sentence"),
    [
        (
            "ab ab aq r",
            "ab",
            "“ab”; the target accepts all of it. Best: 2 drafts with 2 accepted tokens each.",
        ),
        ("aq aq abc", "q", "“aq”; the target accepts “a”. Best draft: 3 accepted tokens."),
        ("q q", "", "“q”; the target writes “a” instead. All drafts were rejected at their first token."),
        (
            "a b",
            "a",
            "No first token was written by more than half of the class. Best draft: 1 accepted token.",
        ),
        (
            "q",
            "a",
            "the class (1 draft) 0%, the draft model 100%. All drafts were rejected at their first token.",
        ),
    ],
)
def test_a_class_gets_a_sentence_about_agreement_and_the_best_draft(drafts, model, sentence):
    assert results(drafts.split(), "abcdef", model)["sentence"].endswith(sentence)
