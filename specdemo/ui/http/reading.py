"""Whether anybody reads the events of a job: one that nobody reads is not worth the device, nor its memory.

Gradio keeps what it has not sent yet for as long as the session lasts, and asks for more all the same. Knows
no jobs.
"""

import asyncio
import socket
import time

import gradio as gr

from specdemo.ui.http.gradio_internals import forget_session, idle_sessions, listening_sockets

KEPT_S = 60.0
"""How long a session's last answer is kept for it, once all of its jobs have ended."""
LOOK_S = 10.0
"""How often sessions that are kept too long are looked for."""
SENT_AHEAD = 2**18
"""Bytes of a connection's send buffer, of which Linux takes twice. Left to itself it grows to megabytes, half
a minute of a run that looks as if it were read."""


def send_little_ahead(page: gr.Blocks) -> None:
    """Bound what the system keeps unsent for each connection, so that who stops reading is found soon.

    Args:
        page: Has just been launched.
    """
    for listener in listening_sockets(page):  # what it accepts inherits this
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)


async def forget_idle_sessions(page: gr.Blocks) -> None:
    """Drop what sessions have not fetched ``KEPT_S`` after their last job; never returns.

    Gradio keeps a run for each of the last 2,000 sessions, and some of every session for good.
    """
    idle_since: dict[str, float] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        now, idle = time.monotonic(), idle_sessions(page)
        idle_since = {session: idle_since.get(session, now) for session in idle}
        for session in [one for one, since in idle_since.items() if now - since > KEPT_S]:
            forget_session(page, session)
            del idle_since[session]
