"""The modules of the static copy with models: the figures, draft lengths and weights of this program."""

import json
import random
import subprocess
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from helpers.node import node
from helpers.waiting import PATIENCE_S

from specdemo.asset_paths import RECORDINGS
from specdemo.engine.draft_length import PlannedLength
from specdemo.engine.race import replay_events
from specdemo.records import recordings, trace_file
from specdemo.records.trace import Calibration, Rule, dump
from specdemo.ui.component import STATIC
from specdemo.ui.site import LIVE

MAX_K = 8
EVENTS = """
const { RunLog } = await import(`${live}/run_log.js`);
const pieces = Object.assign({}, ...events.map((event) => event.pieces ?? {}));
const log = new RunLog(events[0].run, events[0].specials, (id) => pieces[id]);
answer(events.map(({ type, lane, round }) => log[type](lane, round)));
"""
LENGTHS = """
const { PlannedLength } = await import(`${live}/lengths.js`);
const length = new PlannedLength(costs, maxK);
answer(rounds.map(([limit, rate, draftS, verifyS]) => {
  const k = length.start(limit);
  const accepted = Math.floor(rate * (k + 1));
  length.observe(Math.min(k, accepted), Math.min(k, accepted + 1));
  length.timed(k, k + 1, k * draftS, verifyS);
  return k;
}));
"""
WEIGHTS = """
const { place } = await import(`${live}/weights.js`);
const memory = { buffer: new ArrayBuffer(2 * rows * columns) };
place(new Uint8Array(bytes), [[0, kind, rows, columns]], memory);
answer([...new Uint16Array(memory.buffer)]);
"""


@pytest.fixture(autouse=True)
def builtin_recordings(monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", RECORDINGS)


def from_node(code: str, **given: Any) -> Any:
    """Run code with the names ``given``; return what it gives to ``answer``."""
    names = ", ".join(["live", *given])
    begin = f"const {{ {names} }} = JSON.parse((await import('node:fs')).readFileSync(0));"
    begin += "const answer = (value) => console.log(JSON.stringify(value));"
    sent = dump({"live": (STATIC / LIVE).as_uri(), **given})
    command = [node(), "--input-type=module", "-e", begin + code]
    done = subprocess.run(command, input=sent, capture_output=True, encoding="utf-8", timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_alike(found: Any, expected: Any, path: str = "") -> None:
    """Compare values; Python adds up numbers more exactly than JavaScript."""
    if isinstance(expected, float) and found is not None:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), path
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name, value in expected.items():
            assert_alike(found[name], value, f"{path}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for index, value in enumerate(expected):
            assert_alike(found[index], value, f"{path}[{index}]")
    else:
        assert found == expected, path


def greedy_recordings() -> list[str]:
    names = [path.stem for path in RECORDINGS.glob("*.json") if path.stem != "index"]
    return [name for name in names if recordings.load(name).config.rule is Rule.GREEDY]


def test_a_run_whose_output_repeats_itself_gets_the_remark_of_the_server():
    raw = json.loads((RECORDINGS / "arrival.json").read_text(encoding="utf-8"))
    known = sorted(map(int, raw["pieces"]))[:2]
    for round_ in (round_ for lane in raw["lanes"].values() for round_ in lane["rounds"]):
        for token in filter(None, (*round_["drafted"], round_["emission"])):
            token["id"] = known[token["id"] % 2]
    events = json.loads(dump(list(replay_events(trace_file.load(json.dumps(raw))))))
    assert "The output repeats itself" in events[-1]["remarks"]
    assert_alike(from_node(EVENTS, events=events), events)


def test_a_run_of_one_token_gets_the_sentence_of_the_server():
    raw = json.loads((RECORDINGS / "arrival.json").read_text(encoding="utf-8"))
    raw["config"]["max_new_tokens"] = 1
    for lane in raw["lanes"].values():
        lane["rounds"] = [raw["lanes"]["baseline"]["rounds"][0] | {"finish": "length"}]
    raw["totals"] = None
    events = json.loads(dump(list(replay_events(trace_file.load(json.dumps(raw))))))
    assert "one new token needs no draft" in events[-1]["sentence"]
    assert_alike(from_node(EVENTS, events=events), events)


@pytest.mark.parametrize("name", greedy_recordings())
def test_figures_and_sentences_of_a_greedy_run_are_those_of_the_server(name):
    events = json.loads(dump(list(replay_events(recordings.load(name)))))
    assert len(events) > 9
    assert_alike(from_node(EVENTS, events=events), events)


@pytest.mark.parametrize(
    ("c", "growth", "seed"), [(0.06, 0.02, 1), (0.1, 0.5, 2), (0.3, 0.05, 3), (2.0, 0.1, 4)]
)
def test_draft_lengths_are_chosen_as_on_the_server(c, growth, seed):
    costs = Calibration(0.01, c, tuple(1 + growth * n for n in range(MAX_K + 1)), None)
    dice = random.Random(seed)
    rounds = [
        (
            min(MAX_K, 99 - index),
            dice.random() ** 2,
            0.01 * c * dice.uniform(0.8, 3),
            0.01 * dice.uniform(0.9, 2),
        )
        for index in range(99)
    ]
    length, expected = PlannedLength(costs), []
    for limit, rate, draft_s, verify_s in rounds:
        length.start(limit)
        k = 0
        while length.wants_step():
            length.wants_token(torch.empty(0))
            k += 1
        accepted = int(rate * (k + 1))
        length.observe(min(k, accepted), min(k, accepted + 1), accepted + 1)
        length.timed(k, k + 1, k * draft_s, verify_s)
        expected.append(k)
    sent = {"step_s": costs.step_s, "c": c, "v": costs.v}
    assert from_node(LENGTHS, costs=sent, maxK=MAX_K, rounds=rounds) == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_quantized_weights_become_the_servers_in_the_order_of_a_pass(kind):
    numbers = np.random.default_rng(1).normal(size=(8, 96)).astype(np.float32)
    numbers[0] *= 1e-6  # scales that fp16 stores with fewer bits
    blocks = quantize(numbers, GGMLQuantizationType[kind])
    weights = torch.from_numpy(dequantize(blocks, GGMLQuantizationType[kind])).bfloat16()
    expected = weights.reshape(2, 4, 24, 4).transpose(1, 2).flatten().view(torch.uint16)
    sent = {"bytes": blocks.flatten().tolist(), "kind": kind, "rows": 8, "columns": 96}
    assert from_node(WEIGHTS, **sent) == expected.tolist()
