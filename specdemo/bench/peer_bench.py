"""Our baseline and our speculation beside other libraries, on the same prompts, in one run.

For every prompt each contender writes once, in an order that turns from prompt to prompt, so that a
slow moment of the machine does not always meet the same one. What is compared is tokens per second of
the whole call, prompt included, because that is all that a foreign library can be timed by. Of our own
lanes that is the time to set them up and their clocks, which leave out only what is made to be shown.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from tqdm import tqdm

from specdemo.bench.measuring import environment
from specdemo.bench.peer import Peer
from specdemo.bench.prompts import Prompt
from specdemo.bench.summary import quartiles
from specdemo.charts.palette import THEMES
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.records.figures import first_difference
from specdemo.records.limits import UserError, parse_config
from specdemo.records.output import write_text
from specdemo.records.trace import Round, RunConfig, dump

OURS = "specdemo"
ALONE = "target alone"
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class PeerSettings:
    """What is measured of our own; peers run as they come."""

    drafters: list[str]
    k: int | str
    max_new_tokens: int

    def configs(self, prompt: Prompt) -> list[RunConfig]:
        """The checked greedy configurations of one prompt."""
        return [
            parse_config(
                {
                    "prompt": prompt.prompt,
                    "mode": prompt.mode,
                    "drafter": drafter,
                    "k": self.k,
                    "max_new_tokens": self.max_new_tokens,
                }
            )
            for drafter in self.drafters
        ]


class PeerBench:
    """One comparison; written to ``out`` after every prompt, with a page beside it.

    Args:
        prompts: From ``bench.read_prompts``.
        settings: Checked here, before any model is loaded.
        out: JSON file.

    Raises:
        UserError: A setting is out of bounds.
    """

    def __init__(self, prompts: list[Prompt], settings: PeerSettings, out: Path):
        for prompt in prompts:
            settings.configs(prompt)
        if out.exists():
            raise UserError(f"{out} exists; choose another name for --out.")
        self._prompts, self._settings, self._out = prompts, settings, out
        self._rows: list[dict[str, Any]] = []

    def run(self, pair: Pair, peers: list[Peer]) -> None:
        """Warm every peer up, then measure those that ran."""
        peers = [peer for peer in peers if _runs(peer, pair.tokenizer("The sky is")["input_ids"])]
        facts = environment(pair)
        for number, prompt in enumerate(tqdm(self._prompts, desc="peers", unit="prompt")):
            turn = number % (len(peers) + 1)
            self._rows += self._measure(pair, prompt, peers, turn)
            content = {
                "environment": facts,
                "settings": asdict(self._settings),
                "rows": self._rows,
                "summary": self._summary(),
            }
            write_text(self._out, dump(content))
        write_text(self._out.with_suffix(".html"), self._figure(facts).to_html(include_plotlyjs=True))

    def table(self) -> str:
        """The summary for a terminal."""
        head = f"{'library':<26}{'what':<28}{'in':>6}{'tok/s':>8}{'× its own':>11}{'ours ÷ it':>11}  as alone"
        lines = []
        for item in self._summary():
            own = "-" if item["speedup"] is None else f"{item['speedup']['median']:.2f}×"
            ours = "-" if item["ours"] is None else f"{item['ours']['median']:.2f}×"
            same = "-" if item["identical"] is None else f"{item['identical']} of {item['prompts']}"
            lines.append(
                f"{item['library']:<26}{item['name']:<28}{item['precision']:>6}"
                f"{item['tokens_per_s']['median']:>8.1f}{own:>11}{ours:>11}  {same}"
            )
        return "\n".join([head, *lines])

    def _measure(self, pair: Pair, prompt: Prompt, peers: list[Peer], turn: int) -> list[dict[str, Any]]:
        configs = self._settings.configs(prompt)
        ids, lanes = pair.prompt_ids(configs[0]), Lanes(pair)

        def ours() -> list[dict[str, Any]]:
            written = {ALONE: _lane(lambda: lanes.baseline(configs[0], ids))}
            for config in configs:
                written[config.drafter] = _lane(lambda config=config: lanes.speculative(config, ids))
            return [_row(OURS, name, name == ALONE, pair.precision, *lane) for name, lane in written.items()]

        def theirs(peer: Peer) -> list[dict[str, Any]]:
            start = time.perf_counter()
            written = peer.generate(ids, self._settings.max_new_tokens)
            seconds = time.perf_counter() - start
            return [_row(peer.package, peer.name, peer.alone, peer.precision, written, seconds)]

        calls = [ours, *((lambda peer=peer: theirs(peer)) for peer in peers)]
        results: dict[int, list[dict[str, Any]]] = {}
        for index in [*range(turn, len(calls)), *range(turn)]:
            results[index] = calls[index]()
        rows = [row for index in range(len(calls)) for row in results[index]]
        _compare(rows, self._settings.drafters[0])
        return [{"id": prompt.id, "category": prompt.category, **row} for row in rows]

    def _summary(self) -> list[dict[str, Any]]:
        contenders: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in self._rows:
            contenders.setdefault((row["library"], row["name"], row["precision"]), []).append(row)
        return [_summarise(rows) for rows in contenders.values()]

    def _figure(self, facts: dict[str, Any]) -> go.Figure:
        """One bar a contender: median tokens per second, with quartiles."""
        colours, items = THEMES["light"], self._summary()
        speeds = [item["tokens_per_s"] for item in items]
        figure = go.Figure(
            go.Bar(
                x=[speed["median"] for speed in speeds],
                y=[f"{item['library']}: {item['name']} ({item['precision']})" for item in items],
                orientation="h",
                marker_color=[
                    colours.accepted if item["library"] == OURS else colours.muted for item in items
                ],
                error_x={
                    "array": [speed["q3"] - speed["median"] for speed in speeds],
                    "arrayminus": [speed["median"] - speed["q1"] for speed in speeds],
                },
                text=[f"{speed['median']:.1f}" for speed in speeds],
            )
        )
        figure.update_layout(
            title=f"Tokens per second, {facts['pair']['target']}, {facts['device']}, {facts['date']}",
            margin={"l": 360},
            yaxis={"autorange": "reversed"},
        )
        return figure


def _runs(peer: Peer, ids: list[int]) -> bool:
    """Warm a peer up; one that fails is named."""
    try:
        peer.generate(ids, WARM_UP_TOKENS)
    except Exception as error:  # a foreign library may fail in any way; the others still run
        tqdm.write(f"{peer.package}, {peer.name}, is left out: {type(error).__name__}: {error}")
        return False
    return True


def _lane(build: Callable[[], Iterator[Round]]) -> tuple[list[int], float]:
    """What a lane wrote; seconds to build it and by its own clock, prompt included."""
    start = time.perf_counter()
    lane = build()
    seconds, ids = time.perf_counter() - start, []
    for round_ in lane:
        ids += round_.emitted
        seconds += round_.prefill_s + round_.seconds
    return ids, seconds


def _row(
    library: str, name: str, alone: bool, precision: str, ids: list[int], seconds: float
) -> dict[str, Any]:
    return {
        "library": library,
        "name": name,
        "alone": alone,
        "precision": precision,
        "tokens": len(ids),
        "seconds": seconds,
        "tokens_per_s": len(ids) / seconds,
        "ids": ids,
    }


def _compare(rows: list[dict[str, Any]], drafter: str) -> None:
    """Add each row's speedup and sameness against its library alone, and our counterpart's ratio to it.

    A library that runs the target in two precisions has a baseline in each.
    """
    ours = {row["alone"]: row for row in rows if row["library"] == OURS and row["name"] in (ALONE, drafter)}
    alone = {(row["library"], row["precision"]): row for row in rows if row["alone"]}
    # A library without a baseline of its own runs the models of transformers.
    hosted = next((row for key, row in alone.items() if key[0].startswith("transformers")), None)
    for row in rows:
        base = alone.get((row["library"], row["precision"]), hosted)
        other = None if base is row else base
        row["speedup"] = None if other is None else row["tokens_per_s"] / other["tokens_per_s"]
        row["identical"] = None if other is None else _same(row["ids"], other["ids"])
        foreign = row["library"] != OURS
        row["ours"] = ours[row["alone"]]["tokens_per_s"] / row["tokens_per_s"] if foreign else None
    for row in rows:
        del row["ids"]


def _same(left: list[int], right: list[int]) -> bool:
    return len(left) == len(right) and first_difference(left, right) is None


def _summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {key: rows[0][key] for key in ("library", "name", "alone", "precision")}
    summary["prompts"] = len(rows)
    for name in ("tokens_per_s", "speedup", "ours"):
        values = [row[name] for row in rows if row[name] is not None]
        summary[name] = quartiles(values) if values else None
    same = [row["identical"] for row in rows]
    summary["identical"] = None if None in same else sum(same)
    return summary
