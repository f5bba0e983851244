"""A run of a watched server as the events of any run, while it is being written.

The server's target writes twice where it is served without drafts as well: one lane after the other, since
both would slow each other down. Times are the server's own where it tells them, else those of arrival here.
"""

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PureWindowsPath
from typing import Any

from specdemo.records.drafter_kinds import SERVER
from specdemo.records.events import Event, RunLog
from specdemo.records.limits import UserError
from specdemo.records.trace import (
    AUTO,
    BASELINE,
    SPECULATIVE,
    UNTOLD,
    WATCHED_VERSION,
    Alternative,
    Emission,
    Finish,
    Mode,
    Round,
    Run,
    RunConfig,
    Status,
    Token,
    Watched,
)
from specdemo.service.queue_place import Stop
from specdemo.watch.engines import Found, find
from specdemo.watch.servers import Server
from specdemo.watch.steps import END, Piece, Reader, Step, lie
from specdemo.watch.stream import chunks

UNTOLD_MARK = "▢"
END_ID = 1
"""The id of the token that ends a text."""
SPECIALS = (END_ID,)
MOST_PIECE = 1_000
"""Bytes of one piece; a server's longer ones are cut, prompts are put in several."""
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
        race = config.baseline and server.alone_url is not None
        own = {"drafter": SERVER, "script": "", "k": AUTO, "draft_alone": False, "baseline": race}
        self._config = replace(config, **own)
        self._race_asked = config.baseline
        self._stop = stop
        self._pieces = Pieces()
        self._log: RunLog | None = None
        self._wrote = False

    def events(self) -> Iterator[Event]:
        """Run it: ``progress`` events while nothing else is known, then the events of a run.

        Raises:
            UserError: The server cannot be reached, breaks off, or contradicts itself.
        """
        found = find(self._server.url, self._server.name, self._stop)
        alone = self._alone() if found is not None else None
        if found is None or self._stop():
            yield STOPPED
            return
        lanes = {SPECULATIVE: (self._server.url, found)}
        if alone is not None and self._server.alone_url:
            lanes[BASELINE] = (self._server.alone_url, alone)
        if found.engine.rounds is not None:
            yield self._begin(found, found.engine.rounds)
        said = ""
        for lane, (url, one) in lanes.items():
            rounds = Rounds(
                self._pieces, len(self._prompt_ids), self._server.name, self._config.max_new_tokens
            )
            reader = one.engine.reader(self._server.name)
            for seen, steps in enumerate(self._read(url, one, reader), 1):
                if self._log is None:
                    yield self._waiting(seen)
                else:
                    yield from self._told(lane, rounds.made(steps))
            outcome = reader.end()
            finish = Finish.STOPPED if self._stop() else outcome.finish
            last = list(rounds.last(outcome.steps, finish))
            if not last and finish is Finish.STOPPED:
                break
            if not last:
                raise UserError(f"{self._server.name} wrote nothing; ask for something else, or try again.")
            if self._log is None:
                yield self._begin(found, outcome.rounds)
            yield from self._told(lane, last)
            said = outcome.said if lane == SPECULATIVE else said
        yield self._ended(said)

    @property
    def run(self) -> Run:
        """The whole run so far, ready to be saved; after its first round."""
        assert self._log is not None
        return self._log.run

    @property
    def _prompt_ids(self) -> tuple[int, ...]:
        return self._pieces.of_prompt(self._config.prompt)

    def _alone(self) -> Found | None:
        """The server without drafts, where it is asked for."""
        if not (self._config.baseline and self._server.alone_url):
            return None
        return find(self._server.alone_url, self._server.name, self._stop)

    def _read(self, url: str, found: Found, reader: Reader) -> Iterator[list[Step]]:
        """The steps that each event of a lane makes certain."""
        address, body = request(url, found, self._config)
        with closing(chunks(address, self._server.name, body, self._stop)) as stream:
            for chunk in stream:
                yield reader.take(chunk)

    def _waiting(self, seen: int) -> Event:
        share = min(1.0, seen / self._config.max_new_tokens)
        words = f"{self._server.name} writes, and tells its rounds at the end: {seen} pieces so far"
        return {"type": "progress", "text": words, "fraction": share}

    def _begin(self, found: Found, rounds: bool) -> Event:
        unraced = (NO_RACE,) if self._race_asked and not self._config.baseline else ()
        prompt_ids = self._prompt_ids
        blank = Run(
            config=self._config,
            prompt_ids=prompt_ids,
            pair={"target": _shown(found.model), "draft": "draft"},
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

    def _told(self, lane: str, rounds: Iterable[Round]) -> Iterator[Event]:
        assert self._log is not None
        for round_ in rounds:
            if round_.drafted and lane == BASELINE:
                raise UserError(
                    f"{self._server.name} drafts in its race, too; its host has to give one that does not."
                )
            self._wrote = True
            yield self._log.round(lane, round_)

    def _ended(self, said: str) -> Event:
        if self._log is None or not self._wrote:
            return STOPPED
        event = self._log.end()
        return {**event, "sentence": " ".join(filter(None, (event["sentence"], said)))}


def _shown(model: str) -> str:
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


class Pieces:
    """Numbers for the pieces of text of one run, in the order in which they come."""

    def __init__(self) -> None:
        self._bytes = [UNTOLD_MARK.encode(), END.text]
        self._ids: dict[bytes, int] = {}

    def id_of(self, piece: Piece) -> int:
        """The number of a piece."""
        if piece.special:
            return END_ID
        text = piece.text[:MOST_PIECE]
        if text not in self._ids:
            self._ids[text] = len(self._bytes)
            self._bytes.append(text)
        return self._ids[text]

    def of_prompt(self, prompt: str) -> tuple[int, ...]:
        """The prompt in pieces; how the server reads it is not told."""
        data = prompt.encode()
        return tuple(self.id_of(Piece(data[at : at + MOST_PIECE])) for at in range(0, len(data), MOST_PIECE))

    def encoded(self, ids: Iterable[int]) -> dict[int, str]:
        """As trace files have them."""
        return {token: base64.b64encode(self._bytes[token]).decode() for token in sorted(ids)}


class Rounds:
    """Turns a lane's steps into rounds; each is held back until it is known whether it is the last.

    Args:
        pieces: Of the run.
        position: Tokens of the prompt.
        name: The server's.
        most: Tokens that were asked for.
    """

    def __init__(self, pieces: Pieces, position: int, name: str, most: int):
        self._pieces = pieces
        self._position = position
        self._end = position + most
        self._name = name
        self._index = 0
        self._held: Step | None = None

    def made(self, steps: Sequence[Step]) -> Iterator[Round]:
        """The rounds of all steps so far but the last."""
        for step in steps:
            if self._held is not None:
                yield self._round(self._held, None)
            self._held = step

    def last(self, steps: Sequence[Step], finish: Finish) -> Iterator[Round]:
        """The rounds of all steps, when there are no more."""
        yield from self.made(steps)
        if self._held is not None:
            yield self._round(self._held, finish)

    def _round(self, step: Step, finish: Finish | None) -> Round:
        accepted, drafted = step.accepted, step.drafted
        own = step.tokens[accepted] if len(step.tokens) > accepted else None
        refused = own is not None and accepted < drafted
        tokens = [self._accepted(piece) for piece in step.tokens[:accepted]]
        tokens += [_untold(refused and place == accepted) for place in range(accepted, drafted)]
        made = Round(
            index=self._index,
            position=self._position,
            drafted=tuple(tokens),
            emission=None if own is None else self._emission(own, refused),
            draft_s=0.0,
            verify_s=0.0,
            other_s=round(step.seconds, 9),
            prefill_s=round(step.prompt_s, 9),
            finish=finish,
            drafted_by=SERVER if drafted else "",
        )
        self._index += 1
        self._position += len(made.emitted)
        if self._position > self._end:
            raise lie(self._name, "more tokens than were asked for")
        return made

    def _accepted(self, piece: Piece) -> Token:
        return Token(
            id=self._pieces.id_of(piece),
            q=None,
            p=None,
            status=Status.ACCEPTED,
            compared=True,
            rejected=False,
            raw_p=piece.p,
            target_top=self._top(piece),
        )

    def _emission(self, piece: Piece, refused: bool) -> Emission:
        return Emission(
            id=self._pieces.id_of(piece),
            status=Status.CORRECTED if refused else Status.BONUS,
            prob=None,
            raw_prob=piece.p,
            top=self._top(piece),
        )

    def _top(self, piece: Piece) -> tuple[Alternative, ...]:
        return tuple(Alternative(self._pieces.id_of(Piece(text)), p) for text, p in piece.top)


def _untold(rejected: bool) -> Token:
    """A token that was drafted and thrown away; only that is known of it."""
    return Token(id=UNTOLD, q=None, p=None, status=Status.DISCARDED, compared=rejected, rejected=rejected)
