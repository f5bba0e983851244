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
from specdemo.records.drafter_kinds import DRAFT_MODEL, RENAMED
from specdemo.records.limits import UserError
from specdemo.records.output import require_regular, require_writable
from specdemo.records.trace import RunConfig


def add_to(commands: Any) -> None:
    parser = commands.add_parser("bench", help="measure speedups over many prompts")
    parser.set_defaults(command=run)
    add_bench_options(parser)
    add = parser.add_argument
    add(
        "--drafters",
        default=RunConfig.drafter,
        metavar="A,B",
        help="drafters to measure (default: %(default)s)",
    )
    add(
        "--k",
        default=str(RunConfig.k),
        metavar="N,N,auto",
        help="draft lengths to measure (default: %(default)s)",
    )
    add("--rule", **SAMPLED_RULE)
    add("--peers", action="store_true", help="also measure other libraries, with greedy decoding on a CPU")
    add(
        "--overlap",
        action="store_true",
        help="measure the draft model's acceptance rate and the overlap of p and q, with --repeats seeds",
    )
    add(
        "--gguf",
        type=Path,
        metavar="FILE",
        help="GGUF file of the target for llama.cpp (default: the built-in target)",
    )
    add_pair_options(parser)
    add_cluster_options(parser)


def run(options: argparse.Namespace) -> int:
    ks = listed(options.k, draft_length, "--k")
    alone = (options.temperature, options.rule, options.repeats, options.cluster) == ("0", None, 1, None)
    if options.peers and not (alone and len(ks) == 1):
        raise UserError(
            "--peers compares greedy runs with one draft length, each run once on this machine; "
            "give --k one value, and leave out --temperature, --rule, --repeats and --cluster."
        )
    fixed = len(ks) == 1 and options.drafters == DRAFT_MODEL
    if options.overlap and (options.peers or options.cluster or not fixed):
        raise UserError(
            f"--overlap measures --drafters {DRAFT_MODEL} with one draft length on this machine; give --k "
            "one value, and leave out --drafters, --peers and --cluster."
        )
    if (options.peers or options.overlap) and options.out.exists():
        raise UserError(f"{options.out} exists already; choose a new file with --out.")
    if options.gguf and not options.gguf.is_file():
        raise UserError(f"--gguf must be an existing file, got {options.gguf}.")
    prompts = read_prompts(options.prompts, options.limit)
    named = str(options.drafters).split(",")
    drafters = list(dict.fromkeys(RENAMED.get(name, name) for name in named))
    settings = bench_settings(options, drafters, ks)
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
    if options.overlap:
        from specdemo.bench.overlap import measure_overlap

        print(measure_overlap(loaded_pair(options), prompts, settings, options.out))
        return 0
    from specdemo.bench.bench import Bench

    bench = Bench(prompts, settings, options.out)
    if options.cluster:
        from specdemo.bench.measuring import suited

        with replicas_of(options) as group:
            works = bench.works(next(group.all([partial(suited, prompts=prompts)])))
            bench.fill(group.all(works), group.facts)
    else:
        bench.run(loaded_pair(options))
    print(bench.table())
    return 0
