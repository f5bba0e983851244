"""A turn of Play without models: requests, scores, events and sentences."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from specdemo.play.game import MODEL, ONE, TWO, Score, TurnEvents, parse_turn
from specdemo.records.limits import MAX_NEW_TOKENS, UserError
from specdemo.records.trace import Finish, Round, Status, TargetToken, Token

GOOD = {"text": "The capital of France is", "draft": " Paris"}
COUNTS = asdict(Score(rounds=1, compared=2, accepted=1, tokens=2, streak=0, best=1))


def round_of(kept: str, discarded: str = "", own: str = "", finish: Finish = Finish.STOPPED) -> Round:
    """Return a round of letters; ``own`` is the target's token."""
    tokens = [Token(ord(letter), 1.0, 1.0, Status.ACCEPTED, True, False) for letter in kept]
    for place, letter in enumerate(discarded):
        tokens.append(Token(ord(letter), 1.0, 0.0, Status.DISCARDED, place == 0 < len(own), place == 0))
    status = Status.CORRECTED if discarded else Status.BONUS
    emission = TargetToken(ord(own), status, prob=1.0) if own else None
    return Round(0, 5, tuple(tokens), emission, 0.0, 0.0, 0.0, finish=finish)


BAD_SCORES = (
    *([], {"three": COUNTS}, {ONE: 3}, {ONE: {"rounds": 1}}),
    *({ONE: {**COUNTS, **change}} for change in ({"best": "x"}, {"best": -1}, {"accepted": 3})),
)
PIECES: Any = SimpleNamespace(
    encoded=lambda ids: {}, text=lambda ids: "".join(map(chr, ids)), specials=frozenset({3})
)


def turn_of(request=None, drafter="draft-model"):
    return TurnEvents(parse_turn(request or GOOD), drafter, PIECES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({"draft": draft}, "draft is empty; type") for draft in ("", "   ")),
        ({"draft": None}, "draft must be text"),
        ({"draft": "x" * 401}, "at most 400 characters, got 401"),
        ({"draft": "\ud800"}, "lone surrogate"),
        ({"second_draft": " "}, "draft is empty"),
        ({"second_draft": 7}, "draft must be text"),
        ({"text": ""}, "prompt is empty"),
        ({"text": 7}, "prompt must be text"),
        *(({"written": ids}, "written must be the list") for ids in ("abc", [1.5], [True], [-1])),
        ({"written": [1] * (MAX_NEW_TOKENS + 1)}, "limit of 1,024 tokens; start a new game"),
        *(({"scores": scores}, "scores must be the scores") for scores in BAD_SCORES),
        ({"colour": "red"}, "Unknown setting 'colour'"),
    ],
)
def test_bad_values_get_one_sentence(change, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_turn({**GOOD, **change})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_a_score_counts_compared_accepted_and_the_longest_streak():
    score = Score()
    for round_ in (round_of("ab", own="c"), round_of("d", "xyz", "e"), round_of("fg", "x", "h")):
        score = score.after(round_)
    assert score == Score(rounds=3, compared=7, accepted=5, tokens=8, streak=0, best=3)
    assert score.alpha == 5 / 7 and score.tau == 8 / 3
    assert Score().alpha is None and Score().tau is None
    assert score.after(round_of("", own="h")).best == 3
    assert score.after(round_of("ij", own="k")).streak == 2


def test_a_turn_has_a_sentence_about_every_draft_and_about_the_game():
    before = Score(rounds=1, compared=2, accepted=1, tokens=2, streak=1, best=1)
    turn = turn_of({**GOOD, "written": [33], "scores": {ONE: asdict(before)}})
    event = turn.judged(ONE, round_of("ab", "xy", "c"))
    assert event["score"] == asdict(Score(2, 5, 3, 5, 0, 3)), "scores continue from the last turn"
    assert (event["alpha"], event["tau"], event["name"], event["specials"]) == (3 / 5, 5 / 2, "You", [3])
    turn.judged(MODEL, round_of("abc", own="d"))
    end = turn.end()
    assert end["sentence"] == (
        "You: 2 of 4 accepted; the target writes “c” instead of “x”. Draft model: all 3 of 3 accepted."
    )
    assert end["closing"] == (
        "Acceptance rates: you 60%, the draft model 100%. "
        "4 tokens in 2 target passes; the target alone needs 4 passes."
    )
    assert end["written"] == [33, *b"abc"] and end["text"] == GOOD["text"] + "!abc"
    assert end["finish"] is None


def test_the_draft_with_more_accepted_tokens_extends_the_text_but_not_the_draft_models():
    turn = turn_of({**GOOD, "second_draft": " Rome"})
    turn.judged(ONE, round_of("a", "x", "b"))
    turn.judged(TWO, round_of("ab", "x", "c"))
    turn.judged(MODEL, round_of("abcd", own="e"))
    end = turn.end()
    assert end["best"] == TWO and bytes(end["written"]) == b"abc"
    assert end["sentence"].startswith("Player 1: 1 of 2 accepted;") and " Player 2: 2 of 3" in end["sentence"]
    assert end["closing"].startswith("Acceptance rates: player 1 50%, player 2 67%, the draft model 100%.")
    even = turn_of({**GOOD, "second_draft": " Rome"})
    for player in (ONE, TWO, MODEL):
        even.judged(player, round_of("a", "x", "b"))
    assert even.end()["best"] == ONE


def test_invisible_tokens_and_cut_text_are_named():
    turn = turn_of(drafter="prompt-lookup")
    turn.judged(ONE, round_of("", " ", "\n"), cut=" and more")
    turn.judged(MODEL, round_of("", own="\n"))
    assert turn.end()["sentence"] == (
        "You: 0 of 1 accepted; the target writes a line break instead of a space. "
        "“and more” was cut, because the limit is 1 draft token. Prompt lookup: no draft tokens."
    )
    assert "prompt lookup n/a." in turn.end()["closing"]
