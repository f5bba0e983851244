"""A comparison with other libraries on the same models, by tokens per second including the prompt."""

import copy
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdemo.asset_paths import BUILT_IN, BUILT_IN_DRAFT
from specdemo.bench.bench import save_bench
from specdemo.bench.measuring import environment, quartiles, suited
from specdemo.bench.peer_engines import METHODS, TRANSFORMERS, Contender, PeerModels, PeerProcess
from specdemo.bench.prompts import Prompt, Settings
from specdemo.charts.palette import THEMES
from specdemo.models.attention import ATTENTION
from specdemo.models.layer_views import input_embedding, output_layer
from specdemo.models.reduced_draft import is_reduced_draft, load_draft
from specdemo.models.weight_files import place_like
from specdemo.pairs.builtin_target import builtin_gguf, builtin_target
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.model_loader import DTYPES, ROUNDED, load_causal_lm
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import NONE
from specdemo.records.figures import MIN_TOKENS
from specdemo.records.limits import UserError
from specdemo.records.output import write_text
from specdemo.records.trace import Round, RunConfig

OURS = "specdemo"
ALONE = "target alone"


@contextmanager
def peer_models(pair: Pair, target: str, draft: str, gguf: Path | None) -> Iterator[PeerModels]:
    """Yield the files from which other libraries load ``pair``; temporary ones are deleted on exit.

    A draft with a reduced vocabulary is written as a plain model with a head over the whole vocabulary.
    """
    if pair.device.type != "cpu":
        raise UserError(
            f"--peers works only on a CPU, but the device is {pair.device.type}; add --device cpu."
        )
    if draft == NONE:
        raise UserError("--peers needs a draft model; choose a draft model with --draft.")
    if target == BUILT_IN:
        target, gguf = str(builtin_target()), gguf or builtin_gguf()
    draft_path = BUILT_IN_DRAFT if draft == BUILT_IN else Path(draft)
    # specdemo computes in fp32 with the weights as they are stored, so the other libraries run in fp32.
    precision = ROUNDED if pair.precision == ROUNDED else "fp32"
    with tempfile.TemporaryDirectory() as folder:
        if is_reduced_draft(draft_path):
            host = load_causal_lm(target, dtype=DTYPES[precision]).eval()
            full_vocabulary(draft_path, host).save_pretrained(folder)
            draft = folder
        yield PeerModels(target, draft, gguf, pair.eos_ids, precision, torch.get_num_threads())


@torch.no_grad()
def full_vocabulary(folder: Path, host: PreTrainedModel) -> PreTrainedModel:
    """Convert a draft with a reduced vocabulary to a plain model, for libraries that cannot map ids.

    Tokens outside the draft's vocabulary get weights of 0, and a score of 0 is below that of its most likely
    token.
    """
    draft = load_draft(folder, host, ATTENTION)
    config = copy.deepcopy(draft.config)
    config.vocab_size = input_embedding(host).num_embeddings
    config.tie_word_embeddings = False
    config.architectures = None
    full = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    place_like(full, input_embedding(host).weight)
    full.base_model.load_state_dict(draft.model.state_dict())
    head = output_layer(full).weight.zero_()
    head[draft.id_map] = draft.lm_head.weight
    full.generation_config = copy.deepcopy(host.generation_config)
    return full


@contextmanager
def peer_contenders(
    pair: Pair, models: PeerModels, report: Callable[[str], None]
) -> Iterator[list[Contender]]:
    """Yield the methods that work here; pass ``report`` a sentence about each library that failed."""
    # transformers cannot round weights to the same int8 values as specdemo.
    packages = [name for name in METHODS if name != TRANSFORMERS or models.precision != ROUNDED]
    processes: list[PeerProcess] = []
    try:
        for package in packages:
            processes.append(PeerProcess(package, models, pair.tokenizer("The sky is")["input_ids"]))
            if processes[-1].failure:
                report(processes[-1].failure)
        yield [contender for process in processes for contender in process.contenders]
    finally:
        for process in processes:
            process.close()


class PeerBench:
    """A comparison of libraries, saved to ``out`` after every prompt and as an HTML page at the end.

    Every contender writes once per prompt, in an order that rotates, so that a slow moment of the machine
    does not always affect the same contender. The time includes reading the prompt; the temperature is 0.
    """

    def __init__(self, prompts: list[Prompt], settings: Settings, out: Path):
        settings.check(prompts)
        if out.exists():
            raise UserError(f"{out} already exists; choose another file for --out.")
        self._prompts, self._settings, self._out = prompts, settings, out
        self._rows: list[dict[str, Any]] = []

    def run(self, pair: Pair, peers: Sequence[Contender]) -> None:
        """Measure specdemo's lanes and ``peers`` on every prompt."""
        facts = environment(pair)
        for turn, prompt in enumerate(tqdm(suited(pair, self._prompts), desc="peers", unit="prompt")):
            self._rows += self._measured(pair, prompt, peers, turn)
            save_bench(self._out, facts, self._settings, self._rows, self._summary())
        title = f"Tokens per second, {facts['pair']['target']}, {facts['device']}, {facts['date']}"
        page = _figure(title, self._summary()).to_html(include_plotlyjs=True)
        write_text(self._out.with_suffix(".html"), page)

    def table(self) -> str:
        """Return the summary as text for a terminal: a line for each contender."""
        head = f"{'library':<26}{'method':<22}{'weights':>8}{'tok/s':>8}{'speedup':>9}{'specdemo ÷ it':>15}"
        head += "  identical"
        lines = []
        for item in self._summary():
            own, ours = (
                "-" if item[name] is None else f"{item[name]['median']:.2f}×" for name in ("speedup", "ours")
            )
            same = "-" if item["identical"] is None else f"{item['identical']} of {item['prompts']}"
            lines.append(
                f"{item['library']:<26}{item['name']:<22}{item['precision']:>8}"
                f"{item['tokens_per_s']['median']:>8.1f}{own:>9}{ours:>15}  {same}"
            )
        return "\n".join([head, *lines])

    def _measured(
        self, pair: Pair, prompt: Prompt, peers: Sequence[Contender], turn: int
    ) -> list[dict[str, Any]]:
        configs, lanes = self._settings.configs(prompt, 0.0), Lanes(pair)
        ids = pair.prompt_ids(configs[0])
        ways = [(ALONE, lanes.baseline, configs[0])]
        ways += [(config.drafter, lanes.speculative, config) for config in configs]
        contenders = [
            Contender(OURS, name, name == ALONE, pair.precision, partial(_write, decoder, config))
            for name, decoder, config in ways
        ]
        contenders += peers
        rows: list[dict[str, Any]] = [{}] * len(contenders)
        for place in range(len(contenders)):
            index = (place + turn) % len(contenders)
            one = contenders[index]
            written, seconds = one.write(ids, self._settings.max_new_tokens)
            rows[index] = {
                "id": prompt.id,
                "category": prompt.category,
                "library": one.library,
                "name": one.name,
                "alone": one.alone,
                "precision": one.precision,
                "tokens": len(written),
                "seconds": seconds,
                "tokens_per_s": len(written) / seconds,
                "ids": written,
            }
        _compare(rows, configs[0].drafter)
        return rows

    def _summary(self) -> list[dict[str, Any]]:
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._rows:
            groups.setdefault((row["library"], row["name"]), []).append(row)
        summary = []
        for rows in groups.values():
            same = [row["identical"] for row in rows]
            common = {key: rows[0][key] for key in ("library", "name", "alone", "precision")}
            common |= {"prompts": len(rows), "identical": None if None in same else sum(same)}
            for name in ("tokens_per_s", "speedup", "ours"):
                common[name] = quartiles([row[name] for row in rows])
            summary.append(common)
        return summary


def _write(
    decoder: Callable[[RunConfig, list[int]], Iterable[Round]],
    config: RunConfig,
    ids: list[int],
    _tokens: int,
) -> tuple[list[int], float]:
    """Return the ids that a lane writes, and its seconds: setup, prompt and all rounds."""
    start = time.perf_counter()
    lane = decoder(config, ids)
    seconds, written = time.perf_counter() - start, []
    for round_ in lane:
        written += round_.emitted
        seconds += round_.prefill_s + round_.seconds
    return written, seconds


def _compare(rows: list[dict[str, Any]], drafter: str) -> None:
    """Compare each row with the baseline of its library, and with a row of specdemo; remove the rows'
    ``ids``.

    The baseline of another library is compared with specdemo's baseline, its other methods with specdemo's
    first drafter.
    """
    ours = {row["alone"]: row for row in rows if row["library"] == OURS and row["name"] in (ALONE, drafter)}
    baselines = {row["library"]: row for row in rows if row["alone"]}
    for row in rows:
        base = None if row["alone"] else baselines.get(row["library"])
        row["speedup"] = None
        if base and min(row["tokens"], base["tokens"]) >= MIN_TOKENS:
            row["speedup"] = row["tokens_per_s"] / base["tokens_per_s"]
        row["identical"] = base and row["ids"] == base["ids"]
        foreign = row["library"] != OURS
        row["ours"] = ours[row["alone"]]["tokens_per_s"] / row["tokens_per_s"] if foreign else None
    for row in rows:
        del row["ids"]


def _figure(title: str, summary: Sequence[dict[str, Any]]) -> go.Figure:
    """Draw a bar for each contender: its median tokens per second, with the quartiles."""
    colours, speeds = THEMES["light"], [item["tokens_per_s"] for item in summary]
    bars = go.Bar(
        x=[speed["median"] for speed in speeds],
        y=[f"{item['library']}: {item['name']} ({item['precision']})" for item in summary],
        orientation="h",
        marker_color=[colours.accepted if item["library"] == OURS else colours.muted for item in summary],
        error_x={
            "array": [speed["q3"] - speed["median"] for speed in speeds],
            "arrayminus": [speed["median"] - speed["q1"] for speed in speeds],
        },
        text=[f"{speed['median']:.1f}" for speed in speeds],
    )
    return go.Figure(
        bars, {"title": {"text": title}, "margin": {"l": 360}, "yaxis": {"autorange": "reversed"}}
    )
