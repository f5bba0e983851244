"""Speculative decoding for Python programs, with the same checks, rounds and figures as the page."""

from collections.abc import Iterator
from typing import Any

from specdemo.engine.verdicts import top_fives
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.live import LiveRun
from specdemo.pairs.pair import Pair
from specdemo.records.limits import parse_config
from specdemo.records.trace import Round, Run, RunConfig


def speculate(pair: Pair, prompt: str, **settings: Any) -> Iterator[Round]:
    """Decode ``prompt`` with drafts, one round at a time.

    Args:
        pair: From ``load_pair``.
        prompt: What the target answers or, with ``mode="raw"``, continues.
        **settings: The other fields of ``RunConfig``: ``k``, ``temperature``, ``drafter``, …; ``baseline``
            and ``draft_alone`` are ignored. The default ``drafter`` is the pair's own.

    Returns:
        The rounds. Each is decoded when it is requested, so the run ends if you stop iterating. A round's
        ``emitted`` are the ids that it added to the text; ``pair.pieces`` has their bytes.

    Raises:
        UserError: A setting is unknown or out of bounds, or the pair lacks the drafter. It is raised at once,
            not with the first round.
    """
    config = _config(pair, prompt, settings)
    return Lanes(pair, top_fives).speculative(config, pair.prompt_ids(config))


def compare(pair: Pair, prompt: str, **settings: Any) -> Run:
    """Race drafts against the target alone, to the end; arguments and errors as for :func:`speculate`.

    Returns:
        The whole run: the rounds of each lane, and in ``totals`` the figures of ``figures.Totals``. Its
        ``to_json()`` is a trace file for the page and ``specdemo replay``.
    """
    live = LiveRun(pair, _config(pair, prompt, settings))
    for _ in live.events():
        pass
    return live.run


def _config(pair: Pair, prompt: str, settings: dict[str, Any]) -> RunConfig:
    return parse_config({"drafter": pair.default_drafter, **settings, "prompt": prompt})
