"""What a class is told of its drafts, from the rounds they were judged in: figures, agreement, a sentence.

All is told in one event:

``class-judged``  for each of the ``drafts`` in the order given the number of its verdict, from 0;
                  ``verdicts``: each one's ``round``, how many wrote it (``count``), what was ``cut`` from it;
                  ``model`` and ``model_name``: the round and the name of the drafter beside the class;
                  ``alpha`` and ``tau`` of all drafts, and ``model_alpha``;
                  ``agreed``: tokens most agreed on, each with ``id``, ``count``, ``status`` and ``rejected``;
                  ``longest``: the numbers of the drafts kept longest, none where nothing of any was kept;
                  ``target``: the ids that the target writes here, as far as they are known;
                  ``pieces``, ``specials``, and a ``sentence``

No torch, no page.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdemo.play.score import Score
from specdemo.play.words import count, name_of, quoted, share
from specdemo.records.events import Event, ids_in
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Round, Status, Token


@dataclass(frozen=True)
class ClassResults:
    """The verdicts on a class.

    Attributes:
        drafts: For each draft in the order given, the index of its verdict.
        rounds: The different verdicts.
        cuts: What was cut from the end of each of those drafts, as text.
        model: The round of the drafter beside the class.
        drafter: That drafter's kind.
    """

    drafts: Sequence[int]
    rounds: Sequence[Round]
    cuts: Sequence[str]
    model: Round
    drafter: str

    @property
    def score(self) -> Score:
        """Of all drafts, each counted once per student."""
        score = Score()
        for verdict in self.drafts:
            score = score.after(self.rounds[verdict])
        return score

    @property
    def agreed(self) -> list[tuple[Token, int]]:
        """The tokens that most of the class agreed on, with their numbers of students.

        From the first position on, the token that more than half of those wrote who wrote all the tokens
        before it, whether they wrote on or not; as long as there is one, and two students agree.
        """
        agreed: list[tuple[Token, int]] = []
        sharing = [self.rounds[verdict].drafted for verdict in self.drafts]
        while True:
            place = len(agreed)
            written = Counter(drafted[place].id for drafted in sharing if len(drafted) > place)
            [(token, number)] = written.most_common(1) or [(0, 0)]
            if number < 2 or 2 * number <= len(sharing):
                return agreed
            sharing = [drafted for drafted in sharing if len(drafted) > place and drafted[place].id == token]
            # Behind the same tokens the target decides the same: whose token it is makes no difference.
            agreed.append((sharing[0][place], number))

    @property
    def longest(self) -> list[int]:
        """Indices of the drafts of which most tokens were accepted; none where none was."""
        accepted = [self.rounds[verdict].accepted for verdict in self.drafts]
        most = max(accepted)
        return [index for index, number in enumerate(accepted) if number == most > 0]

    @property
    def target(self) -> list[int]:
        """What the target writes here, as far as any round has it: all of them emit beginnings of it."""
        return max((round_.emitted for round_ in (*self.rounds, self.model)), key=len)


def class_judged(results: ClassResults, pieces: PieceTable) -> Event:
    """The event that tells a class how its drafts fared."""
    counts = Counter(results.drafts)
    every_round = (*results.rounds, results.model)
    return {
        "type": "class-judged",
        "drafts": list(results.drafts),
        "verdicts": [
            {"round": asdict(round_), "count": counts[index], "cut": cut}
            for index, (round_, cut) in enumerate(zip(results.rounds, results.cuts, strict=True))
        ],
        "model": asdict(results.model),
        "model_name": name_of(results.drafter).title,
        "alpha": results.score.alpha,
        "tau": results.score.tau,
        "model_alpha": Score().after(results.model).alpha,
        "agreed": [_told_token(token, number) for token, number in results.agreed],
        "longest": results.longest,
        "target": results.target,
        "pieces": pieces.encoded(set().union(*map(ids_in, every_round))),
        "specials": sorted(pieces.specials),
        "sentence": _sentence(results, pieces),
    }


def _told_token(token: Token, number: int) -> dict[str, Any]:
    return {"id": token.id, "count": number, "status": token.status, "rejected": token.rejected}


def _sentence(results: ClassResults, pieces: PieceTable) -> str:
    """How the class fared, what most agreed on and which drafts were kept longest."""
    model = Score().after(results.model).alpha
    drafts = count(len(results.drafts), "draft")
    rates = (
        f"The class, {drafts}: {share(results.score.alpha)} accepted, "
        f"{name_of(results.drafter).inside}: {share(model)}."
    )
    told = [rates, _agreement(results, pieces) if len(results.drafts) > 1 else "", _longest(results)]
    return " ".join(filter(None, told))


def _agreement(results: ClassResults, pieces: PieceTable) -> str:
    """What most agreed on, and what the target makes of it."""
    tokens = [token for token, _ in results.agreed]
    if not tokens:
        return "No token was the first of most drafts."
    words = quoted(pieces.text(token.id for token in tokens))
    kept = [token.id for token in tokens if token.status is Status.ACCEPTED]
    if len(kept) == len(tokens):
        return f"Most agreed on {words}, and so does the target."
    if kept:
        return f"Most agreed on {words}, of which the target keeps {quoted(pieces.text(kept))}."
    return f"Most agreed on {words}; the target writes {quoted(pieces.text(results.target[:1]))} instead."


def _longest(results: ClassResults) -> str:
    """How much was kept of the draft, or the drafts, of which most was."""
    longest = results.longest
    if not longest:
        return "The target kept no draft's first token."
    tokens = count(results.rounds[results.drafts[longest[0]]].accepted, "token")
    if len(longest) == 1:
        return f"Kept longest: one draft, {tokens}."
    return f"Kept longest: {len(longest):,} drafts, {tokens} of each."
