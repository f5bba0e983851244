"""The options that several commands share: for a run, for a pair of models, and for a cluster."""

import argparse
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from specdemo.asset_paths import BUILT_IN
from specdemo.bench.prompts import Settings
from specdemo.records.limits import (
    AUTO_PRECISION,
    DRAFTERS,
    MAX_K,
    MAX_NEW_TOKENS,
    MAX_TEMPERATURE,
    MAX_TOP_K,
    PAIRS,
    SAMPLED_RULES,
    UserError,
    require_precision,
    show,
    unknown_pair,
)
from specdemo.records.trace import AUTO, MAX_REPEATS, Mode, Rule, RunConfig

TARGET: dict[str, Any] = {
    "default": BUILT_IN,
    "metavar": "ID|DIR",
    "help": "target: hub id or folder (default: %(default)s)",
}
DEVICE: dict[str, Any] = {"metavar": "D", "help": "device: cpu, cuda, cuda:1, … (default: CUDA if available)"}
THREADS: dict[str, Any] = {
    "type": int,
    "metavar": "N",
    "help": "CPU threads (default: OMP_NUM_THREADS, or one per core)",
}
FEATURE_DRAFT = "folder of a feature draft, a small head that reads the target's hidden states"
N_GRAM = "folder of an n-gram table from specdemo train"
RECALIBRATE = "measure pass costs again if the first measurement was inaccurate"
SAMPLED_RULE = {
    "choices": SAMPLED_RULES,
    "help": "verification rule at temperatures above 0 (default: rejection)",
}


def draft_length(text: str) -> int | str:
    return AUTO if text == AUTO else int(text)


def _unchecked_draft_length(text: str) -> int | str:
    with suppress(ValueError):  # ``parse_config`` reports invalid text
        return draft_length(text)
    return text


def require_utf8(name: str, text: str) -> None:
    if any("\udc80" <= char <= "\udcff" for char in text):  # Python's form of bytes that are not UTF-8
        raise UserError(f"The {name} is not valid UTF-8; set the terminal or the shell script to UTF-8.")


RUN_FIELDS = tuple(RunConfig.__dataclass_fields__)
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "prompt": {"metavar": "PROMPT", "help": "prompt to answer"},
    "mode": {"help": "continue the prompt instead of answering it"},
    "k": {"type": _unchecked_draft_length, "metavar": "N|auto", "help": f"draft length, 1 to {MAX_K}"},
    "temperature": {
        "metavar": "T",
        "help": f"sampling temperature, 0 (greedy) to {MAX_TEMPERATURE:g}",
    },
    "top_k": {
        "metavar": "K",
        "help": f"sample from the K most likely tokens, up to {MAX_TOP_K:,}; 0 is all",
    },
    "top_p": {"metavar": "P", "help": "sample from the most likely tokens with total probability P"},
    "rule": {"default": None, "help": "verification rule (default: greedy at temperature 0, else rejection)"},
    "drafter": {"metavar": "NAME", "help": f"drafter: {', '.join(DRAFTERS)}"},
    "script": {"metavar": "TEXT", "help": "text that the scripted drafter proposes"},
    "seed": {"metavar": "S", "help": "random seed"},
    "max_new_tokens": {"metavar": "N", "help": f"maximum new tokens, up to {MAX_NEW_TOKENS:,}"},
    "baseline": {"help": "also run the target alone"},
    "draft_alone": {"help": "also run the draft model alone"},
    "repeats": {"metavar": "N", "help": f"runs, of which the median is shown, up to {MAX_REPEATS}"},
}
"""Field of ``RunConfig`` -> arguments of ``add_argument`` that its type and default do not determine."""
_KINDS: dict[Any, dict[str, Any]] = {
    bool: {"action": "store_true", "default": False},
    Mode: {"flag": f"--{Mode.RAW}", "action": "store_const", "const": Mode.RAW},
    Rule: {"choices": [str(rule) for rule in Rule]},
}


def add_run_options(
    parser: argparse.ArgumentParser, names: Iterable[str] = RUN_FIELDS, **instead: Any
) -> None:
    """Add an option for each named field of ``RunConfig``; ``instead`` overrides arguments of every field."""
    names, kinds = set(names), get_type_hints(RunConfig)
    for field in fields(RunConfig):
        if field.name not in names:
            continue
        arguments: dict[str, Any] = {"flag": field.name}
        if field.default is not MISSING:
            flag, kind = "--" + field.name.replace("_", "-"), kinds[field.name]
            arguments = {"flag": flag, "dest": field.name, "default": field.default}
            arguments |= _KINDS.get(kind, {"type": kind})
        arguments |= _ARGUMENTS[field.name] | instead
        if arguments.get("default") not in (None, "") and "action" not in arguments:
            arguments["help"] += " (default: %(default)s)"
        parser.add_argument(arguments.pop("flag"), **arguments)


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    draft = "draft model: hub id, folder or none (default: %(default)s)"
    precision = "precision: auto (default), bf16, fp32, or int8 on a CPU"
    add("--pair", metavar="NAME", help=f"pair of models, instead of --target and --draft: {', '.join(PAIRS)}")
    add("--target", **TARGET)
    add("--draft", default=BUILT_IN, metavar="ID|DIR|none", help=draft)
    add("--feature-draft", metavar="DIR", help=FEATURE_DRAFT)
    add("--n-gram", metavar="DIR", help=N_GRAM)
    add("--device", **DEVICE)
    add("--precision", default="auto", metavar="P", help=precision)
    add("--threads", **THREADS)
    add("--recalibrate", action="store_true", help=RECALIBRATE)


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")
_MODEL = re.compile(r"[\w.-]+(/[\w.-]+)?")  # a possible hub id


def check_models(options: argparse.Namespace) -> None:
    """Check the options for models, device, precision and threads that the command has, without torch."""
    asked = vars(options)
    if asked.get("pair") and options.pair not in PAIRS:
        raise unknown_pair(options.pair, PAIRS)
    require_precision(asked.get("precision", AUTO_PRECISION))
    if asked.get("device") and not _DEVICE.fullmatch(options.device):
        raise UserError(
            f"Unknown device {show(options.device)}; choose cpu, cuda, or one GPU such as cuda:1."
        )
    threads, processors = asked.get("threads"), os.cpu_count() or 1
    if threads is not None and not 1 <= threads <= processors:
        raise UserError(
            f"--threads must be between 1 and {processors} (the number of processors), got {threads}."
        )
    if threads is not None and asked.get("cluster"):
        raise UserError("--threads does not apply to replicas on a cluster; leave out --threads.")
    for name in ("target", "draft"):
        model = asked.get(name)
        if model is None or Path(model).is_dir():
            continue
        if Path(model).is_file() or not _MODEL.fullmatch(model):
            raise UserError(
                f"--{name} must be a hub id such as owner/name, or an existing folder, got {model}."
            )
    for name in ("feature_draft", "n_gram", "text", "start"):
        folder = asked.get(name)
        if folder is not None and not Path(folder).is_dir():
            raise UserError(f"--{name.replace('_', '-')} must be an existing folder, got {folder}.")


def check_pair(options: argparse.Namespace, drafters: Iterable[str] = ()) -> None:
    """Check the options of :func:`add_pair_options`, and that the pair supports all of ``drafters``."""
    check_models(options)
    _sources(options).check(drafters)


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--prompts",
        type=Path,
        required=True,
        metavar="FILE.jsonl",
        help="prompts, as one JSON object per line",
    )
    add("--out", type=Path, required=True, metavar="FILE.json", help="file for the results")
    add(
        "--temperature",
        default="0",
        metavar="T,T",
        help="sampling temperatures to measure (default: %(default)s)",
    )
    add(
        "--limit", type=int, metavar="N", help="number of prompts, spaced evenly over the file (default: all)"
    )
    add(
        "--repeats",
        type=int,
        default=1,
        metavar="R",
        help="runs per prompt and setting, reported as their median (default: %(default)s)",
    )
    add_run_options(parser, ["max_new_tokens", "seed"])


def bench_settings(options: argparse.Namespace, drafters: list[str], ks: list[int | str]) -> Settings:
    """Return the settings for a table of ``bench``, which the caller has to check."""
    return Settings(
        drafters=drafters,
        ks=ks,
        temperatures=listed(options.temperature, float, "--temperature"),
        rule=getattr(options, "rule", None),
        max_new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        seed=options.seed,
    )


def loaded_pair(options: argparse.Namespace) -> Any:
    """Load the pair and measure its pass costs; print progress to standard error."""
    from specdemo.models.threads import use_threads
    from specdemo.pairs.builtin_target import printing
    from specdemo.pairs.load import load_sources

    use_threads(options.threads)
    return load_sources(_sources(options), progress=printing(), recalibrate=options.recalibrate)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--cluster",
        metavar="ADDRESS",
        help="Ray cluster: auto, or the address of the head node, such as host:6379",
    )
    add(
        "--replicas",
        type=int,
        default=2,
        metavar="N",
        help="number of model replicas on the cluster (default: %(default)s)",
    )


def check_cluster(options: argparse.Namespace) -> None:
    from specdemo.cluster.plan import parse_replicas, require_ray

    if options.cluster:
        parse_replicas(str(options.replicas), BUILT_IN)
        require_ray()


def replicas_of(options: argparse.Namespace) -> Any:
    """Return a context manager that runs the replicas selected by checked options."""
    from specdemo.cluster.plan import Plan, parse_replicas
    from specdemo.cluster.replica_group import replica_group

    name = BUILT_IN
    counts = parse_replicas(str(options.replicas), name)
    plan = Plan(options.cluster, counts, {name: _sources(options)}, recalibrate=options.recalibrate)
    return replica_group(plan)


def _sources(options: argparse.Namespace) -> Any:
    from specdemo.pairs.presets import preset_named
    from specdemo.pairs.sources import Sources

    named = preset_named(options.pair).sources if options.pair else Sources(options.target, options.draft)
    return replace(
        named,
        feature_draft=options.feature_draft,
        n_gram=options.n_gram,
        device=options.device,
        precision=options.precision,
    )


def listed(text: str, kind: Callable[[str], Any], flag: str) -> list:
    """Parse comma-separated values of the option ``flag``; ``kind`` raises ``ValueError`` for a bad one."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        allowed = "numbers or auto" if kind is draft_length else "numbers"
        raise UserError(f"{flag} must be {allowed}, separated by commas, got {text!r}.") from error
