"""``specdemo watch``: measure the speculative decoding of a running server over a prompt set."""

import argparse
from typing import Any

from specdemo.cli.options import add_bench_options, bench_settings
from specdemo.records.drafter_kinds import SERVER
from specdemo.records.limits import UserError, show
from specdemo.records.output import require_regular, require_writable
from specdemo.records.trace import AUTO


def add_to(commands: Any) -> None:
    parser = commands.add_parser("watch", help="measure a running model server")
    parser.set_defaults(command=run)
    parser.add_argument("url", metavar="URL", help="address of the model server")
    parser.add_argument(
        "--alone", metavar="URL", help="address of a baseline server: the same model without drafts"
    )
    add_bench_options(parser)


def run(options: argparse.Namespace) -> int:
    from specdemo.bench.prompts import read_prompts
    from specdemo.watch.servers import Server

    alone = None if options.alone is None else _address("--alone", options.alone)
    server = Server("server", _address("URL", options.url), alone)
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


def _address(argument: str, url: str) -> str:
    from specdemo.watch.servers import short_url

    if (short := short_url(url)) is None:
        raise UserError(f"{argument} must be an address such as http://127.0.0.1:8080, got {show(url)}.")
    return short
