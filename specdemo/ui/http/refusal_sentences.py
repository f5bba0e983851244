"""Refusing a request: its status, and the one sentence that goes with it."""

import json

MAX_BODY = 200_000
"""The size of a request to Gradio in bytes. The longest prompt takes 96,000 of them, with each character
escaped; a long game adds 20,000."""

SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take requests of that kind.",
    408: "The request took too long to arrive; send it again.",
    413: f"The request is too large; at most {MAX_BODY:,} bytes are taken.",
    414: "The address is too long; shorten the prompt in it.",
    500: "The request failed inside the program; please try again.",
    503: "Too many runs are waiting; please try again in a minute.",
}
OTHERWISE = "The request was refused; reload the page and try again."


class RefusedError(Exception):
    """A request that goes no further: the reply's status and sentence."""

    def __init__(self, status: int, sentence: str = ""):
        super().__init__(sentence or SENTENCES[status])
        self.status = status


def sentence_in(body: bytes) -> str | None:
    """What an error reply already says in one sentence."""
    try:
        told = json.loads(body)
    except ValueError:
        return None
    error = told.get("error") if isinstance(told, dict) else None
    one = isinstance(error, str) and error.isprintable() and error.endswith(".") and len(error) <= 300
    return error if one else None
