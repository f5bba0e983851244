"""``specdemo train``: train a draft model, a feature draft or an n-gram table for a target."""

import argparse
from pathlib import Path
from typing import Any

from specdemo.cli.options import DEVICE, TARGET, add_run_options, check_models
from specdemo.records.limits import UserError, parse_config
from specdemo.records.output import require_writable_folder

DEFAULT_MINUTES = 140.0  # enough for the built-in target on two CPU cores
DEFAULT_LAYERS, DEFAULT_HEAD = 2, 12_288


def add_to(commands: Any) -> None:
    parser = commands.add_parser("train", help="train a draft model, feature draft or n-gram table")
    parser.set_defaults(command=run)
    add, kinds = parser.add_argument, ["model", "feature", "n-gram"]
    add("--target", **TARGET)
    add(
        "--kind",
        choices=kinds,
        default="model",
        help="draft model, feature draft or n-gram table (default: %(default)s)",
    )
    text = "folder of text from specdemo write (default: write new text)"
    add("--text", type=Path, metavar="DIR", help=text)
    add("--start", type=Path, metavar="DIR", help="folder of an earlier draft to train further")
    add("--device", **DEVICE)
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--steps", type=int, metavar="N", help="number of optimizer steps, for a reproducible result"
    )
    minutes = f"time for writing, training and evaluation (default: {DEFAULT_MINUTES:g})"
    budget.add_argument("--minutes", type=float, metavar="M", help=minutes)
    add(
        "--out",
        type=Path,
        default=Path("draft"),
        metavar="DIR",
        help="folder for the new draft (default: draft/)",
    )
    add("--resume", action="store_true", help="continue an interrupted training run")
    add("--layers", type=int, metavar="N", help=f"layers of a draft model (default: {DEFAULT_LAYERS})")
    add("--head", type=int, metavar="N", help=f"size of the draft's vocabulary (default: {DEFAULT_HEAD})")
    add_run_options(parser, ["seed"])


def run(options: argparse.Namespace) -> int:
    minutes = DEFAULT_MINUTES if options.steps is None and options.minutes is None else options.minutes
    sizes = ("--layers", options.layers), ("--head", options.head)
    for flag, value in (("--steps", options.steps), ("--minutes", minutes), *sizes):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{flag} must be more than 0 and finite, got {value:g}.")
    for flag, value in sizes if options.start else ():
        if value is not None:
            raise UserError(f"--start keeps the draft's layers and vocabulary; leave out {flag}.")
    if options.start and options.kind == "n-gram":
        raise UserError("--start does not support n-gram tables; leave out --start.")
    parse_config({"prompt": "-", "seed": options.seed})
    require_writable_folder(options.out)
    check_models(options)
    from specdemo.training.budget import TrainingPlan
    from specdemo.training.stages import train

    plan = TrainingPlan(
        target=options.target,
        kind=options.kind,
        steps=options.steps,
        minutes=minutes,
        layers=options.layers or DEFAULT_LAYERS,
        head=options.head or DEFAULT_HEAD,
        seed=options.seed,
        text=str(options.text) if options.text else None,
        start=str(options.start) if options.start else None,
    )
    facts = train(plan, options.out, options.device, options.resume)
    figures = f"α {facts['alpha']:.0%}, τ {facts['tau']:.2f}, {facts['speedup']:.2f}× at k = 4"
    print(f"{figures}; saved to {options.out}")
    return 0
