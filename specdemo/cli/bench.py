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
    check_cluster,
    check_models,
    check_runs,
    draft_length,
    listed,
    loaded_pair,
    team,
)
from specdemo.records.limits import UserError
from specdemo.records.output import require_writable
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
    from specdemo.bench.prompts import read_prompts

    ks = listed(options.k, draft_length, "--k")
    drafters = listed(options.drafters, str, "--drafters")
    alone = (options.temperature, options.rule, options.repeats, options.cluster) == ("0", None, 1, None)
    if options.peers and not (alone and len(ks) == 1):
        raise UserError("With --peers everything runs here, greedily, once, at one --k; leave the rest out.")
    if options.peers and options.out.exists():
        raise UserError(f"{options.out} exists; choose another name for --out.")
    if options.gguf and not options.gguf.is_file():
        raise UserError(f"--gguf takes a file, and {options.gguf} is none.")
    prompts = read_prompts(options.prompts, options.limit)
    check_runs(prompts, drafters, ks, options)
    require_writable(options.out)
    check_models(options)
    check_cluster(options)
    if options.peers:
        _with_peers(prompts, drafters, ks[0], options)
    else:
        _alone(prompts, drafters, ks, options)
    return 0


def _alone(prompts: list[Any], drafters: list[str], ks: list[int | str], options: argparse.Namespace) -> None:
    from specdemo.bench.bench import Bench
    from specdemo.bench.measuring import Settings

    settings = Settings(
        drafters=drafters,
        ks=ks,
        temperatures=listed(options.temperature, float, "--temperature"),
        rule=options.rule,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        seed=options.seed,
    )
    bench = Bench(prompts, settings, options.out)
    if options.cluster:
        with team(options) as replicas:
            bench.fill(replicas.all(bench.works()), replicas.facts)
    else:
        bench.run(loaded_pair(options))
    print(bench.table())


def _with_peers(prompts: list[Any], drafters: list[str], k: int | str, options: argparse.Namespace) -> None:
    from specdemo.bench.peer_bench import PeerBench, PeerSettings
    from specdemo.bench.peers import available_peers, peer_models

    settings = PeerSettings(drafters=drafters, k=k, max_new_tokens=options.max_new_tokens)
    bench = PeerBench(prompts, settings, options.out)
    pair = loaded_pair(options)
    with peer_models(pair, options.target, options.draft, options.gguf) as models:
        bench.run(pair, available_peers(models, lambda text: print(text, file=sys.stderr)))
    print(bench.table())
