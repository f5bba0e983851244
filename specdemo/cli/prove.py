"""``specdemo prove``: check that what speculation writes is the target's."""

import argparse
from typing import Any

from specdemo.cli.options import add_pair_options, check_models, loaded_pair
from specdemo.proof.bounds import DRAWS, control_named, require_draws, require_prompts
from specdemo.records.limits import UserError, parse_config

PROMPTS = 6
TEMPERATURES = (0.0, 0.8)
SHOWN = 8


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("prove", help="check that what speculation writes is the target's")
    parser.set_defaults(command=run)
    parser.add_argument("--audit", type=int, metavar="N", help="compare N texts token by token")
    parser.add_argument("--distribution", type=int, metavar="N", help="compare N short draws each way")
    parser.add_argument("--control", metavar="NAME", help="draw wrongly: accept-everything or no-residual")
    add_pair_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print what was compared; returns 1 where something differs, as it should under a control, else 0."""
    control = control_named(options.control)
    prompts, draws = options.audit, options.distribution
    if prompts is None and draws is None:
        prompts, draws = (None if control else PROMPTS), DRAWS
    if control and draws is None:
        raise UserError("A control is for the distribution test; add --distribution N.")
    if prompts is not None:
        require_prompts(prompts)
    if draws is not None:
        require_draws(draws)
    check_models(options)
    pair = loaded_pair(options)
    differs = False
    if prompts is not None:
        for temperature in TEMPERATURES:
            differs |= _audit(pair, prompts, temperature)
    if draws is not None:
        differs |= _distribution(pair, draws, control)
    return int(differs)


def _audit(pair: Any, prompts: int, temperature: float) -> bool:
    """Print a line per text and a summary; whether a text differs."""
    from specdemo.proof.audit import audit, audit_config, audit_sentence, listed_prompts, summarise

    config = audit_config(temperature)
    print(f"Token by token, {config.rule} rule, temperature {temperature:g}")
    rows = []
    for row in audit(pair, listed_prompts(prompts), config):
        rows.append(row)
        verdict = "identical" if row.divergence is None else f"differs from token {row.divergence + 1} on"
        print(f"  {row.id:<14}{row.tokens:>4} tokens  {verdict}")
    summary = summarise(rows)
    print(audit_sentence(summary))
    return bool(summary.divergences)


def _distribution(pair: Any, draws: int, control: Any) -> bool:
    """Print the most frequent continuations and the verdict; whether the samples differ."""
    from specdemo.pairs.embedded import printing
    from specdemo.proof.distribution import (
        EXAMPLE,
        DistributionResult,
        distribution_sentence,
        distribution_test,
    )

    report = printing()
    state = None
    for state in distribution_test(pair, parse_config(EXAMPLE), draws, control):
        report("Drawing continuations", state.drawn / state.draws)
    assert isinstance(state, DistributionResult), "the last, since nobody stopped it"
    print(f"{'speculative':>11}{'alone':>8}  continuation of {EXAMPLE['prompt']!r}")
    for found in state.continuations[:SHOWN]:
        print(f"{found.speculative:>11}{found.baseline:>8}  {pair.pieces.text(found.ids)!r}")
    print(f"α {state.alpha:.0%}, {state.seconds:.1f} s, {state.passes_saved:,} passes looked up")
    print(distribution_sentence(state))
    return state.rejected
