"""Finished runs of a tiny pair, decoded once for all tests that read traces."""

import base64
import functools
from collections.abc import Iterable, Mapping

from helpers.tiny import tiny_pair

from specdemo.pairs.traced_run import TracedRun
from specdemo.records.limits import parse_config
from specdemo.records.trace import Rule, Run

PROMPT = "<s>naïve 🎉"


def finished(rule: Rule = Rule.GREEDY) -> Run:
    return decoded(rule, None)


@functools.cache
def decoded(rule: Rule, eos_id: int | None) -> Run:
    """Return such a run of a target that ends its text with ``eos_id``."""
    pair = tiny_pair()
    pair.target.generation_config.eos_token_id = eos_id
    temperature = 0 if rule is Rule.GREEDY else 0.8
    raw = {"prompt": PROMPT, "mode": "raw", "max_new_tokens": 24, "rule": rule, "temperature": temperature}
    traced = TracedRun(pair, parse_config({**raw, "draft_alone": True}))
    for _ in traced.events():
        pass
    return traced.run


def decode_pieces(pieces: Mapping[int, str], ids: Iterable[int]) -> str:
    return b"".join(base64.b64decode(pieces[token]) for token in ids).decode(errors="replace")
