"""What a student reads: messages as they come, in order, each once. Knows no HTTP."""

from collections.abc import AsyncIterator

from specdemo.classroom.log import Frame, frame_of
from specdemo.classroom.room import Room

SIGN_OF_LIFE_S = 10.0
"""How long a stream may be silent: proxies close what says nothing, and who has left is found by writing."""
POLL_S = 20.0
"""How long a question for news waits for some; proxies often end a request after 30."""
END = frame_of(2**53 - 1, b'{"type":"end"}')
"""The last message of every class."""


async def messages(room: Room, token: str, after: int) -> AsyncIterator[list[Frame]]:
    """Everything behind the message of that number, as it comes; an empty list is a sign of life.

    Raises:
        UserError: The class does not know this student, or is full.
    """
    with room.students.watching(token):
        while not room.over:
            if new := room.log.after(after):
                after = new[-1].id
                yield new  # and look again: more may have come while this was sent
            elif not await room.changed.wait(SIGN_OF_LIFE_S):
                yield []
        yield _last(room, after)


async def news(room: Room, token: str, after: int) -> list[Frame]:
    """What has come behind the message of that number, waiting for it if need be; empty after ``POLL_S``.

    Raises:
        UserError: The class does not know this student, or is full.
    """
    with room.students.watching(token):
        if not room.over and not room.log.after(after):
            await room.changed.wait(POLL_S)
        return _last(room, after) if room.over else room.log.after(after)


def _last(room: Room, after: int) -> list[Frame]:
    """What was told just before the end, and the end."""
    return [*room.log.after(after), END]
