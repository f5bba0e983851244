"""Pairs of models in folders, and short runs of a loaded pair."""

from typing import Any

from specdemo.pairs.live import LiveRun
from specdemo.pairs.pair import Pair
from specdemo.records.limits import parse_config
from specdemo.records.trace import Run

ON_CPU = {"device": "cpu", "precision": "fp32"}


def save(model: Any, tokenizer: Any, folder: Any) -> str:
    """Write a model and its tokeniser to ``folder``; return its path for ``load_pair``."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def run(pair: Pair, **settings: Any) -> tuple[Run, dict[str, Any]]:
    """Return a finished run of ten tokens, and its last event."""
    settings = {"prompt": "abc", "mode": "raw", "max_new_tokens": 10, "k": 3} | settings
    live = LiveRun(pair, parse_config(settings))
    *_, end = live.events()
    return live.run, end
