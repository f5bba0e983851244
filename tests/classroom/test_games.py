"""The class as the draft model: deadlines of drafts, the judge, and the results that everybody sees."""

import asyncio

import pytest
from helpers.rooms import ASK, Clock, in_loop, on_loop, post
from helpers.stand_in import StandIn

from specdemo.classroom import games as games_module
from specdemo.classroom.class_jobs import Jobs
from specdemo.classroom.games import Games, Phase, nickname, parse_game
from specdemo.classroom.log import Log
from specdemo.classroom.room import Room
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind

GAME = {"text": "Please answer", "seconds": 5}


async def judge(request, _stop):
    for event in StandIn().events(JobKind(request.kind), request.settings, lambda: False):
        yield event


def draft(text=" as soon", game=1, **more):
    return {"game": game, "draft": text, **more}


@pytest.fixture
def short(monkeypatch):
    """Make games end after their drafts were sent."""
    monkeypatch.setattr(games_module, "GRACE_S", -4.98)


def played(*drafts, judge=judge, **settings):
    """Return the games of a class after a game with these drafts, ``(student, message)``."""

    async def work():
        games = Games(Log(), Jobs(judge))
        games.start({**GAME, **settings})
        for student, message in drafts:
            games.take(student, message)
        while games.current.phase not in (Phase.JUDGED, Phase.FAILED):
            await asyncio.sleep(0.01)
        return games

    return in_loop(work)


@pytest.mark.parametrize(
    "message", [draft(game=2), draft(more=1), *map(draft, ("", "   ", "x" * 401, None, "a\x00"))]
)
def test_a_bad_draft_is_refused_in_a_sentence(message):
    game = parse_game(GAME, 1)
    with pytest.raises(UserError, match=r"\.$"):
        game.take("a", message)
    assert game.drafts == {}


@pytest.mark.parametrize(
    "change",
    [{"text": ""}, {"text": 1}, {"open_drafts": 1}, {"x": 1}, *({"seconds": bad} for bad in (4, 121, "9"))],
)
def test_a_bad_game_is_refused_in_a_sentence(change):
    with pytest.raises(UserError, match=r"\.$"):
        parse_game({**GAME, **change}, 1)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        *[(name, name) for name in ("Ana", "Élodie B.", "李雷", "x_1", "O'Neil-2", "प्रिया", "")],
        *((" Ana ", "Ana"), ("<b>x</b>", "bxb"), ("x" * 99, "x" * 16), ("a\n\n b", "a b"), ("ﬁ", "fi")),
        *(("a\u202eb", "ab"), (None, ""), (7, ""), ("🎉", "")),
    ],
)
def test_a_nickname_keeps_letters_of_all_alphabets_and_no_markup(typed, shown):
    assert nickname(typed) == shown


def test_before_the_end_nobody_sees_a_draft_which_has_no_marks_that_reverse_text():
    game = parse_game({"text": "Once \u202eupon", "open_drafts": True}, 1)
    game.take("a", draft(" a\u2066 time\u202e", name="A\u200fna"))
    (written,) = game.drafts.values()
    assert (game.text, written.text, written.name) == ("Once upon", " a time", "Ana")
    shown = game.for_students()
    assert (shown["count"], shown["results"]) == (None, None)
    assert "time" not in str(shown) and "Ana" not in str(shown)


def test_everybody_sees_open_drafts_and_the_nicknames_of_the_best(short):
    named = (("a", draft(" as so", name="Ana")), ("b", draft(name="Bo")), ("c", draft()))
    results = played(*named, open_drafts=True).current.for_students()["results"]
    assert results["best"] == ["Bo"] and "Ana" not in str(results)
    assert {key for one in results["verdicts"] for key in one} == {"drafted", "emission", "count", "cut"}
    drawn = {token["id"] for one in results["verdicts"] for token in one["drafted"]}
    assert drawn <= {int(token) for token in results["pieces"]}


def test_only_its_student_sees_a_draft_that_is_not_open_the_latest_one(short):
    named = (("a", draft(" as soon")), ("b", draft(" quizzes", name="Bo")), ("c", draft()))
    games = played(*named, ("a", draft(" as possible")))
    game = games.current
    results, own = game.for_students()["results"], [game.verdict_of(student) for student in "abc"]
    assert results["verdicts"] == [] and results["best"] == []
    assert not {*b"qz"} & {int(token) for token in results["pieces"]}
    assert {*b"qz"} <= {int(token) for token in own[1]["pieces"]}
    assert [sum(token["status"] == "accepted" for token in one["drafted"]) for one in own] == [4, 1, 8]
    assert game.verdict_of("d") is None
    assert [summary["count"] for summary in games.summary()] == [3]
    with pytest.raises(UserError, match="writing time is over"):
        games.take("d", draft())


@pytest.mark.parametrize(
    ("fault", "drafts", "words"),
    [
        (UserError("Too many are waiting."), [("a", draft())], "Too many are waiting."),
        (KeyError("a fault"), [("a", draft())], "internal error"),
        (None, [], "Nobody has written"),
    ],
)
def test_a_game_that_cannot_be_judged_says_why(short, fault, drafts, words):
    async def broken(_request, _stop):
        raise fault
        yield

    assert words in played(*drafts, judge=broken).current.error


@on_loop
async def test_one_game_is_on_at_a_time_and_none_without_a_judge():
    games = Games(Log(), Jobs(judge))
    assert games.time_left() is None
    games.start(GAME)
    with pytest.raises(UserError, match="A game is running"):
        games.start(GAME)
    games.dismiss()
    games.start({**GAME, "seconds": 120})
    before = games.time_left()
    await asyncio.sleep(0.02)
    assert before["game"] == 2 and 0 < games.time_left()["left"] < before["left"] <= 120
    games.stop()
    with pytest.raises(UserError, match="Games do not work"):
        Games(Log(), None).start(GAME)


@on_loop
async def test_a_dismissed_game_is_not_judged_and_its_judge_is_stopped(short):
    stops = []

    async def slow(_request, stop):
        stops.append(stop)
        while not stop():
            await asyncio.sleep(0.01)
        yield {"type": "progress"}

    games = Games(Log(), Jobs(slow))
    games.start(GAME)
    games.take("a", draft())
    games.dismiss()
    await asyncio.sleep(0.1)
    assert stops == [] and games.current is None
    games.start(GAME)
    games.take("a", draft(game=2))
    while not stops:
        await asyncio.sleep(0.01)
    assert not stops[0]()
    games.dismiss()
    assert stops[0]()
    await asyncio.sleep(0.1)
    assert games.current is None and games.summary() == []


@on_loop
async def test_a_class_accepts_drafts_of_its_own_students_only_and_no_posts_too_often():
    clock = Clock()
    room = Room("BCDFG", clock, submit=judge)
    room.take(post({"type": "play", **GAME}, ASK))
    token, other = room.students.join(), room.students.join()
    with pytest.raises(UserError, match="not in this class"):
        room.draft("forged", draft())
    for _ in range(5):
        room.draft(token, draft())
    vote = {"question": 1, "answer": 0}
    for take, message in ((room.draft, draft()), (room.answer, vote)):
        with pytest.raises(UserError, match="Too many requests"):
            take(token, message)
        take(other, message)
        clock.now += 1
        take(token, message)
    assert room.known_of(token)["drafted"] == {"game": 1, "draft": " as soon"}
    state = room.take(post())
    game = state["game"]
    assert state["writing"]["game"] == 1 and 0 < state["writing"]["left"] <= 20
    assert (game["phase"], game["count"], game["absent"]) == ("open", 2, 2)
    room.end()
