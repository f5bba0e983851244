"""The tab "Play": the visitor writes the drafts. Its component, and the API endpoint ``play``.

The browser keeps the game; each turn is one request that carries what earlier turns returned.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gradio as gr

from specdemo.records.limits import MAX_DRAFT_CHARS, MAX_PROMPT_CHARS
from specdemo.service.jobs import JobKind
from specdemo.service.service import EventSource
from specdemo.ui import jobs
from specdemo.ui.component import PREFIX, component
from specdemo.ui.streams import Stops, ndjson

ASKED = f"""async () => {{
    const module = await import(new URL('{PREFIX}/play.js', document.baseURI));
    return module.askedTurn();
}}"""


class Opening(NamedTuple):
    """A text a game can begin with."""

    label: str
    text: str


OPENINGS = (
    Opening("E-mail", "Thank you for your email. I will get back to you"),
    Opening("Proverbs", "Better late than never. Actions speak louder than words. A picture is worth"),
    Opening("Recipe", "Pancakes\n\nIngredients:\n\n- 2 cups of flour\n- 2 eggs\n- 1 cup of"),
    Opening("Code", "def factorial(n):\n    if n == 0:\n        return"),
    Opening("Story", "The lighthouse keeper opened the bottle and unrolled the paper. It said"),
)


def build_play(service: EventSource, pair: gr.Dropdown) -> Stops:
    """Add the tab's widgets to the page that is being built, and what pressing them does.

    Args:
        service: Does the jobs.
        pair: The page's choice of models.

    Returns:
        The stop requests for the jobs of this tab.
    """
    stops = Stops()
    settings = {
        "openings": [opening._asdict() for opening in OPENINGS],
        "mostTextChars": MAX_PROMPT_CHARS,
        "mostDraftChars": MAX_DRAFT_CHARS,
    }
    board = component("play", "play.js", "mountPlay", settings)
    # The component has buttons of its own, and presses these.
    send = gr.Button("Send", visible="hidden", elem_id="play-send")
    stop = gr.Button("Stop", interactive=False, visible="hidden", elem_id="play-stop")
    inputs = [
        gr.Textbox(label="The text the game began with", visible=False),
        gr.Textbox(label="What the first player puts behind it, its leading space included", visible=False),
        gr.Textbox("", label="The same of a second player; empty in a game for one", visible=False),
        gr.JSON([], label="Token ids written so far, as the last turn returned them", visible=False),
        gr.JSON({}, label="Drafter -> score, as the last turn returned them", visible=False),
        pair,
    ]
    jobs.wire(stops, play_endpoint(service, stops), inputs, board, (send, stop), asked=ASKED)
    return stops


def play_endpoint(service: EventSource, stops: Stops) -> Callable[..., Iterator[str]]:
    """The function behind a turn and the API endpoint ``play``."""

    def play(
        text: str,
        draft: str,
        second_draft: str,
        written: list[int],
        scores: dict[str, Any],
        pair: str,
        request: gr.Request,
    ) -> Iterator[str]:
        """Have the target edit your drafts and one of the draft model's; yields events as growing NDJSON.

        ``draft`` is read exactly as given behind ``text`` and what was ``written`` since: begin it with a
        space where a word begins. The target's first choices are kept, the first token it would put
        differently is corrected, the rest is discarded. A ``judged`` event tells each drafter's round and
        score, the last event, ``turn``, the text and what to pass as ``written`` next; pass the ``score`` of
        each ``judged`` event as ``scores[player]``. ``pair`` names the models, where there are several.
        """
        raw = {
            "text": text,
            "draft": draft,
            "second_draft": second_draft,
            "written": written,
            "scores": scores,
        }
        with stops.job(request) as job:
            yield from ndjson(service.events(JobKind.PLAY, raw, job.stop, pair, job.visitor), job)

    return play
