"""The API endpoint ``generate`` for programs, which language models can call as an MCP tool."""

import base64
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any, Literal, TypedDict

import gradio as gr
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from specdemo.records.events import Event
from specdemo.records.limits import DRAFTERS
from specdemo.records.pieces import StreamDecoder
from specdemo.records.trace import SPECULATIVE, Mode, Rule, RunConfig, Status, dump
from specdemo.service.jobs import JobKind
from specdemo.service.service import RunService
from specdemo.ui import jobs
from specdemo.ui.http.gradio_internals import close_tool_client, describe_values, serve_one_tool
from specdemo.ui.http.visitors import Loopback
from specdemo.ui.streams import Stops

GENERATE = "generate"


class Figures(TypedDict):
    """The fields of ``figures.Totals`` that ``generate`` returns."""

    tokens: int
    passes: int
    tau: float | None
    alpha_compared: float | None
    alpha_drafted: float | None
    speedup: float | None
    speedup_end_to_end: float | None
    s_theory: float | None
    tokens_per_s: float | None
    baseline_tokens_per_s: float | None
    identical: bool | None
    divergence: int | None


class Answer(TypedDict):
    """The answer of ``generate``. During the run ``text`` is the text so far, and ``sentence`` is empty.

    ``totals`` is None before the first round. ``pair`` maps "target" and "draft" to the models' names.
    ``device`` and ``pair`` are empty before the run begins.
    """

    text: str
    sentence: str
    totals: Figures | None
    device: str
    pair: dict[str, str]


def build_generate(page: gr.Blocks, service: RunService) -> Stops:
    """Add the endpoint ``generate`` to the page that is being built; return the stop requests of its jobs."""
    stops = Stops()
    endpoint = generate_endpoint(service, stops)
    added = gr.api(endpoint, api_name=GENERATE, concurrency_limit=None, concurrency_id=jobs.DEVICE)
    describe_values(page, endpoint, added, "Answer")
    return stops


def generate_endpoint(service: RunService, stops: Stops) -> Callable[..., Iterator[Answer]]:
    """Return the function that the API endpoint and the MCP tool call."""

    def generate(
        request: gr.Request,
        prompt: str,
        mode: Mode = RunConfig.mode,
        drafter: str = RunConfig.drafter,
        k: int | Literal["auto"] = RunConfig.k,
        temperature: float = RunConfig.temperature,
        rule: Rule | None = None,
        max_new_tokens: int = RunConfig.max_new_tokens,
        seed: int = RunConfig.seed,
        top_k: int = RunConfig.top_k,
        top_p: float = RunConfig.top_p,
        repeats: int = RunConfig.repeats,
        pair: str = "",
    ) -> Iterator[Answer]:
        """Write a text by speculative decoding, race the target model alone, and return text and speedup.

        The drafter changes neither the text (greedy, shared noise) nor its distribution (rejection, block).
        In ``totals``: ``speedup`` over the target alone (null until both have written 8 tokens), ``tau``
        tokens per target pass, ``alpha_compared`` the acceptance rate of compared draft tokens,
        ``identical`` whether both wrote the same tokens (null under rejection sampling and block
        verification, where the two texts are independent draws).

        Args:
            prompt: Text that the target model answers or continues
            mode: chat answers the prompt, raw continues its text
            drafter: One of {drafters}
            k: Tokens drafted per round, 1 to 12, or auto
            temperature: 0 to 2; 0 is greedy
            rule: Verification rule; by default greedy at temperature 0 and rejection above
            max_new_tokens: Maximum number of new tokens, 1 to 1024
            seed: The same seed repeats the text, unless k is auto under rejection or block
            top_k: Draw from this many most likely tokens; 0 is all
            top_p: Draw from the most likely tokens with this total probability; 1 is all
            repeats: Number of runs, 1 to 5; the answer is the run with the median speedup
            pair: Name of the models, if the host offers several; empty for the default
        """
        settings = {
            "prompt": prompt,
            "mode": mode,
            "drafter": drafter,
            "k": k,
            "temperature": temperature,
            "rule": rule,
            "max_new_tokens": max_new_tokens,
            "seed": seed,
            "top_k": top_k,
            "top_p": top_p,
            "repeats": repeats,
        }
        answer = AnswerSoFar()
        with (
            stops.job(request) as job,
            closing(service.events(JobKind.RUN, settings, job.stop, pair, job.visitor)) as events,
        ):
            for event in events:
                answer.add(event)
                if job.due(event):
                    yield answer.copy()

    assert generate.__doc__ is not None
    generate.__doc__ = generate.__doc__.format(drafters=", ".join(DRAFTERS))
    # Gradio's API page shows the return annotation as the type of the result, but an iterator only as "any".
    generate.__signature__ = inspect.signature(generate).replace(return_annotation=Answer)
    return generate


class AnswerSoFar:
    """An :class:`Answer` that is updated by each event of a run."""

    def __init__(self) -> None:
        self._answer = Answer(text="", sentence="", totals=None, device="", pair={})
        self._pieces: dict[int, bytes] = {}
        self._specials: frozenset[int] = frozenset()
        self._decoder = StreamDecoder()

    def copy(self) -> Answer:
        return self._answer.copy()

    def add(self, event: Event) -> None:
        for token, piece in event.get("pieces", {}).items():
            self._pieces[int(token)] = base64.b64decode(piece)
        answer = self._answer
        if event["type"] == "start":
            pair = event["run"]["pair"]
            answer["device"] = event["run"]["device"]
            answer["pair"] = {key: name for key, name in pair.items() if key != "name"}
            self._specials = frozenset(event["specials"])
        elif event["type"] == "round":
            answer["totals"] = _figures(event["totals"])
            if event["lane"] == SPECULATIVE:
                round_ = event["round"]
                kept = [token["id"] for token in round_["drafted"] if token["status"] == Status.ACCEPTED]
                own = [round_["emission"]["id"]] if round_["emission"] else []
                for token in kept + own:
                    if token not in self._specials:
                        answer["text"] += self._decoder.feed(self._pieces[token])
        elif event["type"] == "end":
            answer["totals"] = _figures(event["totals"])
            answer["sentence"] = f"{event['sentence']} {event['remarks']}".rstrip()
            answer["text"] += self._decoder.flush()


def _figures(totals: Mapping[str, Any]) -> Figures:
    return Figures(**{name: totals[name] for name in Figures.__annotations__})


def with_mcp(page: gr.Blocks, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``launch()`` options with an MCP server added, whose only tool is ``generate``."""
    guarded = options["app_kwargs"]["lifespan"]

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        serve_one_tool(page, GENERATE, dump)  # before the first request
        async with guarded(app):
            yield
        await run_in_threadpool(close_tool_client, page)

    app_kwargs = {**options["app_kwargs"], "lifespan": lifespan, "middleware": [Middleware(Loopback)]}
    return {**options, "mcp_server": True, "app_kwargs": app_kwargs}
