"""``specdemo prove``: check that speculative decoding gives the same output as the target alone."""

import argparse
from typing import Any

from specdemo.bench.prompts import builtin_prompts
from specdemo.cli.options import add_pair_options, check_pair, loaded_pair
from specdemo.proof.proof_request import (
    DRAWS,
    EXAMPLE,
    MAX_DRAWS,
    Control,
    audit_config,
)
from specdemo.records.limits import UserError, choice, integer, parse_config

PROMPTS = 6
TEMPERATURES = (0.0, 0.8)
SHOWN = 8


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "prove", help="test whether speculative outputs match the target's own outputs"
    )
    parser.set_defaults(command=run)
    add = parser.add_argument
    add("--audit", type=int, metavar="N", help="number of texts to compare token by token")
    add("--distribution", type=int, metavar="N", help="number of draws for the distribution test")
    add("--control", metavar="NAME", help=f"wrong rule to detect: {', '.join(Control)}")
    add("--other-libraries", type=int, metavar="N", help="number of texts to decode as in other libraries")
    add_pair_options(parser)


def run(options: argparse.Namespace) -> int:
    """Return 1 if a text or distribution differs, as it should with ``--control``."""
    control = choice({"--control": options.control}, "--control", Control, None)
    prompts, draws, others = options.audit, options.distribution, options.other_libraries
    if prompts is None and draws is None and others is None:
        prompts, draws = (None if control else PROMPTS), DRAWS
    if control and draws is None:
        raise UserError("--control needs the distribution test; add --distribution N.")
    for flag, number in (("--audit", prompts), ("--other-libraries", others)):
        if number is not None and number < 1:
            raise UserError(f"{flag} must be at least 1, got {number}.")
    if draws is not None:
        integer({"--distribution": draws}, "--distribution", DRAWS, 1, MAX_DRAWS)
    check_pair(options)
    pair = loaded_pair(options)
    differs = False
    if prompts is not None:
        for temperature in TEMPERATURES:
            differs |= _audit(pair, prompts, temperature)
    if others is not None:
        differs |= _as_others(pair, others)
    if draws is not None:
        differs |= _distribution(pair, draws, control)
    return int(differs)


def _audit(pair: Any, prompts: int, temperature: float) -> bool:
    from specdemo.proof.audit import audit, audit_sentence

    config = audit_config(temperature)
    print(f"Token by token, {config.rule} rule, temperature {temperature:g}")
    rows = []
    for row in audit(pair, builtin_prompts(prompts), config):
        rows.append(row)
        verdict = "identical" if row.divergence is None else f"differs from token {row.divergence + 1} on"
        print(f"  {row.id:<14}{row.tokens:>4} tokens  {verdict}")
    print(audit_sentence(rows))
    return not all(row.identical for row in rows)


def _as_others(pair: Any, prompts: int) -> bool:
    from specdemo.proof.other_libraries import compare_as_others, others_sentence

    print("Decoded as in other libraries, greedy rule")
    rows = []
    for row in compare_as_others(pair, builtin_prompts(prompts), audit_config(0.0)):
        rows.append(row)
        verdict = f"identical, smallest gap {row.gap:.2g}"
        if row.divergence is not None:
            own, other = (repr(candidate.text) for candidate in row.candidates)
            verdict = f"token {row.divergence + 1} is {own} alone, {other} with drafts; gap {row.gap:.2g}"
        print(f"  {row.id:<14}{row.tokens:>4} tokens  {verdict}")
    print(others_sentence(rows))
    return not all(row.identical for row in rows)


def _distribution(pair: Any, draws: int, control: Any) -> bool:
    from specdemo.pairs.builtin_target import printing
    from specdemo.proof.distribution import DistributionResult, distribution_sentence, distribution_test

    report = printing()
    state = None
    for state in distribution_test(pair, parse_config(EXAMPLE), draws, control):
        report("Drawing continuations", state.drawn / state.draws)
    assert isinstance(state, DistributionResult), "the last state, since nothing stopped the test"
    print(f"{'speculative':>11}{'alone':>8}  continuation of {EXAMPLE['prompt']!r}")
    for found in state.continuations[:SHOWN]:
        print(f"{found.speculative:>11}{found.baseline:>8}  {pair.pieces.text(found.ids)!r}")
    print(f"α {state.alpha:.0%}, {state.seconds:.1f} s, {state.passes_saved:,} passes reused")
    print(distribution_sentence(state))
    return state.rejected
