"""What a visitor may ask to have proved, checked in one place for the page and the API. Knows no model."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specdemo.proof.audit import audit_config
from specdemo.proof.bounds import DRAWS, MOST_DRAWS, Control
from specdemo.proof.distribution import EXAMPLE
from specdemo.records.limits import (
    GREEDY_BELOW,
    MAX_TEMPERATURE,
    choice,
    integer,
    number,
    parse_config,
    require_known,
)
from specdemo.records.trace import RunConfig

MOST_PROMPTS = 48
"""As many as come with the program."""
PROMPTS = 8
TEMPERATURE = 0.8
SETTINGS = ("proof", "prompts", "temperature", "prompt", "draws", "rule")


class Proof(StrEnum):
    """The three ways of checking."""

    GREEDY = "greedy"
    SHARED_NOISE = "shared-noise"
    DISTRIBUTION = "distribution"


class SampledBy(StrEnum):
    """How the speculative sample of the distribution test is drawn: rightly, or wrong on purpose."""

    TRUE_RULE = "true-rule"
    ACCEPT_EVERYTHING = Control.ACCEPT_EVERYTHING
    NO_RESIDUAL = Control.NO_RESIDUAL

    @property
    def control(self) -> Control | None:
        """The wrong rule; None for the true one."""
        return None if self is SampledBy.TRUE_RULE else Control(self)


@dataclass(frozen=True)
class ProofRequest:
    """A checked request.

    Attributes:
        proof: What is to be shown.
        config: Settings of every text; its prompt counts in the distribution test only.
        prompts: How many prompts an audit goes through.
        draws: How often the distribution test draws each way.
        rule: By which rule the speculative ones.
    """

    proof: Proof
    config: RunConfig
    prompts: int
    draws: int
    rule: SampledBy


def parse_proof(raw: Mapping[str, Any]) -> ProofRequest:
    """Turn an untrusted mapping into a ``ProofRequest``; only what the proof asked for needs is looked at.

    Raises:
        UserError: A key is unknown, or a value has the wrong type or is out of bounds.
    """
    require_known(raw, SETTINGS)
    proof = choice(raw, "proof", Proof, Proof.DISTRIBUTION)
    prompts, draws, rule = PROMPTS, DRAWS, SampledBy.TRUE_RULE
    if proof is Proof.DISTRIBUTION:
        draws = integer(raw, "draws", DRAWS, 1, MOST_DRAWS)
        rule = choice(raw, "rule", SampledBy, SampledBy.TRUE_RULE)
        config = parse_config({**EXAMPLE, "prompt": raw.get("prompt", EXAMPLE["prompt"])})
    else:
        prompts = integer(raw, "prompts", PROMPTS, 1, MOST_PROMPTS)
        config = audit_config(_temperature(raw) if proof is Proof.SHARED_NOISE else 0.0)
    return ProofRequest(proof, config, prompts, draws, rule)


def _temperature(raw: Mapping[str, Any]) -> float:
    return number(raw, "temperature", TEMPERATURE, GREEDY_BELOW, MAX_TEMPERATURE)
