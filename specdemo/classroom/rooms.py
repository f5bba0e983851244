"""All classes of one server: opened, found by their code, ended when their teacher has gone.

Bounded in number, and in how often one address may open, look for or join them. Nothing of a class is kept
once it has ended.
"""

import secrets
import time
from collections.abc import Callable

from specdemo.classroom.games import Judge
from specdemo.classroom.rates import Rates, TooOftenError
from specdemo.classroom.room import Room
from specdemo.records.limits import UserError

MOST_ROOMS = 20
MOST_OF_ONE = 8
"""Classes that one address may have open."""
CODE_CHARS = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no code is a word; no digits, which a projector makes letters of."""
CODE_LENGTH = 5
JOINS_PER_S, JOINS_AT_ONCE = 20.0, 400
"""Of one address, which may be a whole school's."""
MISSES_PER_S, MISSES_AT_ONCE = 0.5, 300
"""The number of wrong codes that one address may try: the students of a school may all ask again for a class
that is over, but to try all three million codes takes 74 days."""
NO_CLASS = "There is no class of that code; check it, or ask your teacher whether the class is over."
TOO_MANY_CODES = "Too many codes were tried from your network; wait a minute."
TOO_MANY_JOIN = "Too many are joining from your network; try again in a few seconds."


class NoClassError(UserError):
    """No class has this code."""


class Rooms:
    """The classes that are open.

    Args:
        clock: Gives seconds.
        judge_for: Gives who judges what a class drafts, by the address of its teacher and its code; None
            where nothing can.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        judge_for: Callable[[str, str], Judge] | None = None,
    ) -> None:
        self._clock = clock
        self._judge_for = judge_for
        self._rooms: dict[str, tuple[Room, str]] = {}
        self._joins = Rates(JOINS_PER_S, JOINS_AT_ONCE, clock)
        self._misses = Rates(MISSES_PER_S, MISSES_AT_ONCE, clock)

    def open(self, address: str) -> Room:
        """A new class for who asks from this address.

        Raises:
            UserError: There are too many.
        """
        self._end_idle()
        if sum(owner == address for _, owner in self._rooms.values()) >= MOST_OF_ONE:
            raise UserError(
                f"{MOST_OF_ONE} classes were opened from your network; end one before you open the next."
            )
        if len(self._rooms) >= MOST_ROOMS:
            raise UserError("This server has no room for another class; try again later.")
        code = self._new_code()
        judge = self._judge_for(address, code) if self._judge_for else None
        self._rooms[code] = (Room(code, self._clock, judge), address)
        return self._rooms[code][0]

    def find(self, code: str, address: str, token: str = "") -> Room:
        """Return the class of a code, as people type it.

        An address that has tried too many wrong codes gets no answer to a right one either, or it could go on
        guessing.

        Args:
            code: Upper or lower case.
            address: Of whoever asks.
            token: A student's token or the teacher's secret; who has one for this class is not limited.

        Raises:
            NoClassError: There is none.
            TooOftenError: This address has tried too many wrong codes.
        """
        self._end_idle()
        room, _ = self._rooms.get(code.strip().upper(), (None, ""))
        if room is not None and room.knows(token):
            return room
        if not self._misses.allow(address):
            raise TooOftenError(TOO_MANY_CODES)
        if room is None:
            self._misses.take(address)
            raise NoClassError(NO_CLASS)
        return room

    def join(self, room: Room, address: str) -> str:
        """A new student of that class; their token.

        Raises:
            UserError: Too many join, or the class is full.
        """
        if not self._joins.take(address):
            raise TooOftenError(TOO_MANY_JOIN)
        return room.students.join()

    def end(self, room: Room) -> None:
        """End a class."""
        room.end()
        self._rooms.pop(room.code, None)

    def _end_idle(self) -> None:
        for room in [room for room, _ in self._rooms.values() if room.over]:
            self.end(room)

    def _new_code(self) -> str:
        while (code := "".join(secrets.choice(CODE_CHARS) for _ in range(CODE_LENGTH))) in self._rooms:
            pass
        return code
