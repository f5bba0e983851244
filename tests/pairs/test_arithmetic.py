"""Choosing what to compute in: from figures alone, without a clock or a model of any size."""

import json

import pytest
import torch
from torch import nn

from specdemo.pairs import measurements as kept
from specdemo.pairs import tune
from specdemo.pairs.arithmetic import (
    asked_sentence,
    chosen_sentence,
    expected_rate,
    expected_rate_of_draft,
    fastest_target,
    promising,
)
from specdemo.pairs.measurements import Measurements, fingerprint
from specdemo.records.limits import UserError
from specdemo.records.trace import Calibration

FLAT, STEEP = (1.0,) * 13, tuple(1.0 + 0.5 * n for n in range(13))


def costs(step_s: float, v: tuple[float, ...] = FLAT, c: float = 0.0) -> Calibration:
    return Calibration(step_s=step_s, c=c, v=v, row_floor=1)


def test_the_rate_is_that_of_the_best_length_and_never_less_than_the_target_alone():
    assert expected_rate(costs(0.02, STEEP, c=0.5)) == pytest.approx(1 / 0.02)
    free = expected_rate(costs(0.02))
    assert free == pytest.approx((1 - 0.5**9) / 0.5 / 0.02), "eight free drafts"
    assert expected_rate(costs(0.02, c=0.1)) < free


def test_a_slower_pass_wins_where_verification_is_nearly_free():
    best, rates = fastest_target({"bf16": costs(0.055, STEEP), "fp32": costs(0.07), "fp16": costs(0.033)})
    assert best == "fp16" and rates["fp32"] > rates["bf16"], "alone bf16 would be faster"
    assert fastest_target({"bf16": costs(0.018), "fp16": costs(0.018, STEEP)})[0] == "bf16"


def test_a_draft_is_charged_for_what_rounding_costs_it():
    slower, faster = costs(0.02, c=0.051), costs(0.02, c=0.05)
    assert expected_rate_of_draft(slower, "int8") > expected_rate_of_draft(faster, "int4")
    assert expected_rate_of_draft(costs(0.02, c=0.09), "int8") < expected_rate_of_draft(faster, "int4")


def test_only_what_works_and_is_not_hopeless_is_measured():
    seconds = {"bf16": 0.2, "fp16": 0.05, "fp32": 0.07, "none": None}
    assert promising(seconds, seconds.get) == ["fp16", "fp32"]
    assert promising(["none"], seconds.get) == []


def test_the_sentences_name_what_was_compared():
    said = chosen_sentence("fp16", "int8", {"fp16": 41.4, "fp32": 28.3, "bf16": 9.2})
    assert said.startswith("fp16 was chosen by measurement")
    assert "41 tokens/s (fp32 28, bf16 9)" in said and said.endswith("drafts run in int8.")
    assert "rounds the target" in asked_sentence("int4", "int4")
    assert "keeps the target's stored numbers" in asked_sentence("fp32", "int8")


class Target(nn.Module):
    """Enough of a model for its passes to be faked."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.embedding = nn.Embedding(3, 2)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding


def test_candidates_that_fail_are_left_out_and_models_are_let_go_of(monkeypatch):
    glances = {"bf16": 1.0, "fp16": 1.2}
    measured = []
    monkeypatch.setattr(tune, "_first_sight", lambda model: glances[model.name])
    monkeypatch.setattr(tune, "find_good_rows", lambda model, *_: (1, 13))
    monkeypatch.setattr(tune, "measure_target", lambda model, *_: measured.append(model.name) or costs(1.0))

    def build(name: str) -> nn.Module:
        if name == "fp32":
            raise UserError("not here")
        return Target(name)

    steps = []
    found = tune.measure_targets(
        ["fp32", "fp16", "bf16"], build, lambda text, share: steps.append((text, share))
    )
    assert list(found) == measured == ["bf16", "fp16"]
    assert steps[-1][0] == "Measuring passes in fp16" and all(0 <= share <= 1 for _, share in steps)

    def measure(name: str) -> Calibration:
        if name == "int4":
            raise RuntimeError("no such kernel")
        return costs(1.0)

    assert list(tune.measure_drafts(["int4", "int8"], measure, lambda *_: None)) == ["int8"]


def test_measurements_outlive_the_process_and_are_the_machines_own(tmp_path, monkeypatch):
    first = Measurements(tmp_path)
    first.put({"fp16": 41.5}, "target", "a model")
    again = Measurements(tmp_path)
    assert again.get("target", "a model") == {"fp16": 41.5} and again.get("target", "another") is None
    assert Measurements(tmp_path, fresh=True).get("target", "a model") is None
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert Measurements(tmp_path).get("target", "a model") is None, "a lesser processor is played"
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert Measurements(tmp_path).get("target", "a model") is None


def test_what_is_measured_anew_takes_the_place_of_what_was(tmp_path):
    Measurements(tmp_path).put(1, "x")
    fresh = Measurements(tmp_path, fresh=True)
    fresh.put(2, "x")
    assert fresh.get("x") == Measurements(tmp_path).get("x") == 2
    (entry,) = json.loads((tmp_path / kept.FILE).read_text()).values()
    assert entry["what"] == ["x"] and "torch" in entry["machine"]


def test_what_was_kept_reads_the_same_in_this_process_and_in_the_next(tmp_path):
    first = Measurements(tmp_path)
    first.put({"v": (1.0, 2.0), "rows": ()}, "costs")
    assert first.get("costs") == Measurements(tmp_path).get("costs") == {"v": [1.0, 2.0], "rows": []}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', "\x00"])
def test_a_damaged_file_of_measurements_is_as_none(tmp_path, content):
    (tmp_path / kept.FILE).write_text(content)
    found = Measurements(tmp_path)
    assert found.get("x") is None
    found.put(1, "x")
    assert Measurements(tmp_path).get("x") == 1


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("")
    found = Measurements(tmp_path / "file" / "below")
    found.put(1, "x")
    assert found.get("x") == 1


def test_another_model_in_the_same_folder_is_another_model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"12")
    before = fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"123")
    assert fingerprint(tmp_path) != before and before.startswith(tmp_path.name)
