"""The class as the draft: what is taken until when, who judges, and what everybody is told."""

import asyncio

import pytest
from helpers.stand_in import StandIn

from specdemo.classroom import games as games_module
from specdemo.classroom.game import Phase, compact, nickname, parse_game
from specdemo.classroom.games import Games
from specdemo.classroom.log import Log
from specdemo.classroom.room import Room
from specdemo.records.limits import UserError
from specdemo.service.job_kinds import JobKind

GAME = {"text": "Please answer", "seconds": 5}


def judged(request):
    """What the stand-in makes of drafts."""
    [event] = StandIn().events(JobKind.CLASS, request, lambda: False)
    return event


async def judge(request):
    return judged(request)


def of(number, draft=" as soon", **more):
    return {"game": number, "draft": draft, **more}


@pytest.fixture
def short(monkeypatch):
    """Games that end at once."""
    monkeypatch.setattr(games_module, "GRACE_S", -4.9)


def played(*drafts, judge=judge, **settings):
    """The games of a class after these drafts ``(student, message)`` were judged."""

    async def work():
        log = Log()
        games = Games(log, lambda: None, judge)
        games.begin({**GAME, **settings})
        for student, message in drafts:
            games.take(student, message)
        for _ in range(500):
            if games.at_hand.phase in (Phase.TOLD, Phase.FAILED):
                break
            await asyncio.sleep(0.01)
        return games

    return asyncio.run(asyncio.wait_for(work(), 20))


def test_every_draft_gets_its_number_and_its_verdict(short):
    games = played(
        ("a", of(1, " as soon")),
        ("b", of(1, " nothing")),
        ("c", of(1, " as soon")),
        ("a", of(1, " as possible")),
    )
    game = games.at_hand
    assert [game.number_of(student) for student in "abcd"] == [1, 2, 3, 0]
    results = game.told()["results"]
    assert results["drafts"] == [0, 1, 2]
    kept = [sum(token["status"] == "accepted" for token in one["drafted"]) for one in results["verdicts"]]
    assert kept == [4, 1, 8]
    assert [summed["count"] for summed in games.summed_up()] == [3]


def test_behind_the_time_nothing_is_taken(short):
    games = played(("a", of(1)))
    with pytest.raises(UserError, match="time is over"):
        games.take("b", of(1))


@pytest.mark.parametrize(
    "message",
    [
        of(2),
        of(1, ""),
        of(1, "   "),
        of(1, "x" * 401),
        of(1, None),
        of(1, "a\x00"),
        of(1, name="<b>x</b>"),
        of(1, name="x" * 17),
        of(1, name="a\u202eb"),
        of(1, name=7),
        of(1, more=1),
    ],
)
def test_what_is_no_draft_is_refused_in_a_sentence(message):
    game = parse_game(GAME, 1)
    with pytest.raises(UserError, match=r"\.$"):
        game.take("a", message)
    assert game.drafts == {}


@pytest.mark.parametrize("name", ["Ana", "Élodie B.", "李雷", "x_1", "O'Neil-2", " Ana ", "", None])
def test_names_of_all_alphabets_are_names(name):
    assert nickname(name) == (name or "").strip()


@pytest.mark.parametrize(
    "settings",
    [{"text": ""}, {"text": 1}, {"seconds": 4}, {"seconds": 121}, {"seconds": "9"}, {"names": 1}, {"x": 1}],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(settings):
    with pytest.raises(UserError, match=r"\.$"):
        parse_game({**GAME, **settings}, 1)


def test_names_are_of_the_best_and_only_where_they_are_wanted(short):
    drafts = (
        ("a", of(1, " as so", name="Ana")),
        ("b", of(1, " as soon", name="Bo")),
        ("c", of(1, " as soon")),
    )
    assert played(*drafts, names=True).at_hand.told()["results"]["best"] == ["Bo"]
    assert played(*drafts).at_hand.told()["results"]["best"] == []
    assert "Ana" not in str(played(*drafts, names=True).at_hand.told())


def test_nobody_sees_a_draft_before_the_time_is_over():
    game = parse_game(GAME, 1)
    game.take("a", of(1, " as soon", name="Ana"))
    told = game.told()
    assert (told["count"], told["results"]) == (None, None)
    assert "as soon" not in str(told) and "Ana" not in str(told)


def test_a_game_that_cannot_be_judged_says_why_and_another_may_begin(short):
    async def busy(_request):
        raise UserError("Too many are waiting.")

    assert played(("a", of(1)), judge=busy).at_hand.told()["error"] == "Too many are waiting."
    assert "Nobody has written" in played().at_hand.told()["error"]


def test_one_game_at_a_time_and_none_without_a_judge():
    async def work():
        games = Games(Log(), lambda: None, judge)
        games.begin(GAME)
        with pytest.raises(UserError, match="A game is on"):
            games.begin(GAME)
        games.put_away()
        games.begin(GAME)
        assert games.at_hand.number == 2
        games.end()
        with pytest.raises(UserError, match="no class can draft"):
            Games(Log(), lambda: None, None).begin(GAME)

    asyncio.run(work())


def test_a_game_that_was_called_off_is_not_judged(short):
    async def work():
        asked = []

        async def counting(request):
            asked.append(request)
            return judged(request)

        games = Games(Log(), lambda: None, counting)
        games.begin(GAME)
        games.take("a", of(1))
        games.put_away()
        await asyncio.sleep(0.3)
        assert asked == [] and games.at_hand is None

    asyncio.run(work())


def test_a_class_takes_drafts_of_its_own_students_only_and_not_too_fast():
    async def work():
        room = Room("BCDFG", judge=judge)
        room.take([{"type": "play", **GAME}])
        token = room.join()
        with pytest.raises(UserError, match="does not know you"):
            room.draft("forged", of(1))
        assert room.draft(token, of(1)) == 1
        assert room.drafted(token) == {"game": 1, "number": 1, "draft": " as soon"}
        for _ in range(4):
            room.draft(token, of(1))
        with pytest.raises(UserError, match="too fast"):
            room.draft(token, of(1))
        assert room.state()["game"] == {"number": 1, "phase": "open", "count": 1, "error": None}
        room.end()

    asyncio.run(work())


def test_what_is_told_to_all_is_what_is_drawn():
    told = compact(judged({"text": "Please answer", "drafts": [" as soon", " nothing"]}))
    assert {key for one in told["verdicts"] for key in one} == {"drafted", "emission", "count", "cut"}
    drawn = {token["id"] for one in told["verdicts"] for token in one["drafted"]}
    assert drawn <= {int(token) for token in told["pieces"]}
