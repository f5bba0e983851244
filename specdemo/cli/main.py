"""The command line, one function per command (see :func:`_parser`). Parses and prints, no more."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdemo.cli.terminal import TerminalView
from specdemo.lab.conditions import CONDITIONS
from specdemo.lab.points import EXPERIMENTS, points_csv, points_json
from specdemo.lab.request import RUN_SETTINGS
from specdemo.records import recordings, trace_file
from specdemo.records.events import replay_events, replay_lines
from specdemo.records.limits import DRAFTERS, UserError, parse_config
from specdemo.records.trace import AUTO, Mode, Rule, Run, RunConfig

DEFAULT_MINUTES = 140.0
"""For two CPU cores."""
PROVE_PROMPTS = 6
PROVE_TEMPERATURES = (0.0, 0.8)
PROVE_SHOWN = 8


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
    generate.add_argument(
        "--k", type=_asked_length, default=RunConfig.k, metavar="N|auto", help="draft length"
    )
    generate.add_argument("--temperature", type=float, default=0.0, metavar="T")
    generate.add_argument("--top-p", type=float, default=1.0, metavar="P")
    generate.add_argument("--top-k", type=int, default=0, metavar="K", help="0 keeps every token")
    generate.add_argument("--rule", choices=[str(rule) for rule in Rule])
    generate.add_argument("--drafter", default=DRAFTERS[0], metavar="NAME", help=", ".join(DRAFTERS))
    generate.add_argument("--script", default="", metavar="TEXT", help="what the scripted drafter proposes")
    generate.add_argument("--seed", type=int, default=0, metavar="S")
    generate.add_argument("--max-new-tokens", type=int, default=RunConfig.max_new_tokens, metavar="N")
    generate.add_argument("--baseline", action="store_true", help="also run the target alone and compare")
    generate.add_argument(
        "--draft-alone", action="store_true", help="also run the draft model alone and show where it departs"
    )
    generate.add_argument("--json", metavar="FILE", help="write the whole run as JSON; - for standard output")

    replay = commands.add_parser("replay", help="show a recorded run again; needs no model")
    replay.set_defaults(command=_replay)
    replay.add_argument("run", metavar="FILE.json|NAME", help="a trace file, or a recording that is shipped")
    replay.add_argument("--html", type=Path, metavar="FILE", help="write a page that replays it offline")

    fetch = commands.add_parser("fetch", help="prepare the embedded pair")
    fetch.set_defaults(command=_fetch)
    fetch.add_argument("--check", action="store_true", help="read every byte; make anew what is damaged")

    train = commands.add_parser("train", help="distil a draft for a target from the target's own text")
    train.set_defaults(command=_train)
    train.add_argument("--target", default="embedded", metavar="ID|DIR")
    train.add_argument("--kind", choices=["model", "feature"], default="model", help="what to train")
    train.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1, … (default: CUDA if there is one)")
    budget = train.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=int, metavar="N", help="optimiser steps; reproducible")
    budget.add_argument("--minutes", type=float, metavar="M", help="time for all stages (default: 140)")
    train.add_argument("--out", type=Path, default=Path("draft"), metavar="DIR", help="default: draft/")
    train.add_argument("--resume", action="store_true", help="go on with the training in --out")
    train.add_argument("--layers", type=int, default=2, metavar="N", help="depth of a draft model")
    train.add_argument("--head", type=int, default=12_288, metavar="N", help="size of the draft's vocabulary")
    train.add_argument("--seed", type=int, default=0, metavar="S")

    bench = commands.add_parser("bench", help="measure speculation against the baseline over a prompt set")
    bench.set_defaults(command=_bench)
    bench.add_argument("--prompts", type=Path, required=True, metavar="FILE.jsonl")
    bench.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    _add_pair_options(bench)
    bench.add_argument("--drafters", default=DRAFTERS[0], metavar="A,B")
    bench.add_argument("--k", default=str(RunConfig.k), metavar="N,N,auto")
    bench.add_argument("--temperature", default="0", metavar="T,T")
    bench.add_argument("--rule", choices=[str(Rule.REJECTION), str(Rule.SHARED_NOISE)], help="for T > 0")
    bench.add_argument("--max-new-tokens", type=int, default=RunConfig.max_new_tokens, metavar="N")
    bench.add_argument("--limit", type=int, metavar="N", help="use only N prompts, spread over the set")
    bench.add_argument("--repeats", type=int, default=1, metavar="R", help="runs per row; medians are kept")
    bench.add_argument("--seed", type=int, default=0, metavar="S")
    bench.add_argument("--peers", action="store_true", help="compare with other libraries, greedily, on CPU")
    bench.add_argument("--gguf", type=Path, metavar="FILE", help="target for llama.cpp (default: embedded)")

    prove = commands.add_parser("prove", help="check that what speculation writes is the target's")
    prove.set_defaults(command=_prove)
    prove.add_argument("--audit", type=int, metavar="N", help="compare N texts token by token")
    prove.add_argument("--distribution", type=int, metavar="N", help="compare N short draws each way")
    prove.add_argument("--control", metavar="NAME", help="draw wrongly: accept-everything or no-residual")
    _add_pair_options(prove)

    lab = commands.add_parser("lab", help="measure what sets the speedup, one condition at a time")
    lab.set_defaults(command=_lab)
    measured = (*EXPERIMENTS, *CONDITIONS)
    lab.add_argument("experiment", choices=measured, metavar="SWEEP", help=", ".join(measured))
    lab.add_argument("--out", type=Path, metavar="FILE.json|FILE.csv")
    _add_pair_options(lab)
    lab.add_argument("--drafter", metavar="NAME", help=", ".join(DRAFTERS))
    lab.add_argument("--k", type=_asked_length, metavar="N|auto", help="draft length")
    lab.add_argument("--temperature", type=float, metavar="T")
    lab.add_argument("--rule", choices=[str(Rule.REJECTION), str(Rule.SHARED_NOISE)], help="for T > 0")
    lab.add_argument("--max-new-tokens", type=int, metavar="N")
    lab.add_argument("--limit", type=int, metavar="N", help="write N of the shipped prompts per point")
    lab.add_argument("--seed", type=int, metavar="S")
    return parser


def _add_pair_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pair", metavar="NAME", help="a preset, in the place of --target and --draft")
    parser.add_argument("--target", default="embedded", metavar="ID|DIR")
    parser.add_argument("--draft", default="embedded", metavar="ID|DIR|none")
    parser.add_argument("--feature-draft", metavar="DIR", help="a feature draft trained for the target")
    parser.add_argument("--device", metavar="D", help="cpu, cuda, cuda:1, … (default: CUDA if there is one)")
    parser.add_argument(
        "--precision",
        default="auto",
        metavar="P",
        help="auto (default: the fastest that keeps the target's numbers), bf16, fp16, fp32, int8 or int4",
    )
    parser.add_argument(
        "--remeasure", action="store_true", help="measure this machine again instead of remembering"
    )


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
            "script": options.script,
            "seed": options.seed,
            "max_new_tokens": options.max_new_tokens,
            "baseline": options.baseline,
            "draft_alone": options.draft_alone,
        }
    )
    from specdemo.pairs.live import LiveRun

    live = LiveRun(_load(options), config)
    view = TerminalView(sys.stderr if options.json == "-" else sys.stdout)
    for event in live.events():
        view.show(event)
    if options.json == "-":
        print(live.run.to_json())
    elif options.json:
        _write(Path(options.json), live.run.to_json() + "\n")
    return 0


def _replay(options: argparse.Namespace) -> int:
    run = _recorded(options.run)
    if options.html:
        from specdemo.ui.http.offline import player_page

        _write(options.html, player_page(replay_lines(run)))
        return 0
    view = TerminalView(sys.stdout)
    for event in replay_events(run):
        view.show(event)
    return 0


def _recorded(name: str) -> Run:
    """The run in a trace file, or the recording of that name."""
    path = Path(name)
    if name in recordings.names() and not path.exists():
        return recordings.load(name)
    try:
        with path.open("rb") as file:
            return trace_file.load(file.read(trace_file.MAX_BYTES + 1))
    except OSError as error:
        shipped = ", ".join(recordings.names()) or "none is installed"
        raise UserError(
            f"Cannot read {name}: {error.strerror}; give a trace file or a recording ({shipped})."
        ) from error


def _fetch(options: argparse.Namespace) -> int:
    from specdemo.pairs.embedded import checked_target, embedded_target, printing

    folder = embedded_target(printing())
    if options.check and (damaged := checked_target(printing())):
        print(f"specdemo: made anew, since damaged: {', '.join(damaged)}", file=sys.stderr)
    print(folder)
    return 0


def _train(options: argparse.Namespace) -> int:
    minutes = DEFAULT_MINUTES if options.steps is None and options.minutes is None else options.minutes
    for flag, value in (("--steps", options.steps), ("--minutes", minutes), ("--head", options.head)):
        if value is not None and not value > 0:
            raise UserError(f"{flag} must be more than 0.")
    if options.layers < 1:
        raise UserError("--layers must be at least 1.")
    from specdemo.training.stages import Plan, train

    plan = Plan(
        target=options.target,
        kind=options.kind,
        steps=options.steps,
        minutes=minutes,
        layers=options.layers,
        head=options.head,
        seed=options.seed,
    )
    facts = train(plan, options.out, options.device, options.resume)
    figures = f"α {facts['alpha']:.0%}, τ {facts['tau']:.2f}, {facts['speedup']:.2f}× at k = 4"
    print(f"{figures}; saved to {options.out}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    if options.peers:
        return _bench_peers(options)
    from specdemo.bench.bench import Bench, Settings, read_prompts

    settings = Settings(
        drafters=_list(options.drafters, str, "--drafters"),
        ks=_list(options.k, _draft_length, "--k"),
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


def _bench_peers(options: argparse.Namespace) -> int:
    from specdemo.bench.bench import read_prompts
    from specdemo.bench.peer_bench import PeerBench, PeerSettings
    from specdemo.bench.peers import available_peers, peer_models

    ks = _list(options.k, _draft_length, "--k")
    if len(ks) > 1 or options.temperature != "0" or options.rule or options.repeats > 1:
        raise UserError("With --peers everything runs greedily, once, at one --k; leave the rest out.")
    settings = PeerSettings(
        drafters=_list(options.drafters, str, "--drafters"),
        k=ks[0],
        max_new_tokens=options.max_new_tokens,
    )
    bench = PeerBench(read_prompts(options.prompts, options.limit), settings, options.out)
    pair = _load(options)
    with peer_models(pair, options.target, options.draft, options.gguf) as models:
        bench.run(pair, available_peers(models, lambda text: print(text, file=sys.stderr)))
    print(bench.table())
    return 0


def _prove(options: argparse.Namespace) -> int:
    """Status 1 where something differs, as it should under a control."""
    from specdemo.proof.distribution import DRAWS, control_named

    control = control_named(options.control)
    prompts, draws = options.audit, options.distribution
    if prompts is None and draws is None:
        prompts, draws = (None if control else PROVE_PROMPTS), DRAWS
    if control and draws is None:
        raise UserError("A control is for the distribution test; add --distribution N.")
    pair = _load(options)
    differs = False
    if prompts is not None:
        for temperature in PROVE_TEMPERATURES:
            differs |= _audit(pair, prompts, temperature)
    if draws is not None:
        differs |= _distribution(pair, draws, control)
    return int(differs)


def _audit(pair: Any, prompts: int, temperature: float) -> bool:
    """Print a line per text and a summary; whether a text differs."""
    from specdemo.proof.audit import audit, audit_config, audit_sentence, listed_prompts, summarise

    config = audit_config(temperature)
    print(f"Token by token, {config.rule} rule, temperature {temperature:g}")
    rows = []
    for row in audit(pair, listed_prompts(prompts), config):
        rows.append(row)
        verdict = "identical" if row.identical else f"differs from token {row.divergence + 1} on"
        print(f"  {row.id:<14}{row.tokens:>4} tokens  {verdict}")
    summary = summarise(rows)
    print(audit_sentence(summary))
    return bool(summary.divergences)


def _distribution(pair: Any, draws: int, control: Any) -> bool:
    """Print the most frequent continuations and the verdict; whether the samples differ."""
    from specdemo.pairs.embedded import printing
    from specdemo.proof.distribution import EXAMPLE, distribution_sentence, distribution_test

    report = printing()
    for state in distribution_test(pair, parse_config(EXAMPLE), draws, control):
        report("Drawing continuations", state.drawn / state.draws)
    print(f"{'speculative':>11}{'alone':>8}  continuation of {EXAMPLE['prompt']!r}")
    for found in state.continuations[:PROVE_SHOWN]:
        print(f"{found.speculative:>11}{found.baseline:>8}  {pair.pieces.text(found.ids)!r}")
    print(f"α {state.alpha:.0%}, {state.seconds:.1f} s, {state.passes_saved:,} passes looked up")
    print(distribution_sentence(state))
    return state.rejected


def _lab(options: argparse.Namespace) -> int:
    """Print each point as it is measured; an interrupted experiment is written as far as it got."""
    if options.out and options.out.suffix not in (".json", ".csv"):
        raise UserError("--out takes a file that ends in .json or .csv.")
    from specdemo.bench.bench import shipped_prompts
    from specdemo.lab.experiments import experiment

    asked = ("drafter", "k", "temperature", "rule", "max_new_tokens", "seed")
    request = {name: getattr(options, name) for name in asked if getattr(options, name) is not None}
    # Refused before anything is loaded; which rule goes with which temperature is the experiment's to say.
    parse_config({"prompt": "-", **{name: request[name] for name in RUN_SETTINGS if name in request}})
    prompts = None if options.limit is None else shipped_prompts(options.limit)
    planned = experiment(options.experiment, _load(options), request, prompts)
    points = []
    try:
        for point in planned.points:
            print(point, flush=True)
            points.append(point)
    finally:
        if options.out:
            table = points_csv(points) if options.out.suffix == ".csv" else points_json(points, planned.about)
            _write(options.out, table)
    return 0


def _load(options: argparse.Namespace):
    from specdemo.pairs.embedded import printing
    from specdemo.pairs.load import load_pair
    from specdemo.pairs.presets import preset_named
    from specdemo.pairs.sources import Sources

    named = preset_named(options.pair).sources if options.pair else Sources(options.target, options.draft)
    sources = replace(
        named,
        feature_draft=options.feature_draft,
        device=options.device,
        precision=options.precision,
    )
    return load_pair(sources, progress=printing(), remeasure=options.remeasure)


def _draft_length(text: str) -> int | str:
    """A number, or the word ``auto``; anything else is refused by the caller."""
    return AUTO if text == AUTO else int(text)


def _asked_length(text: str) -> int | str:
    """The same for ``parse_config``, which has a sentence for whatever else is asked for."""
    with suppress(ValueError):
        return _draft_length(text)
    return text


def _list(text: str, kind: Callable[[str], Any], flag: str) -> list:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"{flag} takes values separated by commas, not {text!r}.") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror}; choose another place.") from error
