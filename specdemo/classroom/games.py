"""The games of one class, one at a time: the clock that ends each, and the judging behind it.

Everything happens on one event loop. Knows no HTTP and no models.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from specdemo.classroom.game import GRACE_S, Game, Phase, parse_game
from specdemo.classroom.log import Log
from specdemo.records.limits import UserError

Judge = Callable[[Mapping[str, Any], Callable[[], bool]], Awaitable[Mapping[str, Any]]]
"""Of what ``Game.request`` gives, asking whether to stop, a ``class-judged`` event; raises ``UserError``."""
MOST_GAMES = 100
NOBODY = "Nobody has written anything; start another."
NO_JUDGE = "On this server the game is off: its GPU is lent for one run at a time."
FAULT = "Judging failed inside the program; let them write again."
_log = logging.getLogger(__name__)


class Games:
    """Plays one game after the other.

    Args:
        log: Where everybody is told.
        tell: Wakes who reads it.
        judge: Judges; None where nothing can.
    """

    def __init__(self, log: Log, tell: Callable[[], None], judge: Judge | None) -> None:
        self._log = log
        self._tell = tell
        self._judge = judge
        self._played: list[Game] = []
        self._shown: Game | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._judging: asyncio.Task[None] | None = None

    @property
    def at_hand(self) -> Game | None:
        """The one that is on the page."""
        return self._shown

    def begin(self, raw: Mapping[str, Any]) -> None:
        """Begin a game.

        Raises:
            UserError: It cannot be played, or another is on.
        """
        if self._judge is None:
            raise UserError(NO_JUDGE)
        if self._shown is not None and self._shown.phase in (Phase.OPEN, Phase.JUDGING):
            raise UserError("A game is on; wait for its end.")
        if len(self._played) >= MOST_GAMES:
            raise UserError(f"A class plays {MOST_GAMES} games at most; start another class.")
        game = parse_game(raw, len(self._played) + 1)
        self._played.append(game)
        self._show(game)
        loop = asyncio.get_running_loop()
        self._until = loop.time() + game.seconds
        self._timer = loop.call_at(self._until + GRACE_S, self._end_writing, game)

    def writing(self) -> dict[str, Any] | None:
        """The ``game`` that is written for, by its number, and the seconds ``left``; None where none is."""
        if self._shown is None or self._shown.phase is not Phase.OPEN:
            return None
        left = max(0.0, self._until - asyncio.get_running_loop().time())
        return {"game": self._shown.number, "left": left}

    def take(self, student: str, raw: Mapping[str, Any]) -> int:
        """A student's draft; its number.

        Raises:
            UserError: It is refused.
        """
        if self._shown is None:
            raise UserError("No game is on now; wait for the next.")
        return self._shown.take(student, raw)

    def drafted(self, student: str) -> dict[str, Any] | None:
        """What a student has written in the ``game`` on the page, by its number: the ``draft``."""
        game = self._shown
        if game is None or student not in game.drafts:
            return None
        return {"game": game.number, "draft": game.drafts[student].text}

    def verdict_on(self, student: str) -> dict[str, Any] | None:
        """What the target made of a student's draft in the game on the page."""
        return self._shown.verdict_on(student) if self._shown else None

    def put_away(self) -> None:
        """Show no game any more; one that is on is not judged."""
        self.end()
        self._shown = None
        self._log.put("game", {"type": "game", "game": None})

    def end(self) -> None:
        """Stop the clock, and whoever judges at their next look."""
        if self._timer is not None:
            self._timer.cancel()
        if self._judging is not None:
            self._judging.cancel()

    def summed_up(self) -> list[dict[str, Any]]:
        """Every game that was judged, for the page at the end of a lesson."""
        return [game.summed_up() for game in self._played if game.results is not None]

    def _end_writing(self, game: Game) -> None:
        self._timer = None
        game.phase = Phase.JUDGING
        self._show(game)
        self._judging = asyncio.get_running_loop().create_task(self._have_judged(game))

    async def _have_judged(self, game: Game) -> None:
        assert self._judge is not None
        ended = threading.Event()
        try:
            if not game.drafts:
                raise UserError(NOBODY)
            game.judged(await self._judge(game.request(), ended.is_set))
        except UserError as error:
            game.fail(str(error))
        except Exception:
            _log.exception("A class's drafts could not be judged")
            game.fail(FAULT)
        finally:
            ended.set()  # called off: who judges must not hold the device for nobody
        self._show(game)

    def _show(self, game: Game) -> None:
        self._shown = game
        self._log.put("game", {"type": "game", "game": game.told()})
        self._tell()
