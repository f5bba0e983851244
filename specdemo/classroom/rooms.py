"""All open classes of one server, found by their codes."""

import secrets
import time
from collections.abc import Callable

from specdemo.classroom.class_jobs import Submit
from specdemo.classroom.room import Room
from specdemo.classroom.students import Rates, TooOftenError
from specdemo.records.limits import UserError

MAX_ROOMS = 20
MAX_ROOMS_PER_ADDRESS = 8
CODE_CHARS = "BCDFGHJKLMNPQRSTVWXZ"
"""The characters of codes: no vowels, so that no code is a word, and no digits, which look like letters."""
CODE_LENGTH = 5
# The rate limit of joins from one address, which may be that of a whole school. A student's page that is
# refused tries again by itself, so a lecture of 300 has joined within half a minute.
JOINS_PER_S, JOIN_BURST = 10.0, 60
# The rate limit of wrong codes from one address: high enough for all students of a school to ask again for a
# class that is over. Trying all three million codes still takes 74 days.
MISSES_PER_S, MISS_BURST = 0.5, 300
NO_CLASS = "There is no class with this code; check the code, or ask your teacher whether the class is over."
TOO_MANY_CODES = "Too many codes were tried from your network; wait a minute."
TOO_MANY_JOINS = "Too many students are joining from your network; try again in a few seconds."


class NoClassError(UserError):
    """No class has this code."""


class Rooms:
    """The open classes.

    ``submit_for`` maps the teacher's address and the class's code to the function that has the class's jobs
    done; None if this server does no jobs for classes.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        submit_for: Callable[[str, str], Submit] | None = None,
    ) -> None:
        self._clock = clock
        self._submit_for = submit_for
        self._rooms: dict[str, tuple[Room, str]] = {}
        self._joins = Rates(JOINS_PER_S, JOIN_BURST, clock)
        self._misses = Rates(MISSES_PER_S, MISS_BURST, clock)

    def open(self, address: str) -> Room:
        """Open a class for a teacher at this address."""
        self._end_idle()
        if sum(owner == address for _, owner in self._rooms.values()) >= MAX_ROOMS_PER_ADDRESS:
            raise UserError(
                f"Your network has {MAX_ROOMS_PER_ADDRESS} open classes, the maximum; "
                "end one of these classes first."
            )
        if len(self._rooms) >= MAX_ROOMS:
            raise UserError(f"This server has {MAX_ROOMS} open classes, the maximum; try again later.")
        while (code := "".join(secrets.choice(CODE_CHARS) for _ in range(CODE_LENGTH))) in self._rooms:
            pass
        submit = self._submit_for(address, code) if self._submit_for else None
        room = Room(code, self._clock, submit)
        self._rooms[code] = (room, address)
        return room

    def find(self, code: str, address: str, token: str = "") -> Room:
        """Return the class with this code, in upper or lower case.

        After too many wrong codes, an address is refused even if the code is right: otherwise somebody there
        could continue to guess. The limit does not apply to a ``token`` of this class (a student's token or
        the teacher's secret).
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
        """Add a student to a class and return their token."""
        if not self._joins.take(address):
            raise TooOftenError(TOO_MANY_JOINS)
        return room.students.join()

    def end(self, room: Room) -> None:
        """End a class and forget its code."""
        room.end()
        self._rooms.pop(room.code, None)

    def _end_idle(self) -> None:
        for room in [room for room, _ in self._rooms.values() if room.over]:
            self.end(room)
