"""What a student reads: messages as they come, in order, each once. Knows no HTTP."""

from collections.abc import AsyncIterator

from specdemo.classroom.log import Frame
from specdemo.classroom.room import Room

SIGN_OF_LIFE_S = 10.0
"""How long a stream may be silent: proxies close what says nothing, and who has left is found by writing."""
POLL_S = 20.0
"""How long a question for news waits for some; proxies often end a request after 30."""
END = Frame(2**53 - 1, '{"type":"end"}')
"""The last message of every class."""


async def messages(room: Room, token: str, after: int) -> AsyncIterator[list[Frame]]:
    """Everything behind the message of that number, as it comes; an empty list is a sign of life.

    The first list comes at once. Ends with the class, or when the same student has opened another stream.

    Raises:
        UserError: The class does not know this student.
    """
    with room.watched_by(token) as is_latest:
        while True:
            new = [END] if room.ended else room.log.after(after)
            yield new
            if room.ended or not is_latest():
                return
            after = new[-1].id if new else after
            if not room.log.after(after):  # else more has come while this was sent
                await room.changed.wait(SIGN_OF_LIFE_S)


async def news(room: Room, token: str, after: int) -> list[Frame]:
    """What has come behind the message of that number, waiting for it if need be; empty after ``POLL_S``.

    Raises:
        UserError: The class does not know this student.
    """
    with room.watched_by(token):
        if not room.ended and not room.log.after(after):
            await room.changed.wait(POLL_S)
        return [END] if room.ended else room.log.after(after)
