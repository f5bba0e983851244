"""``specdemo bench``: compare the speed of speculative decoding with the baseline or with other libraries."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from specdemo.bench.prompts import read_prompts
from specdemo.cli.options import (
    SAMPLED_RULE,
    add_bench_options,
    add_cluster_options,
    add_pair_options,
    bench_settings,
    check_cluster,
    check_pair,
    draft_length,
    listed,
    loaded_pair,
    replicas_of,
)
from specdemo.records.limits import UserError
from specdemo.records.output import require_regular, require_writable
from specdemo.records.trace import RunConfig


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("bench", help="measure speculation against the baseline over a prompt set")
    parser.set_defaults(command=run)
    add_bench_options(parser)
    add = parser.add_argument
    add("--drafters", default=RunConfig.drafter, metavar="A,B", help="default: %(default)s")
    add("--k", default=str(RunConfig.k), metavar="N,N,auto", help="draft lengths (default: %(default)s)")
    add("--rule", **SAMPLED_RULE)
    add("--peers", action="store_true", help="compare with other libraries, at temperature 0 on CPU")
    add("--gguf", type=Path, metavar="FILE", help="target as a GGUF file for llama.cpp (default: built-in)")
    add_pair_options(parser)
    add_cluster_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure all rows of the table, write them to a file and print the table; return 0."""
    ks = listed(options.k, draft_length, "--k")
    alone = (options.temperature, options.rule, options.repeats, options.cluster) == ("0", None, 1, None)
    if options.peers and not (alone and len(ks) == 1):
        raise UserError(
            "--peers measures greedily, once, on this machine, at one --k; "
            "leave out --temperature, --rule, --repeats and --cluster."
        )
    if options.peers and options.out.exists():
        raise UserError(f"{options.out} exists; choose another name for --out.")
    if options.gguf and not options.gguf.is_file():
        raise UserError(f"--gguf takes a file, and {options.gguf} is not one.")
    prompts = read_prompts(options.prompts, options.limit)
    settings = bench_settings(options, listed(options.drafters, str, "--drafters"), ks)
    settings.check(prompts)
    require_writable(options.out)
    require_regular(options.out)
    check_pair(options, settings.drafters)
    check_cluster(options)
    if options.peers:
        from specdemo.bench.peers import PeerBench, peer_contenders, peer_models

        peers, pair = PeerBench(prompts, settings, options.out), loaded_pair(options)
        with (
            peer_models(pair, options.target, options.draft, options.gguf) as models,
            peer_contenders(pair, models, lambda text: print(text, file=sys.stderr)) as contenders,
        ):
            peers.run(pair, contenders)
        print(peers.table())
        return 0
    from specdemo.bench.bench import Bench

    bench = Bench(prompts, settings, options.out)
    if options.cluster:
        from specdemo.bench.measuring import suited

        with replicas_of(options) as group:
            next(group.all([partial(suited, prompts=prompts)]))
            bench.fill(group.all(bench.works()), group.facts)
    else:
        bench.run(loaded_pair(options))
    print(bench.table())
    return 0
