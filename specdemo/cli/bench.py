"""``specdemo bench``: measure speculation against the baseline, or against other libraries."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specdemo.cli.options import (
    SAMPLED_RULE,
    add_cluster_options,
    add_pair_options,
    add_run_options,
    draft_length,
    listed,
    loaded_pair,
    team,
)
from specdemo.records.limits import UserError
from specdemo.records.trace import RunConfig


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("bench", help="measure speculation against the baseline over a prompt set")
    parser.set_defaults(command=run)
    parser.add_argument(
        "--prompts", type=Path, required=True, metavar="FILE.jsonl", help="prompts, one a line"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="all that was measured")
    parser.add_argument("--drafters", default=RunConfig.drafter, metavar="A,B", help="default: %(default)s")
    parser.add_argument(
        "--k", default=str(RunConfig.k), metavar="N,N,auto", help="draft lengths (default: %(default)s)"
    )
    parser.add_argument("--temperature", default="0", metavar="T,T", help="default: %(default)s")
    parser.add_argument("--rule", **SAMPLED_RULE)
    add_run_options(parser, ["max_new_tokens", "seed"])
    parser.add_argument("--limit", type=int, metavar="N", help="use only N prompts, spread over the set")
    parser.add_argument("--repeats", type=int, default=1, metavar="R", help="runs per row; medians are kept")
    parser.add_argument("--peers", action="store_true", help="compare with other libraries, greedily, on CPU")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="target for llama.cpp (default: embedded)")
    add_pair_options(parser)
    add_cluster_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, write and print the table; returns 0."""
    if options.peers:
        return _with_peers(options)
    from specdemo.bench.bench import Bench
    from specdemo.bench.measuring import Settings
    from specdemo.bench.prompts import read_prompts

    settings = Settings(
        drafters=listed(options.drafters, str, "--drafters"),
        ks=listed(options.k, draft_length, "--k"),
        temperatures=listed(options.temperature, float, "--temperature"),
        rule=options.rule,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        seed=options.seed,
    )
    prompts = read_prompts(options.prompts, options.limit)
    bench = Bench(prompts, settings, options.out)
    if options.cluster:
        with team(options) as replicas:
            bench.fill(replicas.all(bench.works()), replicas.facts)
    else:
        bench.run(loaded_pair(options))
    print(bench.table())
    return 0


def _with_peers(options: argparse.Namespace) -> int:
    from specdemo.bench.peer_bench import PeerBench, PeerSettings
    from specdemo.bench.peers import available_peers, peer_models
    from specdemo.bench.prompts import read_prompts

    ks = listed(options.k, draft_length, "--k")
    if len(ks) > 1 or options.temperature != "0" or options.rule or options.repeats > 1 or options.cluster:
        raise UserError("With --peers everything runs here, greedily, once, at one --k; leave the rest out.")
    settings = PeerSettings(
        drafters=listed(options.drafters, str, "--drafters"),
        k=ks[0],
        max_new_tokens=options.max_new_tokens,
    )
    bench = PeerBench(read_prompts(options.prompts, options.limit), settings, options.out)
    pair = loaded_pair(options)
    with peer_models(pair, options.target, options.draft, options.gguf) as models:
        bench.run(pair, available_peers(models, lambda text: print(text, file=sys.stderr)))
    print(bench.table())
    return 0
