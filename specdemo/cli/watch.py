"""``specdemo watch``: measure the speculative decoding of a running server over a prompt set."""

import argparse
from typing import Any

from specdemo.cli.options import add_bench_options, bench_settings
from specdemo.records.drafter_kinds import SERVER
from specdemo.records.limits import UserError
from specdemo.records.output import require_regular, require_writable
from specdemo.records.trace import AUTO


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("watch", help="measure a running server's speculation over a prompt set")
    parser.set_defaults(command=run)
    parser.add_argument("url", metavar="URL", help="address of llama.cpp's server, vLLM or Ray Serve LLM")
    parser.add_argument("--alone", metavar="URL", help="address of the same model without drafts")
    add_bench_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure all rows of the table, write them to a file and print the table; return 0."""
    from specdemo.bench.prompts import read_prompts
    from specdemo.watch.servers import parse_servers

    alone = f"server={options.alone}" if options.alone else ""
    servers = parse_servers(f"server={options.url}", alone)
    if len(servers) != 1:
        raise UserError("specdemo watch takes one URL; run it once for each server.")
    server = servers[0]
    prompts = read_prompts(options.prompts, options.limit)
    settings = bench_settings(options, [SERVER], [AUTO])
    settings.check(prompts)
    require_writable(options.out)
    require_regular(options.out)
    from specdemo.bench.bench import Bench
    from specdemo.watch.run import facts_of, watched_rows

    bench = Bench(prompts, settings, options.out)
    facts = facts_of(server)
    bench.fill((watched_rows(server, settings, *group) for group in bench.missing), facts)
    print(bench.table())
    return 0
