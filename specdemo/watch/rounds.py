"""From the steps a server told to the rounds that are shown: pieces of text get numbers, verdicts places."""

import base64
from collections.abc import Iterable, Iterator, Sequence

from specdemo.records.drafter_kinds import SERVER
from specdemo.records.trace import UNTOLD, Alternative, Emission, Finish, Round, Status, Token
from specdemo.watch.steps import END, Piece, Step, lie

UNTOLD_MARK = "▢"
END_ID = 1
"""The id of the token that ends a text."""
SPECIALS = (END_ID,)
MOST_PIECE = 1_000
"""Bytes of one piece; a server's longer ones are cut, prompts are put in several."""


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
        self.told = True
        """Whether the steps are rounds."""
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
            drafted_by=SERVER if drafted or not self.told else "",
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
