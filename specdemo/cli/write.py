"""``specdemo write``: have a target write text to train drafts on."""

import argparse
from pathlib import Path
from typing import Any

from specdemo.asset_paths import PROMPTS
from specdemo.cli.options import DEVICE, TARGET, add_run_options, check_models
from specdemo.records.limits import UserError, parse_config
from specdemo.records.output import require_writable_folder


def add_to(commands: Any) -> None:
    parser = commands.add_parser("write", help="generate training text with a target")
    parser.set_defaults(command=run)
    add = parser.add_argument
    add("--target", **TARGET)
    add("--device", **DEVICE)
    tokens = "minimum number of tokens in the folder (default: %(default)s)"
    add("--tokens", type=int, default=1_000_000, metavar="N", help=tokens)
    out = "new folder, or folder of earlier text (default: text/)"
    add("--out", type=Path, default=Path("text"), metavar="DIR", help=out)
    avoided = "prompts to avoid in the text (default: the built-in prompts)"
    add("--without", type=Path, nargs="+", default=[PROMPTS], metavar="FILE.jsonl", help=avoided)
    add_run_options(parser, ["seed"])


def run(options: argparse.Namespace) -> int:
    if options.tokens < 1:
        raise UserError(f"--tokens must be at least 1, got {options.tokens}.")
    from specdemo.bench.prompts import read_prompts

    parse_config({"prompt": "-", "seed": options.seed})
    forbidden = [item.prompt for path in options.without for item in read_prompts(path)]
    require_writable_folder(options.out)
    check_models(options)
    from specdemo.pairs.hardware import chosen_device
    from specdemo.training.corpus import write_corpus

    device = chosen_device(options.device)
    written = write_corpus(options.target, options.out, options.tokens, device, options.seed, forbidden)
    print(f"{written:,} tokens of the target's own text; saved to {options.out}")
    return 0
