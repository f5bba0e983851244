"""One turn of Play on the loaded pair: the engine's own round for each drafter of the same text.

No decoding of its own and no page: what a turn may ask and how it is told is in ``game``.
"""

from collections.abc import Iterator

from specdemo.engine.speculate import never
from specdemo.engine.verdicts import top_fives
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.play.game import MODEL, TurnLog, TurnRequest
from specdemo.records.events import Event
from specdemo.records.limits import MAX_K, SCRIPTED, UserError, parse_config
from specdemo.records.trace import Mode, Round, RunConfig


def play_turn(pair: Pair, request: TurnRequest, stop: Stop = never) -> Iterator[Event]:
    """Have the target judge the players' drafts, and one of the draft model's of the same length.

    Greedy. A draft is judged up to ``MAX_K`` tokens, or as many as the target has room for; what is longer is
    cut and said.

    Args:
        stop: Asked before every drafter; True ends the turn with none of it counted.

    Yields:
        A ``judged`` event per drafter, then ``turn`` (see ``game``).

    Raises:
        UserError: The text has ended, is too long for the target, or is not one this pair can have written.
    """
    prompt_ids = _text_so_far(pair, request)
    scripts = {player: pair.script_ids(draft) for player, draft in request.drafts.items()}
    log = TurnLog(request, pair.default_drafter, pair.pieces.encoded, pair.pieces.text, pair.pieces.specials)
    for player, draft in request.drafts.items():
        if stop():
            return
        config = one_round_config(request.text, len(scripts[player]), drafter=SCRIPTED, script=draft)
        round_ = one_round(pair, config, prompt_ids)
        yield log.judged(player, round_, cut=pair.pieces.text(scripts[player][len(round_.drafted) :]))
    if stop():
        return
    config = one_round_config(request.text, max(map(len, scripts.values())), drafter=pair.default_drafter)
    yield log.judged(MODEL, one_round(pair, config, prompt_ids))
    yield log.end()


def _text_so_far(pair: Pair, request: TurnRequest) -> list[int]:
    """The text as the tokens it was written in; reading it anew could divide its words otherwise."""
    if any(token >= pair.vocab for token in request.written):
        raise UserError("written has token ids that the target does not know; start a new game.")
    if request.written and request.written[-1] in pair.eos_ids:
        raise UserError("The text has ended; start a new game.")
    opening = pair.prompt_ids(parse_config({"prompt": request.text, "mode": Mode.RAW}))
    return [*opening, *request.written]


def one_round_config(text: str, tokens: int, **drafter: str) -> RunConfig:
    """A greedy run of one round, which drafts ``tokens`` tokens, or as many as may be."""
    request = {"prompt": text, "mode": Mode.RAW, "max_new_tokens": MAX_K + 1, "baseline": False}
    return parse_config({**request, "k": min(tokens, MAX_K), **drafter})


def one_round(pair: Pair, config: RunConfig, prompt_ids: list[int]) -> Round:
    """The first round of a run, as its speculative lane has it; errors as there."""
    [round_] = Lanes(pair, top_fives).speculative(config, prompt_ids, stop=lambda: True)
    return round_
