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
per lane on an AMD EPYC (Zen 5):

========================  ====  ===============  ==========================  ======
rule                      α     total variation  noise, mean and 99th perc.  p
========================  ====  ===============  ==========================  ======
correct rule              0.62  0.070            0.058, 0.080                0.16
accept everything         1.00  0.604            0.072, 0.095                <1e-99
no residual               0.64  0.162            0.056, 0.078                6e-27
block coins               0.73  0.244            0.058, 0.081                3e-46
typical acceptance        0.75  0.297            0.057, 0.080                4e-85
raw q                     0.71  0.216            0.057, 0.078                9e-58
matching greedy           0.28  0.353            0.055, 0.078                <1e-99
========================  ====  ===============  ==========================  ======
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
