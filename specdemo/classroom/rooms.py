"""All classes of one server: opening, finding by code, joining, ending."""

import secrets
import time
from collections.abc import Callable

from specdemo.classroom.games import Judge
from specdemo.classroom.room import Room
from specdemo.classroom.students import Rates, TooOftenError
from specdemo.records.limits import UserError

MAX_ROOMS = 20
MAX_ROOMS_PER_ADDRESS = 8
CODE_CHARS = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels, so that no code is a word; no digits, which look like letters on a projector."""
CODE_LENGTH = 5
JOINS_PER_S, JOIN_BURST = 20.0, 400
"""Joins from one address, which may be a whole school's."""
MISSES_PER_S, MISS_BURST = 0.5, 300
"""Wrong codes from one address. A school's students may all ask again for a class that is over, but trying
all three million codes takes 74 days."""
NO_CLASS = "There is no class with that code; check it, or ask your teacher whether the class is over."
TOO_MANY_CODES = "Too many codes were tried from your network; wait a minute."
TOO_MANY_JOINS = "Too many students are joining from your network; try again in a few seconds."


class NoClassError(UserError):
    """No class has this code."""


class Rooms:
    """The open classes.

    Args:
        clock: Returns seconds.
        judge_for: Returns the judge for a class, from its teacher's address and its code; None if this server
            cannot judge.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        judge_for: Callable[[str, str], Judge] | None = None,
    ) -> None:
        self._clock = clock
        self._judge_for = judge_for
        self._rooms: dict[str, tuple[Room, str]] = {}
        self._joins = Rates(JOINS_PER_S, JOIN_BURST, clock)
        self._misses = Rates(MISSES_PER_S, MISS_BURST, clock)

    def open(self, address: str) -> Room:
        """Open a class for a teacher at this address.

        Raises:
            UserError: There are too many.
        """
        self._end_idle()
        if sum(owner == address for _, owner in self._rooms.values()) >= MAX_ROOMS_PER_ADDRESS:
            raise UserError(
                f"Your network has {MAX_ROOMS_PER_ADDRESS} open classes, the maximum; end one first."
            )
        if len(self._rooms) >= MAX_ROOMS:
            raise UserError(f"This server has {MAX_ROOMS} open classes, the maximum; try again later.")
        while (code := "".join(secrets.choice(CODE_CHARS) for _ in range(CODE_LENGTH))) in self._rooms:
            pass
        room = Room(code, self._clock, self._judge_for(address, code) if self._judge_for else None)
        self._rooms[code] = (room, address)
        return room

    def find(self, code: str, address: str, token: str = "") -> Room:
        """Return the class with this code.

        An address that tried too many wrong codes is refused right ones too, or it could go on guessing.

        Args:
            code: In upper or lower case.
            address: The address that asks.
            token: A student's token or the teacher's secret; with one of this class there is no limit.

        Raises:
            NoClassError: There is none.
            TooOftenError: This address tried too many wrong codes.
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
        """Add a student to a class and return their token.

        Raises:
            UserError: Too many join, or the class is full.
        """
        if not self._joins.take(address):
            raise TooOftenError(TOO_MANY_JOINS)
        return room.students.join()

    def end(self, room: Room) -> None:
        """End a class."""
        room.end()
        self._rooms.pop(room.code, None)

    def _end_idle(self) -> None:
        for room in [room for room, _ in self._rooms.values() if room.over]:
            self.end(room)
