"""What several commands share: the options of a run and of a pair, and what is read and written for them.

The options of a run are the fields of ``RunConfig``, by their names, types and defaults; only what they mean
is said here. Whether values are in bounds is ``limits.parse_config``'s to say.
"""

import argparse
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from specdemo.bench.prompts import Settings
from specdemo.records.limits import (
    AUTO_PRECISION,
    DRAFTERS,
    MAX_K,
    MAX_NEW_TOKENS,
    MAX_TEMPERATURE,
    MAX_TOP_K,
    PAIRS,
    UserError,
    require_precision,
    show,
    unknown_pair,
)
from specdemo.records.trace import AUTO, Mode, Rule, RunConfig
from specdemo.shipped import EMBEDDED

TARGET: dict[str, Any] = {
    "default": EMBEDDED,
    "metavar": "ID|DIR",
    "help": "hub id or folder of the target (default: %(default)s)",
}
DEVICE: dict[str, Any] = {"metavar": "D", "help": "cpu, cuda, cuda:1, … (default: CUDA if there is one)"}
SAMPLED_RULE = {"choices": [str(Rule.REJECTION), str(Rule.SHARED_NOISE)], "help": "for T > 0"}


def asked_length(text: str) -> int | str:
    """A draft length for ``parse_config``, which has a sentence for what is none."""
    with suppress(ValueError):
        return draft_length(text)
    return text


def draft_length(text: str) -> int | str:
    """A number, or the word ``auto``; raises ``ValueError``."""
    return AUTO if text == AUTO else int(text)


RUN_FIELDS = tuple(RunConfig.__dataclass_fields__)
_WORDS: dict[str, dict[str, Any]] = {
    "prompt": {"metavar": "PROMPT", "help": "what is answered"},
    "mode": {"help": "continue the prompt instead of answering it"},
    "k": {"type": asked_length, "metavar": "N|auto", "help": f"draft length, at most {MAX_K}"},
    "temperature": {"metavar": "T", "help": f"at most {MAX_TEMPERATURE:g}; 0 takes the likeliest token"},
    "top_k": {
        "metavar": "K",
        "help": f"draw from the K likeliest, at most {MAX_TOP_K:,}; 0 keeps every token",
    },
    "top_p": {"metavar": "P", "help": "draw from the likeliest tokens that have probability P together"},
    "rule": {"default": None, "help": "default: greedy at temperature 0, else rejection"},
    "drafter": {"metavar": "NAME", "help": ", ".join(DRAFTERS)},
    "script": {"metavar": "TEXT", "help": "what the scripted drafter proposes"},
    "seed": {"metavar": "S", "help": "of everything that is drawn"},
    "max_new_tokens": {"metavar": "N", "help": f"length of the text, at most {MAX_NEW_TOKENS:,}"},
    "baseline": {"help": "also run the target alone and compare"},
    "draft_alone": {"help": "also run the draft model alone and show where it departs"},
}
"""What a field means, and where argparse is to be told otherwise than the field says."""
_KINDS: dict[Any, dict[str, Any]] = {
    bool: {"action": "store_true", "default": False},
    Mode: {"flag": f"--{Mode.RAW}", "action": "store_const", "const": Mode.RAW},
    Rule: {"choices": [str(rule) for rule in Rule]},
}


def add_run_options(
    parser: argparse.ArgumentParser, names: Iterable[str] = RUN_FIELDS, **instead: Any
) -> None:
    """Add an option for each of the fields ``names`` of ``RunConfig``.

    Args:
        instead: What argparse is told of each, instead of what it is told otherwise.
    """
    names, kinds = set(names), get_type_hints(RunConfig)
    for field in fields(RunConfig):
        if field.name in names:
            words = _of_field(field, kinds[field.name]) | _WORDS[field.name] | instead
            if words.get("default") not in (None, "") and "action" not in words:
                words["help"] += " (default: %(default)s)"
            parser.add_argument(words.pop("flag"), **words)


def _of_field(field: Field, kind: Any) -> dict[str, Any]:
    """What argparse is told of a field by its name, type and default."""
    if field.default is MISSING:
        return {"flag": field.name}
    named = {"flag": "--" + field.name.replace("_", "-"), "dest": field.name, "default": field.default}
    return named | _KINDS.get(kind, {"type": kind})


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`loaded_pair` reads."""
    parser.add_argument("--pair", metavar="NAME", help="a preset, in the place of --target and --draft")
    parser.add_argument("--target", **TARGET)
    parser.add_argument(
        "--draft", default=EMBEDDED, metavar="ID|DIR|none", help="its draft model (default: %(default)s)"
    )
    parser.add_argument("--feature-draft", metavar="DIR", help="a feature draft trained for the target")
    parser.add_argument("--n-gram", metavar="DIR", help="a table of n-grams counted for the target")
    parser.add_argument("--device", **DEVICE)
    parser.add_argument(
        "--precision",
        default="auto",
        metavar="P",
        help="auto (default: the fastest that keeps the target's numbers), bf16, fp16, fp32, int8 or int4",
    )
    parser.add_argument(
        "--recalibrate", action="store_true", help="measure pass costs again until they are steady"
    )


_DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")
_MODEL = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""A hub id, or a folder in the working directory; anything else can only be a folder."""


def check_models(options: argparse.Namespace) -> None:
    """Check which models, device and precision were asked for, as far as that needs no torch.

    Raises:
        UserError: There is no such pair, precision, device or folder.
    """
    asked = vars(options)
    if asked.get("pair") and options.pair not in PAIRS:
        raise unknown_pair(options.pair, PAIRS)
    require_precision(asked.get("precision", AUTO_PRECISION))
    if asked.get("device") and not _DEVICE.fullmatch(options.device):
        raise UserError(f"Unknown device {show(options.device)}; choose cpu, cuda or, for one GPU, cuda:1.")
    for name in ("target", "draft"):
        model = asked.get(name)
        if model is None or Path(model).is_dir():
            continue
        if Path(model).is_file() or not _MODEL.fullmatch(model):
            raise UserError(f"--{name} takes a hub id or a folder, and {model} is no folder.")
    for name in ("feature_draft", "n_gram", "text", "start"):
        folder = asked.get(name)
        if folder is not None and not Path(folder).is_dir():
            raise UserError(f"--{name.replace('_', '-')} takes a folder, and {folder} is none.")


def bench_settings(options: argparse.Namespace, drafters: list[str], ks: list[int | str]) -> Settings:
    """Return the settings of a bench command, not yet checked against bounds."""
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
    """The pair that was asked for, loaded and measured; progress goes to standard error.

    Raises:
        UserError: There is none such, or it cannot be had.
    """
    from specdemo.pairs.embedded import printing
    from specdemo.pairs.load import load_sources

    return load_sources(_sources(options), progress=printing(), recalibrate=options.recalibrate)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`team` reads."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="spread over replicas on a Ray cluster: auto, or its head's host:6379",
    )
    parser.add_argument("--replicas", type=int, default=2, metavar="N", help="there (default: %(default)s)")
    parser.add_argument("--replica-cpus", type=float, metavar="N", help="cores of each")
    parser.add_argument("--replica-gpus", type=float, default=0.0, metavar="N", help="GPUs of each")


def check_cluster(options: argparse.Namespace) -> None:
    """Check the options of a cluster, if one is asked for.

    Raises:
        UserError: Ray is not installed, or an option is out of bounds.
    """
    from specdemo.cluster.plan import parse_replicas, require_ray, require_shares

    if options.cluster:
        parse_replicas(str(options.replicas), EMBEDDED)
        require_shares(options.replica_cpus, options.replica_gpus)
        require_ray()


def team(options: argparse.Namespace) -> Any:
    """Return the replicas that were asked for, a context manager; the options are checked."""
    from specdemo.cluster.plan import Plan, parse_replicas
    from specdemo.cluster.spread import Team

    name = EMBEDDED
    counts = parse_replicas(str(options.replicas), name)
    shares = options.replica_cpus, options.replica_gpus
    plan = Plan(options.cluster, counts, {name: _sources(options)}, *shares, recalibrate=options.recalibrate)
    return Team(plan)


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
    """The values of the option ``flag``, which are separated by commas; raises ``UserError``."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"{flag} takes values separated by commas, not {text!r}.") from error
