"""A run of a watched server as the events of any run, while it is being written.

Where the same model is served without drafts as well, that lane is read first, since both at once would slow
each other down, and its rounds are told in step with the other's. Times are the server's own where it tells
them, else those of arrival here.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PureWindowsPath
from typing import Any

from specdemo.records.drafter_kinds import SERVER
from specdemo.records.events import Event, RunLog
from specdemo.records.limits import UserError
from specdemo.records.race import race
from specdemo.records.trace import (
    AUTO,
    BASELINE,
    SPECULATIVE,
    WATCHED_VERSION,
    Finish,
    Mode,
    Round,
    Rule,
    Run,
    RunConfig,
    Watched,
)
from specdemo.service.queue import Stop
from specdemo.watch.engines import Engine, Found, find
from specdemo.watch.rounds import SPECIALS, Pieces, Rounds
from specdemo.watch.servers import Server
from specdemo.watch.stream import chunks

STOPPED: Event = {"type": "progress", "text": "Stopped before it began", "fraction": 0.0}
NO_RACE = "It cannot be asked to write without drafts, so there is no race."


class WatchedRun:
    """Have a server write what a configuration asks for, and keep what it tells.

    Args:
        server: Which one.
        config: From ``limits.parse_config``; what the server decides itself is not looked at.
        stop: Asked all the time; True ends it.
    """

    def __init__(self, server: Server, config: RunConfig, stop: Stop):
        self._server = server
        raced = config.baseline and server.alone_url is not None
        # By which rule it verifies is the server's to know; where it samples, two of its texts may differ.
        rule = config.rule if config.rule is Rule.GREEDY else Rule.REJECTION
        own = {"drafter": SERVER, "script": "", "k": AUTO, "rule": rule, "draft_alone": False}
        self._config = replace(config, **own, baseline=raced)
        self._race_asked = config.baseline
        self._stop = stop
        self._pieces = Pieces()
        self._log: RunLog

    def events(self) -> Iterator[Event]:
        """Run it: ``progress`` events while nothing else is known, then the events of a run.

        Raises:
            UserError: The server cannot be reached, breaks off, or contradicts itself.
        """
        found = find(self._server.url, self._server.name, self._stop)
        if found is None:
            yield STOPPED
            return
        drafting, lanes = self._lane(self._server.url, found), {}
        if self._config.baseline:
            alone = yield from self._alone(found.engine)
            if alone is None or self._stop():
                yield STOPPED
                return
            lanes[BASELINE] = iter(alone.rounds)
        if found.engine.rounds is None:
            words = f"{self._server.name} writes, and tells its rounds at the end"
            yield from self._collected(drafting, words)
            if not drafting.rounds:
                yield STOPPED
                return
            yield self._begin(found, drafting.told)
            lanes[SPECULATIVE] = iter(drafting.rounds)
        else:
            yield self._begin(found, found.engine.rounds)
            lanes[SPECULATIVE] = (round_ for made in drafting.read() for round_ in made)
        for lane, round_ in race(lanes):
            yield self._log.round(lane, round_)
        if not self._log.begun:
            yield STOPPED
            return
        event = self._log.end()
        yield {**event, "sentence": " ".join(filter(None, (event["sentence"], drafting.said)))}

    @property
    def run(self) -> Run:
        """The whole run so far, ready to be saved; once it has begun."""
        return self._log.run

    @property
    def _prompt_ids(self) -> tuple[int, ...]:
        return self._pieces.of_prompt(self._config.prompt)

    def _lane(self, url: str, found: Found, drafts: bool = True) -> "_Lane":
        return _Lane(url, found, self._config, self._server.name, self._pieces, self._stop, drafts)

    def _alone(self, engine: Engine) -> Generator[Event, None, "_Lane | None"]:
        """The lane without drafts, read to its end; None where it was stopped before it wrote anything.

        Raises:
            UserError: That server drafts as well, or is another program, whose pieces are not comparable.
        """
        name, url = self._server.name, self._server.alone_url
        found = None if url is None else find(url, name, self._stop)
        if url is None or found is None:
            return None
        if found.engine is not engine:
            raise UserError(
                f"{name} is raced by another kind of server; its host has to give one of the same."
            )
        lane = self._lane(url, found, drafts=False)
        yield from self._collected(lane, f"{name} writes without drafts first")
        if any(round_.drafted for round_ in lane.rounds):
            raise UserError(f"{name} drafts in its race, too; its host has to give one that does not.")
        return lane if lane.rounds else None

    def _collected(self, lane: "_Lane", words: str) -> Iterator[Event]:
        """Read a lane to its end, telling how far it is."""
        for seen, made in enumerate(lane.read(), 1):
            lane.rounds += made
            share = min(1.0, seen / self._config.max_new_tokens)
            yield {"type": "progress", "text": f"{words}: {seen} pieces so far", "fraction": share}

    def _begin(self, found: Found, rounds: bool) -> Event:
        unraced = (NO_RACE,) if self._race_asked and not self._config.baseline else ()
        prompt_ids = self._prompt_ids
        blank = Run(
            config=self._config,
            prompt_ids=prompt_ids,
            pair={"target": shown_name(found.model), "draft": "draft"},
            device=self._server.name,
            precision="unknown",
            versions={"engine": found.engine.title},
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            calibration=None,
            lanes={},
            pieces=self._pieces.encoded(prompt_ids),
            version=WATCHED_VERSION,
            watched=Watched(found.engine.title, self._server.name, (*found.engine.silent, *unraced), rounds),
        )
        self._log = RunLog(blank, SPECIALS, self._pieces.encoded)
        return self._log.start()


class _Lane:
    """One text that a server writes.

    Attributes:
        rounds: For whoever reads it to its end before they are shown.
        told: Whether its rounds were the server's own.
        said: What the server said of the whole.
    """

    def __init__(
        self,
        url: str,
        found: Found,
        config: RunConfig,
        name: str,
        pieces: Pieces,
        stop: Stop,
        drafts: bool,
    ):
        self._url, self._found, self._config, self._name = url, found, config, name
        self._pieces, self._stop, self._drafts = pieces, stop, drafts
        self.rounds: list[Round] = []
        self.told = True
        self.said = ""

    def read(self) -> Iterator[list[Round]]:
        """The rounds that each of the server's events makes certain, the last ones when it has ended.

        Raises:
            UserError: As for ``WatchedRun.events``.
        """
        address, body = request(self._url, self._found, self._config)
        prompt = len(self._pieces.of_prompt(self._config.prompt))
        rounds = Rounds(self._pieces, prompt, self._name, self._config.max_new_tokens)
        rounds.told = self._found.engine.rounds is not False
        reader, any_made = self._found.engine.reader(self._name), False
        with closing(chunks(address, self._name, body, self._stop)) as stream:
            for chunk in stream:
                made = list(rounds.made(reader.take(chunk)))
                any_made = any_made or bool(made)
                yield made
        outcome = reader.end()
        # Without drafts there is nothing to tell of rounds: each token is one.
        tokens = not self._drafts and self._found.engine.rounds is None
        rounds.told = self.told = outcome.rounds or tokens
        self.said = outcome.said
        stopped = self._stop()
        last = list(rounds.last(outcome.steps, Finish.STOPPED if stopped else outcome.finish))
        if not (any_made or last or stopped):
            raise UserError(f"{self._name} wrote nothing; ask for something else, or try again.")
        yield last


def shown_name(model: str) -> str:
    """What a model is called on the page: never a folder of the server's, whichever way it writes them."""
    name = PureWindowsPath(model).name or model.strip("/\\")
    return "".join(char for char in name if char.isprintable())[:80] or "unnamed"


def request(url: str, found: Found, config: RunConfig) -> tuple[str, dict[str, Any]]:
    """Where and what to ask for a run."""
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
        return f"{url}/v1/completions", {**body, "prompt": config.prompt, **found.engine.continuation_fields}
    message = {"role": "user", "content": config.prompt}
    return f"{url}/v1/chat/completions", {**body, "messages": [message], **found.engine.fields}
