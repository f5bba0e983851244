"""The drafts of a class on the loaded pair: each judged as the engine judges it alone, many in one pass.

No decoding of its own and no page: what may be asked is in ``class_request``, what is told in
``class_results``, and how drafts share a pass in ``batch_judge``.
"""

from collections.abc import Iterator

from specdemo.engine.speculate import never
from specdemo.pairs.pair import Pair, Stop
from specdemo.play.batch_judge import BatchJudge, Ids
from specdemo.play.class_request import ClassRequest
from specdemo.play.class_results import ClassResults, class_judged
from specdemo.play.turn import one_round, one_round_config
from specdemo.records.events import Event
from specdemo.records.limits import MAX_K, SCRIPTED, parse_config
from specdemo.records.trace import Mode, Round


def judge_class(pair: Pair, request: ClassRequest, stop: Stop = never) -> Iterator[Event]:
    """Have the target judge all drafts of a class, and one of the pair's own drafter beside them.

    Greedy. Drafts of the same tokens are judged once. A draft is judged up to ``MAX_K`` tokens, or as many as
    the target has room for; what is longer is cut and said. The drafter beside drafts as many tokens as the
    longest of them has.

    Args:
        stop: Asked before every batch of drafts and before the drafter beside them; True ends it, and nothing
            is told.

    Yields:
        ``progress`` events, then ``class-judged`` (see ``class_results``).

    Raises:
        UserError: The text is too long for the target.
    """
    prompt_ids = pair.prompt_ids(parse_config({"prompt": request.text, "mode": Mode.RAW}))
    scripts: list[Ids] = [tuple(pair.script_ids(draft)) for draft in request.drafts]
    distinct = list(dict.fromkeys(scripts))
    # Any draft will do: of the script's lane only the target is run, which looks at no script.
    config = one_round_config(request.text, MAX_K, drafter=SCRIPTED, script=request.drafts[0])
    rounds: dict[Ids, Round] = {}
    if stop():
        return
    for batch in BatchJudge(pair, config, prompt_ids).batches(distinct):
        rounds |= batch
        yield {"type": "progress", "text": "Judging the drafts", "fraction": len(rounds) / len(distinct)}
        if stop():
            return
    beside = one_round_config(request.text, max(1, *map(len, scripts)), drafter=pair.default_drafter)
    index = {script: number for number, script in enumerate(distinct)}
    results = ClassResults(
        drafts=[index[script] for script in scripts],
        rounds=[rounds[script] for script in distinct],
        cuts=[pair.pieces.text(script[len(rounds[script].drafted) :]) for script in distinct],
        model=one_round(pair, beside, prompt_ids),
        drafter=pair.default_drafter,
    )
    yield class_judged(results, pair.pieces)
