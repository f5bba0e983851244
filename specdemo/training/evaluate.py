"""Judge a finished draft by what it is for: acceptance and speed on prompts it never saw."""

import statistics
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specdemo.limits import parse_config
from specdemo.live import LiveRun
from specdemo.models import NONE, load_pair
from specdemo.training.pool import PoolPrompt, mode_for

K = 4
NEW_TOKENS = 64
DRAFTER_OF = {"model": "draft-model", "feature": "feature-draft"}


def evaluate_draft(
    target: str, kind: str, folder: Path, prompts: list[PoolPrompt], device: str | None
) -> dict[str, Any]:
    """Race the draft against the target alone, greedily, and return medians over ``prompts``.

    Returns:
        ``target`` (its name), ``alpha`` (per compared token), ``tau``, ``speedup``, ``c``,
        ``identical`` (prompts with the baseline's own output) and ``prompts``.
    """
    own = {"draft": str(folder)} if kind == "model" else {"draft": NONE, "feature_draft": str(folder)}
    pair = load_pair(target=target, device=device, **own)
    totals, costs = [], []
    for prompt in tqdm(prompts, desc="evaluation", unit="prompt"):
        mode = mode_for(pair.tokenizer, prompt)
        request = {"prompt": prompt.prompt, "mode": mode, "k": K, "max_new_tokens": NEW_TOKENS}
        live = LiveRun(pair, parse_config({**request, "drafter": DRAFTER_OF[kind]}))
        for _ in live.events():
            pass
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
        "prompts": len(prompts),
    }
