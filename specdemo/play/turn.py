"""One turn of Play on the loaded pair: a round of the engine for each drafter, on the same text."""

from collections.abc import Iterator

from specdemo.engine.speculate import never
from specdemo.engine.verdicts import top_fives
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair, Stop
from specdemo.play.game import MODEL, TurnEvents, TurnRequest
from specdemo.records.events import Event
from specdemo.records.limits import MAX_K, SCRIPTED, UserError, parse_config
from specdemo.records.trace import Mode, Round, RunConfig


def play_turn(pair: Pair, request: TurnRequest, stop: Stop = never) -> Iterator[Event]:
    """Verify the players' drafts greedily, and one of the pair's own drafter of the same length.

    A draft longer than ``MAX_K`` tokens, or than the target has room for, is cut.

    Args:
        stop: Asked before every drafter; True ends the turn, and none of it counts.

    Yields:
        A ``judged`` event per drafter, then ``turn`` (see ``TurnEvents``).

    Raises:
        UserError: The text has ended, is too long for the target, or cannot come from this pair.
    """
    prompt_ids = _text_so_far(pair, request)
    scripts = {player: pair.script_ids(draft) for player, draft in request.drafts.items()}
    events = TurnEvents(request, pair.default_drafter, pair.pieces)
    for player, draft in request.drafts.items():
        if stop():
            return
        config = one_round_config(request.text, len(scripts[player]), drafter=SCRIPTED, script=draft)
        round_ = one_round(pair, config, prompt_ids)
        yield events.judged(player, round_, cut=pair.pieces.text(scripts[player][len(round_.drafted) :]))
    if stop():
        return
    config = one_round_config(request.text, max(map(len, scripts.values())), drafter=pair.default_drafter)
    yield events.judged(MODEL, one_round(pair, config, prompt_ids))
    yield events.end()


def one_round_config(text: str, tokens: int, **drafter: str) -> RunConfig:
    """Return a greedy run of one round that drafts ``tokens`` tokens, at most ``MAX_K``."""
    request = {"prompt": text, "mode": Mode.RAW, "max_new_tokens": MAX_K + 1, "baseline": False}
    return parse_config({**request, "k": min(tokens, MAX_K), **drafter})


def one_round(pair: Pair, config: RunConfig, prompt_ids: list[int]) -> Round:
    """Return the first round of a run's speculative lane; errors as for ``Lanes.speculative``."""
    [round_] = Lanes(pair, top_fives).speculative(config, prompt_ids, stop=lambda: True)
    return round_


def _text_so_far(pair: Pair, request: TurnRequest) -> list[int]:
    if any(token >= pair.vocab for token in request.written):
        raise UserError("written has token ids that the target does not have; start a new game.")
    if request.written and request.written[-1] in pair.eos_ids:
        raise UserError("The text has ended; start a new game.")
    opening = pair.prompt_ids(parse_config({"prompt": request.text, "mode": Mode.RAW}))
    # The written text stays as the tokens it was written in: tokenized again, it could split differently.
    return [*opening, *request.written]
