"""Verification of the drafts that a class wrote for one text: the request, the rounds and the results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from specdemo.drafters.scripted import ScriptedDrafter
from specdemo.engine.speculate import never, speculate
from specdemo.engine.verdicts import top_fives
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.play.game import (
    Score,
    acceptance,
    drafter_name,
    one_round,
    one_round_config,
    parse_draft,
    quoted,
    title,
)
from specdemo.records.events import Event, ids_in
from specdemo.records.limits import (
    MAX_CLASS_DRAFTS,
    MAX_K,
    SCRIPTED,
    UserError,
    parse_config,
    require_known,
)
from specdemo.records.pieces import PieceTable
from specdemo.records.sentences import count
from specdemo.records.trace import Mode, Round, Status, Token


@dataclass(frozen=True)
class ClassRequest:
    """A checked request to verify the drafts of a class, from :func:`parse_class`."""

    text: str
    drafts: tuple[str, ...]  # one for each student, including its leading space


def parse_class(raw: Mapping[str, Any]) -> ClassRequest:
    """Check an untrusted mapping with the keys ``text`` and ``drafts``."""
    require_known(raw, ("text", "drafts"))
    text = parse_config({"prompt": raw.get("text"), "mode": Mode.RAW}).prompt
    drafts = raw.get("drafts")
    if not isinstance(drafts, list):
        raise UserError("drafts must be a list of texts, one per student.")
    if not 1 <= len(drafts) <= MAX_CLASS_DRAFTS:
        raise UserError(
            f"drafts must contain 1 to {MAX_CLASS_DRAFTS:,} texts; this request has {len(drafts):,}."
        )
    parsed = []
    for number, draft in enumerate(drafts, 1):
        try:
            parsed.append(parse_draft(draft))
        except UserError as error:
            raise UserError(f"Draft {number}: {error}") from error
    return ClassRequest(text, tuple(parsed))


class _SamePrompt(ModelRuntime):
    """A target that verifies many drafts after the same prompt, with only one prefill."""

    _held = 0

    def prefill(self, ids: Tensor) -> None:
        # The KV cache still contains these tokens.
        if self.length + len(ids) <= self._held:
            self.length += len(ids)
        else:
            super().prefill(ids)
            self._held = self.length


def judge_class(pair: Pair, request: ClassRequest, stop: Stop = never) -> Iterator[Event]:
    """Verify all drafts of a class as in ``game.play_turn``, but drafts with the same tokens only once.

    Yield a ``progress`` event for each distinct draft, then ``class-judged``. ``stop`` is called before every
    draft; True ends the job without a result.
    """
    prompt_ids = pair.prompt_ids(parse_config({"prompt": request.text, "mode": Mode.RAW}))
    scripts = [tuple(pair.script_ids(draft)) for draft in request.drafts]
    distinct = list(dict.fromkeys(scripts))
    # The script in the config is not used: each draft has a separate drafter, and all of them use one target.
    config = one_round_config(request.text, MAX_K, drafter=SCRIPTED, script=request.drafts[0])
    target = Lanes(pair, verifier=_SamePrompt).verifier(config, len(prompt_ids))
    rounds: list[Round] = []
    for script in distinct:
        if stop():
            return
        drafter = ScriptedDrafter(script, target.device)
        rounds.append(next(speculate(target, drafter, prompt_ids, config, pair.eos_ids, tops=top_fives)))
        yield {"type": "progress", "text": "Verifying the drafts", "fraction": len(rounds) / len(distinct)}
    if stop():
        return
    longest = one_round_config(request.text, max(1, *map(len, scripts)), drafter=pair.default_drafter)
    yield class_judged(
        [distinct.index(script) for script in scripts],
        rounds,
        [pair.pieces.text(distinct[i][len(round_.drafted) :]) for i, round_ in enumerate(rounds)],
        one_round(pair, longest, prompt_ids),
        pair.default_drafter,
        pair.pieces,
    )


def class_judged(
    drafts: Sequence[int],
    rounds: Sequence[Round],
    cuts: Sequence[str],
    model: Round,
    drafter: str,
    pieces: PieceTable,
) -> Event:
    """Return the event with the results for all drafts of a class.

    ``verdicts`` has an entry for each distinct draft, ``longest`` the indices of the drafts with the most
    accepted tokens (none if no token was accepted), and ``target`` the ids of the target's own text.

    Args:
        drafts: For each student, the index of the draft in ``rounds``.
        rounds: The round of each distinct draft.
        cuts: The text that was cut from each distinct draft.
        model: The round of the pair's default drafter.
        drafter: The kind of that drafter.
        pieces: The text of the target's tokens.
    """
    score = Score()
    for verdict in drafts:
        score = score.after(rounds[verdict])
    model_alpha = Score().after(model).alpha
    counts = Counter(drafts)
    accepted = [rounds[verdict].accepted for verdict in drafts]
    longest = [i for i, number in enumerate(accepted) if number == max(accepted) > 0]
    # Under greedy verification, all rounds emit the beginning of the same text, so take the longest one.
    target = max((round_.emitted for round_ in (*rounds, model)), key=len)
    agreed = _agreed([rounds[verdict].drafted for verdict in drafts])
    name = drafter_name(drafter)
    sentences = [
        f"Acceptance rates: the class ({count(len(drafts), 'draft')}) {acceptance(score.alpha)}, "
        f"{name} {acceptance(model_alpha)}."
    ]
    if len(drafts) > 1:
        sentences.append(_agreement([token for token, _ in agreed], target, pieces))
    tokens = count(max(accepted), "accepted token")
    if not longest:
        sentences.append("All drafts were rejected at their first token.")
    elif len(longest) == 1:
        sentences.append(f"Best draft: {tokens}.")
    else:
        sentences.append(f"Best: {len(longest)} drafts with {tokens} each.")
    return {
        "type": "class-judged",
        "drafts": list(drafts),
        "verdicts": [
            {"round": asdict(round_), "count": counts[index], "cut": cut}
            for index, (round_, cut) in enumerate(zip(rounds, cuts, strict=True))
        ],
        "model": asdict(model),
        "model_name": title(name),
        "alpha": score.alpha,
        "tau": score.tau,
        "model_alpha": model_alpha,
        "agreed": [
            {"id": token.id, "count": number, "status": token.status, "rejected": token.rejected}
            for token, number in agreed
        ],
        "longest": longest,
        "target": target,
        "pieces": pieces.encoded(set().union(*map(ids_in, (*rounds, model)))),
        "specials": sorted(pieces.specials),
        "sentence": " ".join(sentences),
    }


def _agreed(sharing: list[tuple[Token, ...]]) -> list[tuple[Token, int]]:
    """Return the tokens that a majority of the class agreed on, each with its number of students.

    A token is added if it was written by at least two, and by more than half, of the students who wrote all
    earlier tokens.
    """
    agreed: list[tuple[Token, int]] = []
    while True:
        position = len(agreed)
        going_on = [drafted for drafted in sharing if len(drafted) > position]
        [(token, number)] = Counter(drafted[position].id for drafted in going_on).most_common(1) or [(0, 0)]
        if number < 2 or 2 * number <= len(sharing):
            return agreed
        sharing = [drafted for drafted in going_on if drafted[position].id == token]
        # The target's decision depends only on the tokens before, so the verdict is equal for all of them.
        agreed.append((sharing[0][position], number))


def _agreement(agreed: list[Token], target: list[int], pieces: PieceTable) -> str:
    if not agreed:
        return "No first token was written by more than half of the class."
    words = f"Most of the class wrote {quoted(pieces.text(token.id for token in agreed))}"
    accepted = [token.id for token in agreed if token.status is Status.ACCEPTED]
    if len(accepted) == len(agreed):
        return f"{words}; the target accepts all of it."
    if accepted:
        return f"{words}; the target accepts {quoted(pieces.text(accepted))}."
    return f"{words}; the target writes {quoted(pieces.text(target[:1]))} instead."
