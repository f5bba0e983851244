"""``specdemo lab``: measure what sets the speedup, one condition at a time."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from specdemo.cli.options import (
    SAMPLED_RULE,
    add_cluster_options,
    add_pair_options,
    add_run_options,
    check_cluster,
    check_models,
    loaded_pair,
    team,
)
from specdemo.lab.conditions import CONDITIONS
from specdemo.lab.points import EXPERIMENTS, SWEEPS, TEMPERATURE, points_csv, points_json
from specdemo.lab.request import RUN_SETTINGS
from specdemo.records.limits import UserError, parse_config
from specdemo.records.output import require_writable, write_text

CHOSEN = (*RUN_SETTINGS, "drafter")
"""Fields of ``RunConfig`` that can be asked for; what is not asked is the experiment's to choose."""


def add_to(commands: Any) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("lab", help="measure what sets the speedup, one condition at a time")
    parser.set_defaults(command=run)
    measured = (*EXPERIMENTS, *CONDITIONS)
    parser.add_argument("experiment", choices=measured, metavar="SWEEP", help=", ".join(measured))
    parser.add_argument("--out", type=Path, metavar="FILE.json|FILE.csv", help="all that was measured")
    add_run_options(parser, CHOSEN, default=None)
    parser.add_argument("--rule", **SAMPLED_RULE)
    parser.add_argument("--limit", type=int, metavar="N", help="write N of the shipped prompts per point")
    add_pair_options(parser)
    add_cluster_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print each point as it is measured; returns 0. What was measured is written even if it ends early."""
    if options.out and options.out.suffix not in (".json", ".csv"):
        raise UserError("--out takes a file that ends in .json or .csv.")
    if options.cluster and options.experiment not in SWEEPS:
        raise UserError(f"--cluster spreads sweeps, not {options.experiment}; leave it out.")
    from specdemo.bench.prompts import shipped_prompts

    chosen = {name: getattr(options, name) for name in (*CHOSEN, "rule")}
    request = {name: value for name, value in chosen.items() if value is not None}
    # The sweep over temperatures takes a rule without a temperature; what is no sweep takes no rule.
    ruled = options.experiment in SWEEPS and options.experiment != TEMPERATURE
    checked = {name: value for name, value in request.items() if ruled or name != "rule"}
    parse_config({"prompt": "-", **checked})
    prompts = None if options.limit is None else shipped_prompts(options.limit)
    if options.out:
        require_writable(options.out)
    check_models(options)
    check_cluster(options)
    from specdemo.lab.experiments import experiment

    if options.cluster:
        _spread(options, request, prompts)
    else:
        planned = experiment(options.experiment, loaded_pair(options), request, prompts)
        _tell(planned.points, planned.about, options.out)
    return 0


def _spread(options: argparse.Namespace, request: Mapping[str, Any], prompts: Sequence[Any] | None) -> None:
    """Measure a sweep's points on several replicas."""
    from specdemo.lab.experiments import planned_sweep
    from specdemo.lab.sweeps import measured_on

    with team(options) as replicas:
        plan, about = replicas.one(partial(planned_sweep, options.experiment, prompts, request))
        points = replicas.all([partial(measured_on, setting) for setting in plan.settings])
        _tell(points, {**about, **replicas.facts}, options.out)


def _tell(points: Iterable[Any], about: Mapping[str, Any], out: Path | None) -> None:
    """Print points as they come; all that came are written."""
    measured = []
    try:
        for point in points:
            print(point, flush=True)
            measured.append(point)
    finally:
        if out:
            write_text(out, points_csv(measured) if out.suffix == ".csv" else points_json(measured, about))
