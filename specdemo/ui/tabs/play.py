"""The tab "Play", in which visitors write the drafts, and the API endpoint ``play``.

The browser stores the game. Each turn is one request, which contains the results of all earlier turns.
"""

from typing import Any, NamedTuple

import gradio as gr

from specdemo.records.limits import MAX_DRAFT_CHARS, MAX_PROMPT_CHARS
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs
from specdemo.ui.component import PREFIX, component
from specdemo.ui.streams import Stops, streamed

VALUES = f"""async () => {{
    const module = await import(new URL('{PREFIX}/play/play.js', document.baseURI));
    return module.askedTurn();
}}"""


class Opening(NamedTuple):
    """A text with which a game can start."""

    label: str
    text: str


OPENINGS = (
    Opening("Email", "Thank you for your email. I will get back to you"),
    Opening("Proverbs", "Better late than never. Actions speak louder than words. A picture is worth"),
    Opening("Recipe", "Pancakes\n\nIngredients:\n\n- 2 cups of flour\n- 2 eggs\n- 1 cup of"),
    Opening("Code", "def factorial(n):\n    if n == 0:\n        return"),
    Opening("Story", "Maya walked into the forest. Suddenly she heard"),
)


def build_play(service: RunService, pair: gr.Dropdown) -> Stops:
    """Add the tab to the page that is being built; return the stop requests of its jobs."""
    stops = Stops()
    settings = {
        "openings": [opening._asdict() for opening in OPENINGS],
        "mostTextChars": MAX_PROMPT_CHARS,
        "mostDraftChars": MAX_DRAFT_CHARS,
    }
    board = component("play", "play/play.js", "mountPlay", settings)
    # The component has its own visible buttons; their JavaScript presses these hidden ones.
    send = gr.Button("Send", visible="hidden", elem_id="play-send")
    stop = gr.Button("Stop", interactive=False, visible="hidden", elem_id="play-stop")
    inputs = [
        gr.Textbox(label="Starting text", visible=False),
        gr.Textbox(label="First player's draft", visible=False),
        gr.Textbox("", label="Second player's draft", visible=False),
        gr.JSON([], label="Written token ids", visible=False),
        gr.JSON({}, label="Scores of all drafters", visible=False),
        pair,
    ]
    jobs.wire(stops, streamed(service, stops, JobKind.PLAY, play), [(send, inputs)], board, stop, VALUES)
    return stops


def play(
    text: str,
    draft: str,
    second_draft: str,
    written: list[int],
    scores: dict[str, Any],
    pair: str,
    request: gr.Request,
) -> dict[str, Any]:
    """Verify your drafts and the draft model's with the target; yield the events as growing NDJSON.

    ``draft`` (and ``second_draft`` of a second player) continues ``text`` plus the tokens ``written`` in
    earlier turns. Nothing is inserted in between, so begin the draft with a space if it begins a new
    word. A draft token is accepted if it and all before it are the target's most likely tokens; the
    first rejected one is corrected, and the rest is discarded. Each drafter gets one ``judged`` event
    with its round and score. The longest round of a player extends the text; the draft model's is for
    comparison only. The last event, ``turn``, has the text so far and the token ids. In the next turn,
    pass these ids as ``written`` and the ``score`` of each ``judged`` event as ``scores[player]``.
    ``pair`` is the name of the models, if there are several.
    """
    return {"text": text, "draft": draft, "second_draft": second_draft, "written": written, "scores": scores}
