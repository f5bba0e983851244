"""What the buttons Run and Recalibrate do; the first is the API endpoint ``run`` as well."""

from collections.abc import Callable, Iterator
from html import escape

import gradio as gr

from specdemo.records import limits
from specdemo.records.limits import UserError
from specdemo.records.trace import AUTO
from specdemo.service.jobs import Events, JobKind
from specdemo.service.queue import Stop
from specdemo.service.service import EventSource
from specdemo.service.shares import Visitor
from specdemo.ui import jobs
from specdemo.ui.address import with_pair_named
from specdemo.ui.http.visitors import visitor_of
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


def wire_recalibration(
    service: EventSource, button: gr.Button, shown: gr.HTML, pair_choice: gr.Dropdown
) -> None:
    """Have ``button`` measure the pass costs of the chosen pair again and show them in ``shown``."""

    def recalibrate(pair: str, request: gr.Request) -> Iterator[str]:
        try:
            for event in service.events(JobKind.CALIBRATE, {}, lambda: False, pair, visitor_of(request)):
                yield escape(event.get("sentence") or event.get("text") or "")
        except UserError as error:
            yield escape(str(error))

    button.click(
        recalibrate,
        pair_choice,
        shown,
        preprocess=False,
        concurrency_limit=None,
        concurrency_id=jobs.DEVICE,
        show_progress="hidden",
        api_visibility="private",
    )
