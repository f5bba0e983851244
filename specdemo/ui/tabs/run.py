"""What the button "Run" does, which is the API endpoint ``run`` as well; ``controls`` has the widgets."""

from collections.abc import Callable, Iterator

import gradio as gr

from specdemo.records import limits
from specdemo.records.trace import AUTO
from specdemo.service.event_source import Events, EventSource
from specdemo.service.job_kinds import JobKind
from specdemo.service.queue_place import Stop
from specdemo.service.shares import Visitor
from specdemo.ui import jobs
from specdemo.ui.address import with_pair_named
from specdemo.ui.requests import raw_request
from specdemo.ui.streams import Stops


def run_endpoint(service: EventSource, stops: Stops) -> Callable[..., Iterator[str]]:
    """The function behind the Run button and the API endpoint ``run``."""

    def run(
        prompt: str,
        mode: str,
        drafter: str,
        k: int,
        auto: bool,
        temperature: float,
        rule: str,
        max_new_tokens: int,
        seed: int,
        top_k: int,
        top_p: float,
        baseline: bool,
        draft_alone: bool,
        pair: str,
        request: gr.Request,
    ) -> Iterator[str]:
        """Decode a prompt with and without drafts; yields the run's events as growing NDJSON.

        ``auto`` lets the decoder choose each draft's length; ``k`` is then not looked at. ``baseline``
        races the target alone, ``draft_alone`` runs the draft model by itself as well. ``pair`` names the
        models, where there are several to choose from.
        """
        raw = raw_request(locals())

        def events(stop: Stop, visitor: Visitor) -> Events:
            if limits.flag({"auto": auto}, "auto", False):
                raw["k"] = AUTO
            yield from with_pair_named(service.events(JobKind.RUN, raw, stop, pair, visitor), pair)

        yield from jobs.stream(stops, request, events)

    return run
