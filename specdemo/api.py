"""The Python API for speculative decoding. It uses the same checks, rounds and figures as the page."""

from collections.abc import Iterator
from typing import Any

from specdemo.engine.verdicts import top_fives
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.pairs.traced_run import TracedRun
from specdemo.records.limits import parse_config
from specdemo.records.trace import Round, Run, RunConfig


def speculate(pair: Pair, prompt: str, **settings: Any) -> Iterator[Round]:
    """Decode ``prompt`` speculatively, one round at a time.

    Args:
        pair: A pair from ``load_pair``.
        prompt: The message that the target answers or, with ``mode="raw"``, the text that it continues.
        **settings: Other fields of ``RunConfig``, such as ``k``, ``temperature`` and ``drafter``. The fields
            ``baseline`` and ``draft_alone`` are ignored. The default ``drafter`` is ``pair.default_drafter``.

    Returns:
        An iterator over the rounds. Each round is decoded when you request it, so decoding stops when you
        stop iterating. ``Round.emitted`` lists the token ids that a round added to the text, and
        ``pair.pieces`` converts ids to bytes.

    Raises:
        UserError: A setting is unknown or out of bounds, or the pair cannot run the drafter. The error is
            raised by this call, before the first round is requested.
    """
    config = _config(pair, prompt, settings)
    return iter(Lanes(pair, top_fives).speculative(config, pair.prompt_ids(config)))


def compare(pair: Pair, prompt: str, **settings: Any) -> Run:
    """Run speculative decoding and the target alone to the end, and return both.

    Arguments and errors are those of :func:`speculate`, but ``baseline`` and ``draft_alone`` are not ignored.

    Returns:
        The finished run. ``lanes`` has the rounds of each lane, and ``totals`` has the figures described in
        ``figures.Totals``. ``to_json()`` returns a trace that the page and ``specdemo replay`` can read.
    """
    traced = TracedRun(pair, _config(pair, prompt, settings))
    for _ in traced.events():
        pass
    return traced.run


def _config(pair: Pair, prompt: str, settings: dict[str, Any]) -> RunConfig:
    return parse_config({"drafter": pair.default_drafter, **settings, "prompt": prompt})
