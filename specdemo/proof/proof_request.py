"""Requests for a proof, checked for the page, the API and the command line. Does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from specdemo.records.limits import (
    GREEDY_BELOW,
    MAX_TEMPERATURE,
    choice,
    integer,
    number,
    parse_config,
    require_known,
)
from specdemo.records.trace import Rule, RunConfig

DRAWS = 2_000
MAX_DRAWS = 10_000
PROMPTS = 8
MAX_PROMPTS = 48  # all built-in prompts
TEMPERATURE = 0.8
TOKENS = 48
"""Length of an audited text. Both lanes together take about two seconds on two CPU cores."""
SETTINGS = ("proof", "prompts", "temperature", "prompt", "draws", "rule")
EXAMPLE = MappingProxyType(
    {
        "prompt": "The sea is",
        "mode": "raw",
        "temperature": 1.0,
        "top_k": 2,
        "max_new_tokens": 5,
    }
)
"""The default test for the built-in pair. After this prompt both models prefer the same words, but with
different probabilities.

Drafts of several tokens are needed to catch wrong versions of block verification. Measured with 2,000 draws
per lane, on two threads of an AMD EPYC (Zen 5), before passes were compiled:

========================  ====  ===============  ==========================  ======  =======
rule                      α     total variation  noise, mean and 99th perc.  p       seconds
========================  ====  ===============  ==========================  ======  =======
correct rule              0.53  0.061            0.058, 0.081                0.33    10
accept everything         1.00  0.623            0.070, 0.092                <1e-99  7
no residual               0.54  0.207            0.057, 0.080                4e-38   9
block coins               0.68  0.309            0.058, 0.081                3e-91   10
typical acceptance        0.74  0.492            0.057, 0.081                <1e-99  10
========================  ====  ===============  ==========================  ======  =======
"""


class Proof(StrEnum):
    """The kinds of proof. ``OTHER_LIBRARIES`` shows what rounding does elsewhere."""

    GREEDY = "greedy"
    OTHER_LIBRARIES = "other-libraries"
    SHARED_NOISE = "shared-noise"
    DISTRIBUTION = "distribution"


class Control(StrEnum):
    """Wrong versions of rejection sampling that the distribution test must detect. A run cannot use them."""

    ACCEPT_EVERYTHING = "accept-everything"
    NO_RESIDUAL = "no-residual"
    BLOCK_COINS = "block-coins"
    TYPICAL = "typical"
    RAW_Q = "raw-q"
    MATCHING_GREEDY = "matching-greedy"


class SampledBy(StrEnum):
    """The rule that draws the speculative sample: the correct rule or a control."""

    TRUE_RULE = "true-rule"
    ACCEPT_EVERYTHING = Control.ACCEPT_EVERYTHING
    NO_RESIDUAL = Control.NO_RESIDUAL
    BLOCK_COINS = Control.BLOCK_COINS
    TYPICAL = Control.TYPICAL
    RAW_Q = Control.RAW_Q
    MATCHING_GREEDY = Control.MATCHING_GREEDY

    @property
    def control(self) -> Control | None:
        return None if self is SampledBy.TRUE_RULE else Control(self)


@dataclass(frozen=True)
class ProofRequest:
    proof: Proof
    config: RunConfig  # only the distribution test uses its prompt
    prompts: int  # built-in prompts of an audit
    draws: int  # continuations of each lane in the distribution test
    rule: SampledBy  # of the speculative lane in the distribution test


def parse_proof(raw: Mapping[str, Any]) -> ProofRequest:
    """Check an untrusted mapping; settings of other kinds of proof are ignored."""
    require_known(raw, SETTINGS)
    proof = choice(raw, "proof", Proof, Proof.DISTRIBUTION)
    prompts, draws, rule = PROMPTS, DRAWS, SampledBy.TRUE_RULE
    if proof is Proof.DISTRIBUTION:
        draws = integer(raw, "draws", DRAWS, 1, MAX_DRAWS)
        rule = choice(raw, "rule", SampledBy, SampledBy.TRUE_RULE)
        config = parse_config({**EXAMPLE, "prompt": raw.get("prompt", EXAMPLE["prompt"])})
    else:
        prompts = integer(raw, "prompts", PROMPTS, 1, MAX_PROMPTS)
        temperature = 0.0
        if proof is Proof.SHARED_NOISE:
            temperature = number(raw, "temperature", TEMPERATURE, GREEDY_BELOW, MAX_TEMPERATURE)
        config = audit_config(temperature)
    return ProofRequest(proof, config, prompts, draws, rule)


def audit_config(temperature: float) -> RunConfig:
    """Return the settings of an audit: the greedy rule at temperature 0, shared noise above 0."""
    rule = Rule.SHARED_NOISE if temperature > 0 else Rule.GREEDY
    request = {"prompt": "(each in turn)", "temperature": temperature, "rule": rule}
    return parse_config({**request, "max_new_tokens": TOKENS})
