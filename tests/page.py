"""Serve the page without models, for work on it: ``python tests/page.py [PORT]``.

Runs replay a recording, quizzes and the points of the Lab are made up, and classes work. It starts in a few
seconds. Reload the browser after a change of JavaScript or CSS. After one of HTML or Python, start it again.
"""

import sys
import threading
from functools import partial

from helpers.stand_in import StandIn

from specdemo.classroom.rooms import Rooms
from specdemo.pairs.sources import Sources
from specdemo.ui.http.class_routes import class_routes, submit_with
from specdemo.ui.page import build_page, launch_options

ROUND_S = 0.02
"""The time of a round, so that a run arrives as from models."""


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else None
    service = StandIn()
    service.gap_s = ROUND_S
    page = build_page(service, Sources().drafters)
    options = launch_options(class_routes(Rooms(submit_for=partial(submit_with, service))))
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, server_port=port, **options)
    print(f"Open {address} in a browser; Ctrl-C ends the page.", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
