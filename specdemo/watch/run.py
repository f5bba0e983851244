"""Runs of watched servers, as a stream of the same events as any other run, and as rows for ``bench``."""

import base64
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import PureWindowsPath
from typing import Any, NamedTuple

from specdemo.bench.measuring import Row, medians, row_of
from specdemo.bench.prompts import Prompt, Settings
from specdemo.engine.race import race
from specdemo.engine.speculate import never
from specdemo.records.drafter_kinds import SERVER
from specdemo.records.events import STOPPED, Event, RunLog
from specdemo.records.figures import distinct_share, fold
from specdemo.records.limits import UserError
from specdemo.records.trace import (
    AUTO,
    BASELINE,
    SPECULATIVE,
    UNKNOWN_ID,
    WATCHED_VERSION,
    Alternative,
    Finish,
    Mode,
    Round,
    Rule,
    Run,
    RunConfig,
    Status,
    TargetToken,
    Token,
    Watched,
)
from specdemo.service.queue import Stop
from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.reader import (
    END,
    Reader,
    ServerRound,
    ServerToken,
    as_dict,
    as_list,
    inconsistent_counts_error,
)
from specdemo.watch.servers import Server
from specdemo.watch.stream import fetch_json, stream_chunks
from specdemo.watch.vllm import RayServeReader, VllmReader

READERS: Mapping[str, type[Reader]] = {
    "llamacpp": LlamaServerReader,
    "vllm": VllmReader,
    "organization-owner": RayServeReader,
}
"""``owned_by`` in a server's list of models -> its reader. All other servers get :class:`Reader`."""
NO_ROUNDS = "This server does not report its rounds, so its speedup cannot be measured."
NO_RACE = "This server cannot switch off its drafts, so there is no baseline and no speedup."
UNKNOWN_TOKEN = "▢".encode()
END_ID = 1
MAX_PIECE_BYTES = 1_000
"""The maximum size of one token's text. Longer tokens are cut; a longer prompt gets several token ids."""


class FoundServer(NamedTuple):
    url: str
    reader: type[Reader]
    model: str


def find_server(url: str, name: str, stop: Stop) -> FoundServer | None:
    """Ask a server for its models and choose the first, or a loaded one; None if ``stop`` ended the wait."""
    answer = fetch_json(f"{url}/v1/models", name, stop)
    if answer is None:
        return None
    models = list(map(as_dict, as_list(answer.get("data"))))
    # A router of llama.cpp also lists models that it has not loaded; one that sleeps loads faster than these.
    status = [as_dict(one.get("status")).get("value") for one in models]
    ready = next((status.index(value) for value in ("loaded", "loading", "sleeping") if value in status), 0)
    first = models[ready] if models else {}
    model = first.get("id")
    if not isinstance(model, str) or not model:
        raise UserError(f"{name} lists no models. The address in --watch must be that of a model server.")
    return FoundServer(url, READERS.get(str(first.get("owned_by")), Reader), model)


def shown_name(model: str) -> str:
    """Return a model's name as shown on the page: without folders and unprintable characters, shortened."""
    name = PureWindowsPath(model).name or model.strip("/\\")
    return "".join(char for char in name if char.isprintable())[:80] or "unnamed"


class WatchedRun:
    """A run on a watched server, as events and as a trace. ``stop`` is called many times a second.

    Times are the server's own if it reports them, else the arrival times of its events.
    """

    def __init__(self, server: Server, config: RunConfig, stop: Stop):
        self._server = server
        self._race_asked = config.baseline
        self._config = replace(
            config,
            # The server chooses its drafter, draft length and rule. If it samples, record ``REJECTION``, the
            # rule under which two runs may give different texts.
            drafter=SERVER,
            script="",
            k=AUTO,
            rule=config.rule if config.rule is Rule.GREEDY else Rule.REJECTION,
            draft_alone=False,
            repeats=1,
            baseline=config.baseline and server.alone_url is not None,
        )
        self._stop = stop
        self._pieces = _Pieces()
        self._prompt_ids = self._pieces.of_prompt(config.prompt)
        self._log: RunLog

    @property
    def run(self) -> Run:
        """The run so far; available after the event ``start``."""
        return self._log.run

    def events(self) -> Iterator[Event]:
        """Yield ``progress`` events until the first rounds are known, then the events of a run."""
        found = find_server(self._server.url, self._server.name, self._stop)
        if found is None:
            yield STOPPED
            return
        lanes: dict[str, Iterable[Round]] = {}
        if self._config.baseline:  # read it first: two runs at the same time would slow each other down
            baseline = yield from self._read_baseline(found.reader)
            if not baseline or self._stop():
                yield STOPPED
                return
            lanes[BASELINE] = baseline
        lane = self._lane(found)
        if found.reader.has_rounds is None:
            rounds = yield from self._read_whole(lane, "is writing and reports its rounds at the end")
            if not rounds:
                yield STOPPED
                return
            lanes[SPECULATIVE] = rounds
        else:
            parts, begun = lane.read(), []
            for certain in parts:
                begun.append(certain)
                if lane.reader.has_text:  # which decides whether the server reports its rounds
                    break
            lanes[SPECULATIVE] = (round_ for certain in chain(begun, parts) for round_ in certain)
        yield self._begin(found, lane)
        for name, round_ in race(lanes):
            yield self._log.round(name, round_)
        if not self._log.begun:
            yield STOPPED
            return
        end = self._log.end()
        yield {**end, "sentence": f"{end['sentence']} {lane.summary}".strip()}

    def _read_baseline(self, reader: type[Reader]) -> Generator[Event, None, list[Round]]:
        """Return the rounds of the whole baseline; none if stopped before the server wrote anything."""
        name, url = self._server.name, self._server.alone_url
        found = find_server(url, name, self._stop) if url else None
        if found is None:
            return []
        if found.reader is not reader:  # different servers may divide the same text into different pieces
            raise UserError(
                f"{name} and the baseline server run different software. "
                "The second address in --watch, or that in --alone, must belong to a server with the same "
                "software."
            )
        lane = self._lane(found, drafts=False)
        rounds = yield from self._read_whole(lane, "is writing the baseline without drafts")
        if any(round_.drafted for round_ in rounds):
            raise UserError(
                f"The baseline server for {name} also uses drafts. "
                "The second address in --watch, or that in --alone, must belong to a server without drafts."
            )
        return rounds

    def _read_whole(self, lane: "_Lane", words: str) -> Generator[Event, None, list[Round]]:
        rounds: list[Round] = []
        for count, certain in enumerate(lane.read(), 1):
            rounds += certain
            text = f"{self._server.name} {words}; events so far: {count}"
            fraction = min(1.0, count / self._config.max_new_tokens)
            yield {"type": "progress", "text": text, "fraction": fraction}
        return rounds

    def _lane(self, found: FoundServer, drafts: bool = True) -> "_Lane":
        position = len(self._prompt_ids)
        return _Lane(found, self._config, self._server.name, self._pieces, position, drafts, self._stop)

    def _begin(self, found: FoundServer, lane: "_Lane") -> Event:
        unraced = (NO_RACE,) if self._race_asked and not self._config.baseline else ()
        silent = (*lane.reader.silent, *unraced)
        blank = Run(
            config=self._config,
            prompt_ids=self._prompt_ids,
            pair={"target": shown_name(found.model), "draft": "draft"},
            device=self._server.name,
            precision="unknown",
            versions={"engine": found.reader.title},
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            calibration=None,
            lanes={},
            pieces=self._pieces.encoded(self._prompt_ids),
            version=WATCHED_VERSION,
            watched=Watched(found.reader.title, self._server.name, silent, lane.has_rounds),
        )
        self._log = RunLog(blank, (END_ID,), self._pieces.encoded)
        return self._log.start()


def facts_of(server: Server) -> dict[str, Any]:
    """Return the conditions of a measurement, like ``measuring.environment`` for a pair."""
    found = find_server(server.url, server.name, never)
    assert found is not None
    return {
        "device": "a server elsewhere",
        "precision": "unknown",
        "pair": {"target": shown_name(found.model), "draft": "the server's own"},
        "versions": {"engine": found.reader.title},
        "date": datetime.now(UTC).date().isoformat(),
    }


def watched_rows(server: Server, settings: Settings, prompt: Prompt, temperature: float) -> list[Row]:
    """Return one row for the table of ``bench``: the medians over repeated runs of one prompt."""
    [config] = settings.configs(prompt, temperature)
    totals, engine = [], ""
    for _ in range(settings.repeats):
        watched = WatchedRun(server, config, never)
        for _event in watched.events():
            pass
        run = watched.run
        if run.watched is None or not run.watched.rounds:
            raise UserError(NO_ROUNDS)
        engine = run.watched.engine
        totals.append(fold({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, None))
    figures = medians(totals) | {"distinct_share": distinct_share(run.lanes[SPECULATIVE].rounds)}
    return [row_of(engine, "unknown", prompt, run.config, figures, None)]


class _Lane:
    """One request to a server as rounds of a trace.

    ``has_rounds`` and ``summary``, see ``StreamEnd``, are final at the end of :meth:`read`; for a reader that
    returns rounds while they arrive, ``has_rounds`` is final at the first of them.
    """

    def __init__(
        self,
        found: FoundServer,
        config: RunConfig,
        name: str,
        pieces: "_Pieces",
        position: int,
        drafts: bool,
        stop: Stop,
    ):
        self._found, self._config, self._name = found, config, name
        self._pieces, self._drafts, self._stop = pieces, drafts, stop
        self._index, self._position, self._end = 0, position, position + config.max_new_tokens
        self._held: ServerRound | None = None
        self.reader = found.reader(name)
        self.has_rounds = self.reader.has_rounds is not False
        self.summary = ""

    def read(self) -> Iterator[list[Round]]:
        """Yield the completed rounds after each event from the server, then the remaining rounds."""
        reader = self.reader
        url, body = _request(self._found, self._config)
        with closing(stream_chunks(url, self._name, body, self._stop)) as chunks:
            for chunk in chunks:
                rounds = reader.read(chunk.data, chunk.at)
                self.has_rounds = reader.has_rounds is not False
                yield self._made(rounds)
        end, stopped = reader.end(), self._stop()
        # A reader with ``has_rounds`` None returns one round per token if it knows no drafts. Without drafts
        # that is correct.
        self.has_rounds = end.has_rounds or (reader.has_rounds is None and not self._drafts)
        self.summary = end.summary
        rounds = self._made(end.rounds)
        if self._held is not None:
            rounds.append(self._round(self._held, Finish.STOPPED if stopped else end.finish))
        elif not stopped:
            raise UserError(f"{self._name} returned no text; change the prompt or try again.")
        yield rounds

    def _made(self, rounds: Iterable[ServerRound]) -> list[Round]:
        # Keep the latest round until the next call: if it is the run's last round, it needs a ``finish``.
        made = []
        for one in rounds:
            if self._held is not None:
                made.append(self._round(self._held, None))
            self._held = one
        return made

    def _round(self, one: ServerRound, finish: Finish | None) -> Round:
        accepted, drafted = one.accepted, one.drafted
        own = one.tokens[accepted] if len(one.tokens) > accepted else None
        rejected = own is not None and accepted < drafted
        is_compared = not one.is_share
        tokens, emission = [], None
        for token in one.tokens[:accepted]:
            id_, top, status = self._pieces.id_of(token), self._top(token), Status.ACCEPTED
            tokens.append(Token(id_, None, None, status, is_compared, False, raw_p=token.p, target_top=top))
        for index in range(accepted, drafted):
            first = rejected and is_compared and index == accepted
            tokens.append(Token(UNKNOWN_ID, None, None, Status.DISCARDED, compared=first, rejected=first))
        if own is not None:
            status = Status.CORRECTED if rejected else Status.BONUS
            emission = TargetToken(self._pieces.id_of(own), status, None, raw_prob=own.p, top=self._top(own))
        made = Round(
            index=self._index,
            position=self._position,
            drafted=tuple(tokens),
            emission=emission,
            draft_s=0.0,
            verify_s=0.0,
            other_s=round(one.seconds, 9),
            prefill_s=round(one.prompt_s, 9),
            finish=finish,
            drafted_by=SERVER if drafted or not self.has_rounds else "",
        )
        self._index += 1
        self._position += len(made.emitted)
        if self._position > self._end:
            raise inconsistent_counts_error(self._name, "more tokens than requested")
        return made

    def _top(self, token: ServerToken) -> tuple[Alternative, ...]:
        return tuple(Alternative(self._pieces.id_of(ServerToken(text)), p) for text, p in token.top)


class _Pieces:
    """Token ids for one run, because servers report none: each distinct text gets the next free id."""

    def __init__(self) -> None:
        self._bytes = [UNKNOWN_TOKEN, END.text]
        self._ids: dict[bytes, int] = {}

    def id_of(self, token: ServerToken) -> int:
        if token.special:
            return END_ID
        text = token.text[:MAX_PIECE_BYTES]
        if text not in self._ids:
            self._ids[text] = len(self._bytes)
            self._bytes.append(text)
        return self._ids[text]

    def of_prompt(self, prompt: str) -> tuple[int, ...]:
        data = prompt.encode()
        starts = range(0, len(data), MAX_PIECE_BYTES)
        return tuple(self.id_of(ServerToken(data[at : at + MAX_PIECE_BYTES])) for at in starts)

    def encoded(self, ids: Iterable[int]) -> dict[int, str]:
        return {token: base64.b64encode(self._bytes[token]).decode() for token in sorted(ids)}


def _request(found: FoundServer, config: RunConfig) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "model": found.model,
        "stream": True,
        "max_tokens": config.max_new_tokens,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "seed": config.seed,
    }
    if config.top_k:
        body["top_k"] = config.top_k
    if config.mode is Mode.RAW:
        fields = found.reader.completion_fields
        return f"{found.url}/v1/completions", {**body, "prompt": config.prompt, **fields}
    messages = [{"role": "user", "content": config.prompt}]
    return f"{found.url}/v1/chat/completions", {**body, "messages": messages, **found.reader.fields}
