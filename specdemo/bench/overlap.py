"""The acceptance rate of a draft model at several temperatures, and the overlap of p and q that causes it."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from specdemo.bench.bench import save_bench
from specdemo.bench.measuring import Row, environment, suited
from specdemo.bench.prompts import Prompt, Settings
from specdemo.engine.sampling import probabilities, warp
from specdemo.models.runtime import MAX_ROWS, ModelRuntime, capacity_for
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.records.limits import GREEDY_BELOW, UserError
from specdemo.records.trace import RunConfig

MEANS = ("overlap", "agreement", "target_entropy", "draft_entropy")  # of a row, over the tokens of its text


def measure_overlap(pair: Pair, prompts: Sequence[Prompt], settings: Settings, out: Path) -> str:
    """Measure every prompt at every temperature, and save the rows; return the summary as a table.

    ``settings.repeats`` is the number of seeds. Greedy decoding does not use them, so it runs once.
    """
    if pair.draft is None:
        raise UserError("--overlap needs a draft model; choose a draft model with --draft.")
    rows: list[Row] = []
    for prompt in tqdm(suited(pair, prompts), desc="overlap", unit="prompt"):
        rows += _rows(pair, prompt, settings)
        save_bench(out, environment(pair), settings, rows, overlap_summary(rows))
    head = f"{'T':>4}{'tokens':>8}{'α':>7}{'difference':>14}{'overlap':>9}{'same best':>11}"
    head += f"{'H(p)':>7}{'H(q)':>7}"
    return "\n".join([head, *map(_line, overlap_summary(rows))])


def overlap_summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the figures of each temperature, lowest first.

    ``alpha`` is accepted ÷ compared of all rows. ``difference`` is the mean over prompts of α minus α at the
    lowest temperature, and ``error`` its standard error, None for a single prompt.
    """
    temperatures = sorted({row["temperature"] for row in rows})
    ids = dict.fromkeys(row["id"] for row in rows)
    found = []
    for temperature in temperatures:
        own = [row for row in rows if row["temperature"] == temperature]
        shifts = [_alpha(rows, temperature, name) - _alpha(rows, temperatures[0], name) for name in ids]
        tokens = sum(row["tokens"] for row in own)
        found.append(
            {
                "temperature": temperature,
                "tokens": tokens,
                "alpha": _share(own),
                "difference": statistics.mean(shifts),
                "error": statistics.stdev(shifts) / len(shifts) ** 0.5 if len(shifts) > 1 else None,
                **{name: sum(row[name] * row["tokens"] for row in own) / tokens for name in MEANS},
            }
        )
    return found


def _rows(pair: Pair, prompt: Prompt, settings: Settings) -> Iterator[Row]:
    for temperature in settings.temperatures:
        [config] = settings.configs(prompt, temperature)
        for seed in range(settings.seed, settings.seed + (settings.repeats if temperature else 1)):
            yield _row(pair, prompt, replace(config, seed=seed))


def _row(pair: Pair, prompt: Prompt, config: RunConfig) -> Row:
    prompt_ids = pair.prompt_ids(config)
    rounds = list(Lanes(pair).speculative(config, prompt_ids))
    drafted = [token for round_ in rounds for token in round_.drafted]
    written = [token for round_ in rounds for token in round_.emitted]
    p, q = _distributions(pair, prompt_ids, written, config)
    means = {
        "overlap": torch.minimum(p, q).sum(-1),
        "agreement": (p.argmax(-1) == q.argmax(-1)).double(),
        "target_entropy": torch.special.entr(p).sum(-1),
        "draft_entropy": torch.special.entr(q).sum(-1),
    }
    return {
        "id": prompt.id,
        "temperature": config.temperature,
        "rule": config.rule,
        "seed": config.seed,
        "tokens": len(written),
        "compared": sum(token.compared for token in drafted),
        "accepted": sum(round_.accepted for round_ in rounds),
        **{name: values.mean().item() for name, values in means.items()},
    }


@torch.inference_mode()
def _distributions(
    pair: Pair, prompt_ids: Sequence[int], written: Sequence[int], config: RunConfig
) -> tuple[Tensor, Tensor]:
    """Return p and q, both [n, V], at the positions of the n tokens that the run wrote."""
    assert pair.draft is not None
    text = torch.tensor([*prompt_ids, *written[:-1]])
    found = []
    for model, id_map in ((pair.target, None), (pair.draft, pair.id_map)):
        runtime = ModelRuntime(model, id_map=id_map)
        runtime.begin(capacity_for(len(text) + MAX_ROWS))
        runtime.prefill(text[: len(prompt_ids) - 1].to(runtime.device))
        parts = text[len(prompt_ids) - 1 :].to(runtime.device).split(MAX_ROWS)
        found.append(_decided(torch.cat([runtime.forward(part).clone() for part in parts]), config))
    p, q = found[0], found[1].to(found[0].device)
    return p, q if pair.id_map is None else torch.zeros_like(p).index_copy_(1, pair.id_map.to(p.device), q)


def _decided(logits: Tensor, config: RunConfig) -> Tensor:
    """Return the distributions from which a run chooses; greedy puts everything on the most likely token."""
    if config.temperature < GREEDY_BELOW:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    return probabilities(warp(logits, config.temperature, config.top_k, config.top_p)).double()


def _share(rows: Sequence[Row]) -> float:
    return sum(row["accepted"] for row in rows) / max(1, sum(row["compared"] for row in rows))


def _alpha(rows: Sequence[Row], temperature: float, name: str) -> float:
    return _share([row for row in rows if (row["temperature"], row["id"]) == (temperature, name)])


def _line(item: dict[str, Any]) -> str:
    difference = f"{100 * item['difference']:+.1f}"
    if item["error"] is not None:
        difference += f" ± {100 * item['error']:.1f}"
    return (
        f"{item['temperature']:>4g}{item['tokens']:>8,}{item['alpha']:>7.1%}"
        f"{difference:>14}{item['overlap']:>9.3f}{item['agreement']:>11.1%}"
        f"{item['target_entropy']:>7.2f}{item['draft_entropy']:>7.2f}"
    )
