"""Judge a finished draft by what it is for: acceptance and speed on prompts it never saw."""

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.feature import FeatureDrafter
from specdemo.drafters.n_gram import NGramDrafter
from specdemo.engine.drafter import Drafter
from specdemo.engine.speculate import autoregress, speculate
from specdemo.models.feature_draft import FeatureRuntime
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.live import LiveRun
from specdemo.pairs.load import assemble_pair
from specdemo.pairs.pair import Pair, Stop
from specdemo.pairs.sources import NONE, Sources
from specdemo.records.drafter_kinds import DRAFT_MODEL, FEATURE_DRAFT, KINDS, N_GRAM
from specdemo.records.limits import parse_config
from specdemo.records.race import race
from specdemo.records.trace import BASELINE, SPECULATIVE, Round, RunConfig
from specdemo.training import clock
from specdemo.training.pool import PoolPrompt, mode_for

K = 4
NEW_TOKENS = 64
LEAST_ROUNDS = 8
Figures = dict[str, Any]
DRAFTER_OF = {"model": DRAFT_MODEL, "feature": FEATURE_DRAFT, "n-gram": N_GRAM}


def evaluate_draft(
    target: str,
    kind: str,
    folder: Path,
    prompts: list[PoolPrompt],
    device: str | None,
    precision: str,
    until: float = math.inf,
    calibrated: bool = True,
) -> dict[str, Any]:
    """Race the draft against the target alone, greedily, and return medians over ``prompts``.

    Args:
        precision: Of the target, as for ``load_pair``.
        until: When to end on ``clock.now``: the prompt at hand is left out then, unless it is the first.
        calibrated: Whether there is time to measure the pair first, as the app does.

    Returns:
        ``target`` (its name), ``alpha`` (per compared token), ``tau``, ``speedup``, ``c``,
        ``identical`` (prompts with the baseline's own output) and ``prompts`` (how many there were).
    """
    own = {"draft": NONE, KINDS[DRAFTER_OF[kind]].needs: str(folder)}
    pair = assemble_pair(Sources(target, device=device, precision=precision, **own))
    run = _measured if calibrated else _unmeasured
    found: list[Figures] = []
    for prompt in tqdm(prompts, desc="evaluation", unit="prompt"):
        mode = mode_for(pair.tokenizer, prompt)
        request = {"prompt": prompt.prompt, "mode": mode, "k": K, "max_new_tokens": NEW_TOKENS}
        config = parse_config({**request, "drafter": DRAFTER_OF[kind]})
        # The first has some tokens at any rate: a draft without any figure is not judged at all.
        figures = run(pair, config, _stop_at(until, 0 if found else LEAST_ROUNDS))
        if found and clock.now() >= until:
            break
        found.append(figures)

    def median(name: str) -> float:
        known = [item[name] for item in found if item[name] is not None]
        return statistics.median(known) if known else 0.0

    return {
        "target": pair.target_name,
        **{name: median(name) for name in ("alpha", "tau", "speedup", "c")},
        "identical": sum(item["identical"] is True for item in found),
        "prompts": len(found),
    }


def _measured(pair: Pair, config: RunConfig, stop: Stop) -> Figures:
    """A run as the app makes it."""
    live = LiveRun(pair, config, stop)
    for _ in live.events():
        pass
    totals, calibration = live.run.totals, live.run.calibration
    assert calibration is not None
    names = {"alpha": "alpha_compared", "tau": "tau", "speedup": "speedup", "identical": "identical"}
    return {**{name: totals[key] for name, key in names.items()}, "c": calibration.c}


def _unmeasured(pair: Pair, config: RunConfig, stop: Stop) -> Figures:
    """A run of a pair whose passes were never measured or made to agree: outputs may part at near ties."""
    ids = pair.prompt_ids(config)
    if pair.n_gram is not None:
        host = ModelRuntime(pair.target)
        drafter: Drafter = NGramDrafter(pair.n_gram, pair.device)
    elif pair.feature_draft is None:
        assert pair.draft is not None
        host = ModelRuntime(pair.target)
        drafter = DraftModelDrafter(ModelRuntime(pair.draft, id_map=pair.id_map))
    else:
        host = ModelRuntime(pair.target, taps=pair.feature_draft.config.taps)
        drafter = FeatureDrafter(FeatureRuntime(pair.feature_draft), host)
    lanes = {
        SPECULATIVE: speculate(host, drafter, ids, config, pair.eos_ids, stop),
        BASELINE: autoregress(ModelRuntime(pair.target), ids, config, pair.eos_ids, stop),
    }
    rounds: dict[str, list[Round]] = {name: [] for name in lanes}
    for name, round_ in race(lanes):
        rounds[name].append(round_)
    return _figures(rounds[SPECULATIVE], rounds[BASELINE])


def _figures(own: list[Round], alone: list[Round]) -> Figures:
    """What ``Run.totals`` calls by these names, of a speculative lane and the target alone."""
    text, other = ([token for r in lane for token in r.emitted] for lane in (own, alone))
    token_s, alone_s = (
        sum(r.draft_s + r.verify_s + r.other_s for r in lane) / max(1, len(ids))
        for lane, ids in ((own, text), (alone, other))
    )
    compared, steps = sum(r.compared for r in own), sum(r.draft_steps for r in own)
    both = min(len(text), len(other))
    return {
        "alpha": sum(r.accepted for r in own) / compared if compared else None,
        "tau": len(text) / len(own),
        "speedup": alone_s / token_s if token_s else None,
        "c": sum(r.draft_s for r in own) / steps / alone_s if steps and alone_s else None,
        "identical": text[:both] == other[:both],
    }


def _stop_at(until: float, rounds: int) -> Stop:
    """Asked once a round: stops a run at ``until``, but not before it was asked ``rounds`` times."""
    asked = itertools.count(1)
    return lambda: next(asked) > rounds and clock.now() >= until
