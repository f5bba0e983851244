"""Judge a finished draft by what it is for: acceptance and speed on prompts it never saw."""

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specdemo.engine import run_capacity
from specdemo.limits import parse_config
from specdemo.live import LiveRun
from specdemo.models import NONE, assemble_pair
from specdemo.pair import Pair, Stop
from specdemo.trace import RunConfig
from specdemo.training import clock
from specdemo.training.pool import PoolPrompt, mode_for

K = 4
NEW_TOKENS = 64
LEAST_ROUNDS = 8
DRAFTER_OF = {"model": "draft-model", "feature": "feature-draft"}


def evaluate_draft(
    target: str,
    kind: str,
    folder: Path,
    prompts: list[PoolPrompt],
    device: str | None,
    precision: str,
    until: float = math.inf,
) -> dict[str, Any]:
    """Race the draft against the target alone, greedily, and return medians over ``prompts``.

    Args:
        precision: Of the target, as for ``load_pair``.
        until: When to end on ``clock.now``: the prompt at hand is left out then, unless it is the first.

    Returns:
        ``target`` (its name), ``alpha`` (per compared token), ``tau``, ``speedup``, ``c``,
        ``identical`` (prompts with the baseline's own output) and ``prompts`` (how many there were).
    """
    own = {"draft": str(folder)} if kind == "model" else {"draft": NONE, "feature_draft": str(folder)}
    pair = assemble_pair(target=target, device=device, precision=precision, **own)
    totals, costs = [], []
    calibration_s = 0.0
    for prompt in tqdm(prompts, desc="evaluation", unit="prompt"):
        mode = mode_for(pair.tokenizer, prompt)
        request = {"prompt": prompt.prompt, "mode": mode, "k": K, "max_new_tokens": NEW_TOKENS}
        config = parse_config({**request, "drafter": DRAFTER_OF[kind]})
        # A prompt of another size may need measurements that cannot be broken off.
        if totals and clock.now() + calibration_s >= until and not _is_calibrated(pair, config):
            continue
        begun = clock.now()
        pair.calibrate(config, len(pair.prompt_ids(config)))
        calibration_s = max(calibration_s, clock.now() - begun)
        # The first has some tokens at any rate: a draft without any figure is not judged at all.
        live = LiveRun(pair, config, _stop_at(until, 0 if totals else LEAST_ROUNDS))
        for _ in live.events():
            pass
        if totals and clock.now() >= until:
            break
        totals.append(live.run.totals)
        costs.append(live.run.calibration.c)

    def median(name: str) -> float:
        found = [item[name] for item in totals if item[name] is not None]
        return statistics.median(found) if found else 0.0

    return {
        "target": pair.target_name,
        "alpha": median("alpha_compared"),
        "tau": median("tau"),
        "speedup": median("speedup"),
        "c": statistics.median(costs),
        "identical": sum(item["identical"] is True for item in totals),
        "prompts": len(totals),
    }


def _is_calibrated(pair: Pair, config: RunConfig) -> bool:
    capacity = run_capacity(len(pair.prompt_ids(config)), config.max_new_tokens)
    return any(known == capacity for known, _ in pair.calibrations)


def _stop_at(until: float, rounds: int) -> Stop:
    """Asked once a round: stops a run at ``until``, but not before it was asked ``rounds`` times."""
    asked = itertools.count(1)
    return lambda: next(asked) > rounds and clock.now() >= until
