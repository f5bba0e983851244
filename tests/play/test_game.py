"""A turn of Play without models: what may be asked, how it is scored and told."""

from dataclasses import asdict

import pytest

from specdemo.play.game import MODEL, ONE, TWO, TurnLog, parse_turn
from specdemo.play.score import Score
from specdemo.records.limits import MAX_DRAFT_CHARS, MAX_NEW_TOKENS, UserError
from specdemo.records.trace import Emission, Finish, Round, Status, Token

GOOD = {"text": "The capital of France is", "draft": " Paris"}
COUNTS = asdict(Score(rounds=1, compared=2, accepted=1, tokens=2, streak=0, best=1))


def round_of(kept: str, fallen: str = "", own: str = "", finish: Finish = Finish.STOPPED) -> Round:
    """A round whose tokens are letters: the first of ``fallen`` was refused, ``own`` is the target's."""
    tokens = [Token(ord(letter), 1.0, 1.0, Status.ACCEPTED, True, False) for letter in kept]
    for place, letter in enumerate(fallen):
        tokens.append(Token(ord(letter), 1.0, 0.0, Status.DISCARDED, place == 0 < len(own), place == 0))
    status = Status.CORRECTED if fallen else Status.BONUS
    emission = Emission(ord(own), status, prob=1.0) if own else None
    return Round(0, 5, tuple(tokens), emission, 0.0, 0.0, 0.0, finish=finish)


def log_of(request=None, drafter="draft-model"):
    return TurnLog(
        parse_turn(request or GOOD), drafter, lambda ids: {}, lambda ids: "".join(map(chr, ids)), {3}
    )


def test_a_request_needs_only_text_and_draft():
    request = parse_turn(GOOD)
    assert request.text == GOOD["text"] and request.drafts == {ONE: " Paris"}
    assert request.written == () and request.scores == {}
    full = parse_turn({**GOOD, "second_draft": " Rome", "written": [7, 8], "scores": {ONE: COUNTS}})
    assert full.drafts == {ONE: " Paris", TWO: " Rome"}
    assert full.written == (7, 8) and full.scores[ONE].accepted == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"draft": ""}, "draft is empty; type"),
        ({"draft": "   "}, "draft is empty; type"),
        ({"draft": None}, "draft must be text"),
        ({"draft": "x" * (MAX_DRAFT_CHARS + 1)}, "shorten it to 400"),
        ({"draft": "\ud800"}, "lone surrogate"),
        ({"second_draft": " "}, "draft is empty"),
        ({"second_draft": 7}, "draft must be text"),
        ({"text": ""}, "prompt is empty"),
        ({"text": 7}, "prompt must be text"),
        ({"written": "abc"}, "written must be the list"),
        ({"written": [1.5]}, "written must be the list"),
        ({"written": [True]}, "written must be the list"),
        ({"written": [-1]}, "written must be the list"),
        ({"written": [1] * (MAX_NEW_TOKENS + 1)}, "start a new one"),
        ({"scores": []}, "scores must be those"),
        ({"scores": {"three": COUNTS}}, "scores must be those"),
        ({"scores": {ONE: 3}}, "scores must be those"),
        ({"scores": {ONE: {"rounds": 1}}}, "scores must be those"),
        ({"scores": {ONE: {**COUNTS, "best": "x"}}}, "scores must be those"),
        ({"scores": {ONE: {**COUNTS, "best": -1}}}, "scores must be those"),
        ({"scores": {ONE: {**COUNTS, "accepted": 3}}}, "scores must be those"),
        ({"colour": "red"}, "Unknown setting 'colour'"),
    ],
)
def test_bad_values_get_one_sentence(change, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_turn({**GOOD, **change})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_a_score_counts_compared_accepted_and_the_longest_streak():
    score = (
        Score()
        .after(round_of("ab", own="c"))
        .after(round_of("d", "xyz", "e"))
        .after(round_of("fg", "x", "h"))
    )
    assert score == Score(rounds=3, compared=7, accepted=5, tokens=8, streak=0, best=3)
    assert score.alpha == 5 / 7 and score.tau == 8 / 3
    assert Score().alpha is None and Score().tau is None
    assert score.after(round_of("", own="h")).best == 3
    assert score.after(round_of("ij", own="k")).streak == 2


def test_scores_go_on_from_the_turn_before():
    before = Score(rounds=1, compared=2, accepted=1, tokens=2, streak=1, best=1)
    log = log_of({**GOOD, "scores": {ONE: asdict(before)}})
    event = log.judged(ONE, round_of("ab", "xy", "c"))
    assert event["score"] == asdict(Score(2, 5, 3, 5, 0, 3))
    assert (event["alpha"], event["tau"]) == (3 / 5, 5 / 2)
    assert event["name"] == "You" and event["specials"] == [3]


def test_a_turn_is_told_in_words():
    log = log_of({**GOOD, "written": [33]})
    log.judged(ONE, round_of("ab", "xy", "c"))
    log.judged(MODEL, round_of("abc", own="d"))
    end = log.end()
    assert end["sentence"] == (
        "You: 2 of 4 accepted; instead of “x” the target writes “c”. Draft model: all 3 of 3 accepted."
    )
    assert end["closing"] == (
        "You: 67% accepted, the draft model: 100%. 4 tokens in 1 target pass; alone the target needs 4."
    )
    assert end["written"] == [33, *b"abc"] and end["text"] == GOOD["text"] + "!abc"
    assert end["finish"] is None


def test_the_longer_kept_draft_takes_the_text_further_but_not_the_draft_models():
    log = log_of({**GOOD, "second_draft": " Rome"})
    log.judged(ONE, round_of("a", "x", "b"))
    log.judged(TWO, round_of("ab", "x", "c"))
    log.judged(MODEL, round_of("abcd", own="e"))
    end = log.end()
    assert end["best"] == TWO and bytes(end["written"]) == b"abc"
    assert end["sentence"].startswith("Player 1: 1 of 2 accepted;") and " Player 2: 2 of 3" in end["sentence"]
    assert end["closing"].startswith("Player 1: 50% accepted, player 2: 67%, the draft model: 100%.")
    even = log_of({**GOOD, "second_draft": " Rome"})
    for player in (ONE, TWO, MODEL):
        even.judged(player, round_of("a", "x", "b"))
    assert even.end()["best"] == ONE


def test_what_cannot_be_seen_or_was_not_looked_at_is_named():
    log = log_of(drafter="prompt-lookup")
    log.judged(ONE, round_of("", " ", "\n"), cut=" and more")
    log.judged(MODEL, round_of("", own="\n"))
    assert log.end()["sentence"] == (
        "You: 0 of 1 accepted; instead of a space the target writes a line break. "
        "The end, “and more”, was cut: a draft has 1 token at most. Copying: nothing drafted."
    )
    assert "copying: nothing." in log.end()["closing"]


@pytest.mark.parametrize("finish", [Finish.EOS, Finish.CONTEXT])
def test_the_end_of_the_text_is_the_end_of_the_game(finish):
    log = log_of()
    log.judged(ONE, round_of("ab", "xy", finish=finish))
    log.judged(MODEL, round_of("a", "x", "b"))
    assert log.end()["finish"] == finish
    assert log.end()["sentence"].startswith("You: 2 of 4 accepted; with them the text ends.")
