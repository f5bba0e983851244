"""The command line: ``generate``, ``fetch`` and ``bench``. Parses, prints, and exits; nothing else."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from specdemo.limits import DRAFTERS, UserError, parse_config
from specdemo.trace import Mode, Rule, RunConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (2 for what the user can put right)."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except UserError as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nspecdemo: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdemo", description="Speculative decoding you can watch.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    generate = commands.add_parser("generate", help="decode one prompt in the terminal")
    generate.set_defaults(command=_generate)
    generate.add_argument("prompt", metavar="PROMPT")
    generate.add_argument("--raw", action="store_true", help="continue the prompt instead of answering it")
    _add_pair_options(generate)
    generate.add_argument("--k", type=int, default=RunConfig.k, metavar="N", help="draft length")
    generate.add_argument("--temperature", type=float, default=0.0, metavar="T")
    generate.add_argument("--top-p", type=float, default=1.0, metavar="P")
    generate.add_argument("--top-k", type=int, default=0, metavar="K", help="0 keeps every token")
    generate.add_argument("--rule", choices=[str(rule) for rule in Rule])
    generate.add_argument("--drafter", default=DRAFTERS[0], metavar="NAME")
    generate.add_argument("--seed", type=int, default=0, metavar="S")
    generate.add_argument("--max-new-tokens", type=int, default=RunConfig.max_new_tokens, metavar="N")
    generate.add_argument("--baseline", action="store_true", help="also run the target alone and compare")
    generate.add_argument("--json", metavar="FILE", help="write the whole run as JSON; - for standard output")

    fetch = commands.add_parser("fetch", help="prepare the embedded pair")
    fetch.set_defaults(command=_fetch)

    bench = commands.add_parser("bench", help="measure speculation against the baseline over a prompt set")
    bench.set_defaults(command=_bench)
    bench.add_argument("--prompts", type=Path, required=True, metavar="FILE.jsonl")
    bench.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    _add_pair_options(bench)
    bench.add_argument("--drafters", default=DRAFTERS[0], metavar="A,B")
    bench.add_argument("--k", default=str(RunConfig.k), metavar="N,N")
    bench.add_argument("--temperature", default="0", metavar="T,T")
    bench.add_argument("--rule", choices=[str(Rule.REJECTION), str(Rule.SHARED_NOISE)], help="for T > 0")
    bench.add_argument("--max-new-tokens", type=int, default=RunConfig.max_new_tokens, metavar="N")
    bench.add_argument("--limit", type=int, metavar="N", help="use only N prompts, spread over the set")
    bench.add_argument("--repeats", type=int, default=1, metavar="R", help="runs per row; medians are kept")
    bench.add_argument("--seed", type=int, default=0, metavar="S")
    return parser


def _add_pair_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="embedded", metavar="ID|DIR")
    parser.add_argument("--draft", default="embedded", metavar="ID|DIR")
    parser.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1, … (default: CUDA if there is one)")
    parser.add_argument("--precision", default="bf16", metavar="P", help="bf16 (default) or fp32")


def _generate(options: argparse.Namespace) -> int:
    config = parse_config(
        {
            "prompt": options.prompt,
            "mode": Mode.RAW if options.raw else Mode.CHAT,
            "k": options.k,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "top_k": options.top_k,
            "rule": options.rule,
            "drafter": options.drafter,
            "seed": options.seed,
            "max_new_tokens": options.max_new_tokens,
            "baseline": options.baseline,
        }
    )
    from specdemo.live import LiveRun
    from specdemo.terminal import TerminalView

    live = LiveRun(_load(options), config)
    view = TerminalView(sys.stderr if options.json == "-" else sys.stdout)
    for event in live.events():
        view.show(event)
    if options.json == "-":
        print(live.run.to_json())
    elif options.json:
        _write(Path(options.json), live.run.to_json() + "\n")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from specdemo.fetch import embedded_target, printing

    print(embedded_target(printing()))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from specdemo.bench import Bench, Settings, read_prompts

    settings = Settings(
        drafters=_list(options.drafters, str, "--drafters"),
        ks=_list(options.k, int, "--k"),
        temperatures=_list(options.temperature, float, "--temperature"),
        rule=options.rule,
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        seed=options.seed,
    )
    prompts = read_prompts(options.prompts, options.limit)
    bench = Bench(prompts, settings, options.out)
    bench.run(_load(options))
    print(bench.table())
    return 0


def _load(options: argparse.Namespace):
    from specdemo.fetch import printing
    from specdemo.models import load_pair

    return load_pair(options.target, options.draft, options.device, options.precision, printing())


def _list(text: str, kind: type, flag: str) -> list:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"{flag} takes values separated by commas, not {text!r}.") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}; choose another place.") from error
