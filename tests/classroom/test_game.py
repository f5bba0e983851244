"""The class as the draft: what is taken until when, who judges, and what everybody is told."""

import asyncio

import pytest
from helpers.stand_in import StandIn

from specdemo.classroom import games as games_module
from specdemo.classroom.game import Phase, nickname, parse_game
from specdemo.classroom.games import Games
from specdemo.classroom.log import Log
from specdemo.classroom.room import Room
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind

GAME = {"text": "Please answer", "seconds": 5}


def judged(request):
    """What the stand-in makes of drafts."""
    [event] = StandIn().events(JobKind.CLASS, request, lambda: False)
    return event


async def judge(request, _stop):
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
    own = [game.verdict_on(student) for student in "abc"]
    assert results["verdicts"] == [] and game.verdict_on("d") is None
    assert [sum(token["status"] == "accepted" for token in one["drafted"]) for one in own] == [4, 1, 8]
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
        of(1, more=1),
    ],
)
def test_what_is_no_draft_is_refused_in_a_sentence(message):
    game = parse_game(GAME, 1)
    with pytest.raises(UserError, match=r"\.$"):
        game.take("a", message)
    assert game.drafts == {}


@pytest.mark.parametrize("name", ["Ana", "Élodie B.", "李雷", "x_1", "O'Neil-2", " Ana ", "प्रिया", "", None])
def test_names_of_all_alphabets_are_names(name):
    assert nickname(name) == (name or "").strip()


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("<b>x</b>", "bxb"),
        ("x" * 99, "x" * 16),
        ("a\u202eb", "ab"),
        ("a\n\n b", "a b"),
        (7, ""),
        ("🎉", ""),
        ("ﬁ", "fi"),
    ],
)
def test_of_a_name_is_shown_what_may_be(typed, shown):
    assert nickname(typed) == shown


@pytest.mark.parametrize(
    "settings",
    [
        {"text": ""},
        {"text": 1},
        {"seconds": 4},
        {"seconds": 121},
        {"seconds": "9"},
        {"open_drafts": 1},
        {"x": 1},
    ],
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
    assert played(*drafts, open_drafts=True).at_hand.told()["results"]["best"] == ["Bo"]
    assert played(*drafts).at_hand.told()["results"]["best"] == []
    assert "Ana" not in str(played(*drafts, open_drafts=True).at_hand.told())


def test_nobody_sees_a_draft_before_the_time_is_over():
    game = parse_game(GAME, 1)
    game.take("a", of(1, " as soon", name="Ana"))
    told = game.told()
    assert (told["count"], told["results"]) == (None, None)
    assert "as soon" not in str(told) and "Ana" not in str(told)


def test_a_game_that_cannot_be_judged_says_why_and_another_may_begin(short):
    async def busy(_request, _stop):
        raise UserError("Too many are waiting.")

    assert played(("a", of(1)), judge=busy).at_hand.told()["error"] == "Too many are waiting."

    async def broken(_request, _stop):
        raise KeyError("a fault")

    assert "failed inside" in played(("a", of(1)), judge=broken).at_hand.told()["error"]
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
        with pytest.raises(UserError, match="the game is off"):
            Games(Log(), lambda: None, None).begin(GAME)

    asyncio.run(work())


def test_a_game_that_was_called_off_is_not_judged(short):
    async def work():
        asked = []

        async def counting(request, _stop):
            asked.append(request)
            return judged(request)

        games = Games(Log(), lambda: None, counting)
        games.begin(GAME)
        games.take("a", of(1))
        games.put_away()
        await asyncio.sleep(0.3)
        assert asked == [] and games.at_hand is None

    asyncio.run(work())


def test_who_judges_is_told_to_stop_when_the_game_is_called_off(short):
    async def work():
        stops = []

        async def slow(_request, stop):
            stops.append(stop)
            await asyncio.sleep(20)

        games = Games(Log(), lambda: None, slow)
        games.begin(GAME)
        games.take("a", of(1))
        while not stops:
            await asyncio.sleep(0.01)
        assert not stops[0]()
        games.put_away()
        await asyncio.sleep(0)
        assert stops[0]()

    asyncio.run(work())


def test_who_comes_late_is_told_how_long_is_left():
    async def work():
        games = Games(Log(), lambda: None, judge)
        assert games.writing() is None
        games.begin(GAME)
        await asyncio.sleep(0.2)
        writing = games.writing()
        assert writing["game"] == 1 and 4 < writing["left"] < 4.9
        games.end()

    asyncio.run(work())


def test_a_class_takes_drafts_of_its_own_students_only_and_not_too_fast():
    async def work():
        room = Room("BCDFG", judge=judge)
        room.take({"window": 1, "first": True, "messages": [{"type": "play", **GAME}]})
        token = room.students.join()
        with pytest.raises(UserError, match="does not know you"):
            room.draft("forged", of(1))
        assert room.draft(token, of(1)) == 1
        assert room.known_of(token)["drafted"] == {"game": 1, "draft": " as soon"}
        for _ in range(4):
            room.draft(token, of(1))
        with pytest.raises(UserError, match="too fast"):
            room.draft(token, of(1))
        assert room.state()["game"] == {"number": 1, "phase": "open", "count": 1, "error": None}
        room.end()

    asyncio.run(work())


def test_what_is_told_to_all_is_what_is_drawn(short):
    drafts = (("a", of(1, " as soon")), ("b", of(1, " quizzes")))
    told = played(*drafts, open_drafts=True).at_hand.told()["results"]
    assert {key for one in told["verdicts"] for key in one} == {"drafted", "emission", "count", "cut"}
    drawn = {token["id"] for one in told["verdicts"] for token in one["drafted"]}
    assert drawn <= {int(token) for token in told["pieces"]}


def test_of_drafts_that_are_not_open_nothing_is_told_to_others(short):
    game = played(("a", of(1, " as soon")), ("b", of(1, " quizzes"))).at_hand
    told = game.told()["results"]
    assert told["verdicts"] == [] and not {*b"qz"} & {int(token) for token in told["pieces"]}
    assert {*b"qz"} <= {int(token) for token in game.verdict_on("b")["pieces"]}
