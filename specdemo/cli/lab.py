"""``specdemo lab``: measure how each condition, such as the draft length, changes the speedup."""

import argparse
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from specdemo.bench.prompts import builtin_prompts
from specdemo.cli.options import (
    SAMPLED_RULE,
    add_cluster_options,
    add_pair_options,
    add_run_options,
    check_cluster,
    check_pair,
    loaded_pair,
    replicas_of,
)
from specdemo.lab.conditions import CONDITIONS
from specdemo.lab.lab_request import RUN_SETTINGS
from specdemo.lab.points import EXPERIMENTS, SWEEPS, TEMPERATURE, points_csv, points_json
from specdemo.records.limits import UserError, parse_config
from specdemo.records.output import require_writable, write_text

CHOSEN = (*RUN_SETTINGS, "drafter")  # the experiment sets all other fields of ``RunConfig``


def add_to(commands: Any) -> None:
    parser = commands.add_parser("lab", help="measure what determines the speedup")
    parser.set_defaults(command=run)
    measured = (*EXPERIMENTS, *CONDITIONS)
    parser.add_argument("experiment", choices=measured, metavar="EXPERIMENT", help=", ".join(measured))
    parser.add_argument("--out", type=Path, metavar="FILE.json|FILE.csv", help="file for the results")
    add_run_options(parser, CHOSEN, default=None)
    parser.add_argument("--rule", **SAMPLED_RULE)
    parser.add_argument("--limit", type=int, metavar="N", help="number of built-in prompts to use")
    add_pair_options(parser)
    add_cluster_options(parser)


def run(options: argparse.Namespace) -> int:
    if options.out and options.out.suffix not in (".json", ".csv"):
        raise UserError(f"--out must be a file that ends in .json or .csv, got {options.out}.")
    if options.cluster and options.experiment not in SWEEPS:
        raise UserError(
            f"--cluster works only with {', '.join(SWEEPS)}, got {options.experiment}; leave out --cluster."
        )
    chosen = {name: getattr(options, name) for name in (*CHOSEN, "rule")}
    request = {name: value for name, value in chosen.items() if value is not None}
    # ``parse_config`` checks the rule together with the temperature. Leave the rule out if the sweep sets its
    # own temperatures, or if the experiment is not a sweep and takes no rule.
    ruled = options.experiment in SWEEPS and options.experiment != TEMPERATURE
    checked = {name: value for name, value in request.items() if ruled or name != "rule"}
    parse_config({"prompt": "-", **checked})
    prompts = None if options.limit is None else builtin_prompts(options.limit)
    if options.out:
        require_writable(options.out)
    check_pair(options)
    check_cluster(options)
    from specdemo.lab.experiments import measure_experiment, measure_setting, plan_experiment

    if options.cluster:
        planned = partial(plan_experiment, options.experiment, request=request, prompts=prompts)
        with replicas_of(options) as group:
            experiment = next(group.all([planned]))
            points = group.all([partial(measure_setting, setting=setting) for setting in experiment.settings])
            _print_points(points, {**experiment.about, **group.facts}, options.out)
    else:
        pair = loaded_pair(options)
        experiment = plan_experiment(options.experiment, pair, request, prompts)
        _print_points(measure_experiment(pair, experiment), experiment.about, options.out)
    return 0


def _print_points(points: Iterable[Any], about: Mapping[str, Any], out: Path | None) -> None:
    measured = []
    try:
        for point in points:
            print(point, flush=True)
            measured.append(point)
    finally:  # the command may end early
        if out and measured:
            write_text(out, points_csv(measured) if out.suffix == ".csv" else points_json(measured, about))
