"""Turns of Play on real engines: a tiny pair, and the built-in one."""

import itertools
import string
from dataclasses import replace

import pytest
from helpers.tiny import service_of, tiny_pair

from specdemo.pairs.lanes import Lanes
from specdemo.play.game import MODEL, ONE, TWO, parse_turn, play_turn
from specdemo.records.limits import UserError, parse_config
from specdemo.records.trace import Finish, RunConfig, Status
from specdemo.service.jobs import JobKind

pytestmark = pytest.mark.usefixtures("one_thread")
TYPED = set(string.ascii_letters + string.digits)


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture(scope="module")
def known(pair):
    for letters in itertools.product(string.ascii_lowercase, repeat=2):
        text = "ab" + "".join(letters)
        written = pair.pieces.text(alone(pair, text, 2))
        if set(written) <= TYPED and len(set(written)) == 2:
            return text, written
    raise AssertionError("this pair never writes two letters")


def alone(pair, text, tokens):
    config = parse_config({"prompt": text, "mode": "raw", "max_new_tokens": tokens})
    rounds = Lanes(pair).baseline(config, pair.prompt_ids(config))
    return [token for round_ in rounds for token in round_.emitted]


def turn(pair, text, draft, second="", **earlier):
    request = {"text": text, "draft": draft, "second_draft": second, **earlier}
    *judged, end = play_turn(pair, parse_turn(request))
    return {event["player"]: event for event in judged}, end


def statuses(event):
    return [token["status"] for token in event["round"]["drafted"]]


def test_the_agreeing_prefix_of_the_better_draft_extends_the_text_and_is_corrected(pair, known):
    text, (first, second) = known
    judged, end = turn(pair, text, "????", f"{first}??")
    assert (set(judged), end["best"]) == ({ONE, TWO, MODEL}, TWO)
    round_ = judged[TWO]["round"]
    assert statuses(judged[TWO]) == [Status.ACCEPTED, Status.DISCARDED, Status.DISCARDED]
    assert [token["rejected"] for token in round_["drafted"]] == [False, True, False]
    assert round_["emission"]["status"] == Status.CORRECTED
    assert pair.pieces.text([round_["emission"]["id"]]) == second
    assert (judged[TWO]["alpha"], judged[TWO]["tau"]) == (1 / 2, 2.0)
    assert end["text"] == text + first + second
    assert judged[MODEL]["round"]["drafted_by"] == "draft-model"
    assert len(judged[MODEL]["round"]["drafted"]) == 4, "as long as the longest"


@pytest.mark.parametrize("draft", ["<img src=x onerror=alert(1)>", "🎉é\n\t", "    ."])
def test_whatever_is_drafted_the_text_is_the_targets(pair, draft):
    text, written, scores, sizes = "naïve 🎉", [], {}, []
    for _ in range(4):
        judged, end = turn(pair, text, draft, written=written, scores=scores)
        scores = {player: event["score"] for player, event in judged.items()}
        known = {int(token) for event in judged.values() for token in event["pieces"]}
        assert set(end["written"][len(written) :]) <= known
        written = end["written"]
        sizes.append(len(written))
    assert sizes == sorted(set(sizes)), "every turn writes"
    assert written == alone(pair, text, len(written)), "byte for byte, also where that is no text"
    assert scores[ONE]["rounds"] == scores[MODEL]["rounds"] == 4
    assert scores[ONE]["tokens"] == len(written)


@pytest.fixture
def ending(pair, known):
    before = pair.target.generation_config.eos_token_id
    [token] = pair.script_ids(known[1][1])
    pair.target.generation_config.eos_token_id = token
    yield token
    pair.target.generation_config.eos_token_id = before


def test_an_accepted_end_of_text_ends_the_game(pair, known, ending):
    text, written = known
    judged, end = turn(pair, text, f"{written}more")
    assert judged[ONE]["round"]["emission"] is None and end["finish"] == Finish.EOS
    assert end["written"][-1] == ending
    assert end["sentence"].startswith("You: 2 of 6 accepted; the target's text ends")
    judged, corrected = turn(pair, text, f"{written[0]}?")
    assert judged[ONE]["round"]["emission"]["id"] == ending and corrected["finish"] == Finish.EOS
    with pytest.raises(UserError, match="has ended the text; start a new game"):
        turn(pair, text, "more", written=end["written"])
    with pytest.raises(UserError, match="written must contain only token ids below"):
        turn(pair, "abc", "x", written=[10**6])


def test_a_game_ends_with_the_targets_context(pair, monkeypatch):
    monkeypatch.setattr(pair.target.config, "max_position_embeddings", 40)
    with pytest.raises(UserError, match="shorten the prompt"):
        turn(pair, "x" * 60, "y")
    rows = Lanes(pair).calibrate(RunConfig(prompt="")).rows
    floor = 1 + max((padded - count for count, padded in enumerate(rows, 1)), default=0)
    judged, end = turn(pair, "x" * (40 - floor - 1), "yyyy")
    assert len(judged[ONE]["round"]["drafted"]) == 1 and judged[ONE]["cut"] == "yyy"
    assert "“yyy” was cut" in end["sentence"]
    judged, end = turn(pair, "x" * (40 - floor), "yyyy")
    assert judged[ONE]["round"]["drafted"] == () and end["finish"] == Finish.CONTEXT


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_stop_ends_a_turn_before_the_next_drafter(pair, asked):
    answers = iter([False] * asked + [True] * 9)
    request = parse_turn({"text": "abc", "draft": "x", "second_draft": "y"})
    events = list(play_turn(pair, request, lambda: next(answers)))
    assert [event["player"] for event in events] == [ONE, TWO, MODEL][:asked]


@pytest.mark.parametrize(
    ("kind", "request_", "last"),
    [
        (JobKind.PLAY, {"text": "abc", "draft": "x"}, "turn"),
        (JobKind.CLASS, {"text": "abc", "drafts": ["x"]}, "class-judged"),
    ],
)
def test_the_service_plays_a_turn_and_judges_a_class(pair, kind, request_, last):
    *_, end = service_of(pair).events(kind, request_, lambda: False)
    assert end["type"] == last


def test_without_a_draft_model_another_drafter_plays_along(known):
    bare = replace(tiny_pair(), draft=None)
    judged, end = turn(bare, known[0], known[1])
    assert judged[MODEL]["name"] == "Prompt lookup" and end["type"] == "turn"


@pytest.mark.slow
def test_the_builtin_target_keeps_the_words_it_knows(builtin_pair):
    text = "The capital of France is"
    judged, end = turn(builtin_pair, text, " Paris and nothing else", "Paris")
    tokens = judged[ONE]["round"]["drafted"]
    assert builtin_pair.pieces.text([tokens[0]["id"]]) == " Paris"
    assert statuses(judged[ONE])[:2] == [Status.ACCEPTED, Status.DISCARDED]
    assert statuses(judged[TWO])[0] == Status.DISCARDED, "its space belongs to the word"
    assert tokens[0]["raw_p"] > tokens[1]["raw_p"] and judged[ONE]["round"]["emission"]["raw_prob"] > 0.2
    assert end["text"].startswith(f"{text} Paris")
    _, after = turn(builtin_pair, text, " nonsense", written=end["written"])
    assert after["written"] == alone(builtin_pair, text, len(after["written"]))
