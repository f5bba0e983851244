"""Minutes that are kept: which arithmetic is fastest on a machine, and what it has time for."""

import json

import pytest
import torch
from helpers.tiny_training import KilledError, train

from specdemo.records.limits import UserError
from specdemo.training import arithmetic, clock, stages
from specdemo.training import distil as distil_module
from specdemo.training import evaluate as evaluate_module
from specdemo.training.arithmetic import TargetFiles, chosen, try_writing, writers
from specdemo.training.batched import BatchedDecoder
from specdemo.training.evaluate import evaluate_draft
from specdemo.training.pace import Trial
from specdemo.training.pool import prompt_pool
from specdemo.training.write import read_text

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


class Machine:
    """Time that passes only where work is done: per token written or learned, and per round decoded."""

    WRITERS = ("Linear", "bf16"), ("HalfLinear", "fp16"), ("BlockedLinear", "fp32")

    def __init__(self, monkeypatch, writing, learning, round_s=0.1):
        self.time, self.writing, self.learning, self.round_s = 0.0, writing, learning, round_s
        monkeypatch.setattr(clock, "now", lambda: self.time)
        monkeypatch.setattr(evaluate_module, "race", self.slow_race(evaluate_module.race))
        monkeypatch.setattr(evaluate_module, "LiveRun", self.live_run(evaluate_module.LiveRun))
        monkeypatch.setattr(BatchedDecoder, "_pass", self.slow_pass(BatchedDecoder._pass))
        monkeypatch.setattr(distil_module, "_loss", self.slow_loss(distil_module._loss))

    def slow_pass(self, real):
        names = dict(self.WRITERS)

        def run(decoder, ids, positions, mask):
            name = names[type(decoder._model.lm_head).__name__]
            self.time += 0.05 + ids.numel() / self.writing[name]
            return real(decoder, ids, positions, mask)

        return run

    def slow_loss(self, real):
        def run(student, batch, labels, recipe):
            self.time += sum(len(item.ids) for item in batch) / self.learning[recipe.arithmetic]
            return real(student, batch, labels, recipe)

        return run

    def slow_race(self, real):
        def run(lanes):
            for item in real(lanes):
                self.time += self.round_s
                yield item

        return run

    def live_run(self, real):
        machine = self

        class LiveRun(real):
            def events(self):
                for event in super().events():
                    machine.time += machine.round_s
                    yield event

        return LiveRun


WITHOUT_BF16 = {"writing": {"bf16": 12, "fp16": 80, "fp32": 70}, "learning": {"bf16": 40, "fp32": 250}}
WITH_BF16 = {"writing": {"bf16": 200, "fp16": 80, "fp32": 70}, "learning": {"bf16": 600, "fp32": 250}}


def read_pace(out):
    return json.loads((out / "work" / "pace.json").read_text())


@pytest.mark.parametrize(
    ("kind", "speeds", "written", "learned"),
    [
        ("model", WITHOUT_BF16, "fp16", "fp32"),
        ("feature", WITH_BF16, "bf16", "bf16"),
        pytest.param("feature", WITHOUT_BF16, "fp16", "fp32", marks=pytest.mark.slow),
        pytest.param("model", WITH_BF16, "bf16", "bf16", marks=pytest.mark.slow),
    ],
)
def test_minutes_are_kept_in_the_arithmetic_that_is_fastest_here(
    folder, tmp_path, monkeypatch, capsys, kind, speeds, written, learned
):
    machine = Machine(monkeypatch, **speeds)
    assert train(folder, tmp_path, "--kind", kind, "--minutes", "3") == 0
    assert 162 <= machine.time <= 198
    pace = read_pace(tmp_path)
    assert (pace["writing"], pace["learning"]) == (written, learned)
    card, told = (tmp_path / "README.md").read_text(), capsys.readouterr()
    assert f"Text is written in {written}" in card and f"learned in {learned}" in card
    assert f"Text is written in {written}" in told.out and "too little for a good draft" in told.out
    assert "tokens/s" in told.err and "left" in told.err
    assert read_text(tmp_path / "work" / "text")[0].states is None or kind == "feature"


def test_a_resumed_training_keeps_its_arithmetic_and_its_time(folder, tmp_path, monkeypatch):
    machine = Machine(monkeypatch, **WITHOUT_BF16)
    real, calls = distil_module._save, iter(range(10**6))

    def dying(*arguments):
        real(*arguments)
        if next(calls) == 0:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(distil_module, "_save", dying)
        with pytest.raises(KilledError):
            train(folder, tmp_path, "--minutes", "3")
    before = read_pace(tmp_path)
    machine.writing, machine.learning = WITH_BF16["writing"], {"fp32": 250}
    assert train(folder, tmp_path, "--minutes", "3", "--resume") == 0
    assert read_pace(tmp_path) == before
    assert machine.time < 240, "but for loading and half an evaluation no more than was asked for"


def test_minutes_that_cannot_be_enough_are_refused_at_once(folder, tmp_path, monkeypatch, capsys):
    machine = Machine(monkeypatch, {"bf16": 1, "fp16": 3, "fp32": 2}, {"bf16": 5, "fp32": 20})
    assert train(folder, tmp_path, "--minutes", "3") == 2
    sentence = capsys.readouterr().err.strip().splitlines()[-1]
    assert "3 minutes are not enough here" in sentence and "tokens/s; give --minutes" in sentence
    assert machine.time < 180, "nothing was written or learned"
    minutes = sentence.split("--minutes ")[1].split(" ")[0]
    assert int(minutes) > 5
    with pytest.raises(KilledError), monkeypatch.context() as patch:
        patch.setattr(stages, "write_text", lambda *args, **kwargs: (_ for _ in ()).throw(KilledError))
        train(folder, tmp_path, "--minutes", minutes)


def test_what_fails_here_is_no_candidate(folder, monkeypatch):
    def broken(model, *precisions):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(arithmetic, "pack_linears", broken)
    files = TargetFiles(folder, torch.device("cpu"))
    names = writers(files.plain())
    assert set(names) == {"bf16", "fp16", "fp32"}
    found = try_writing(files, names, (), 1.0)
    assert set(found) == {"bf16"} and 1 in found["bf16"] and 8 in found["bf16"]
    with pytest.raises(UserError, match="No text can be written on this device"):
        try_writing(files, ("fp16", "fp32"), (), 1.0)


def test_a_target_that_does_not_fit_twice_is_tried_in_bf16_only(folder, monkeypatch):
    monkeypatch.setattr(arithmetic, "free_ram", lambda: 1)
    assert writers(TargetFiles(folder, torch.device("cpu")).plain()) == ("bf16",)


def test_of_about_equal_arithmetics_the_same_one_is_taken_every_time():
    assert chosen({"fp32": 110.0, "fp16": 100.0, "bf16": 95.0}) == "bf16"
    assert chosen({"fp32": 110.0, "fp16": 100.0, "bf16": 37.0}) == "fp16"
    assert chosen({"fp32": 190.0, "bf16": 37.0}) == "fp32"


def test_minutes_are_kept_where_text_is_only_counted(folder, tmp_path, monkeypatch, capsys):
    machine = Machine(monkeypatch, **WITHOUT_BF16)
    assert train(folder, tmp_path, "--kind", "n-gram", "--minutes", "3") == 0
    # What the evaluation does not need nobody else can use: the text is written by then.
    assert 144 <= machine.time <= 198
    assert read_pace(tmp_path)["learning"] == ""
    assert "learned in" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["model", pytest.param("feature", marks=pytest.mark.slow)])
def test_an_evaluation_without_measurements_finds_the_same_draft(folder, tmp_path, brief, kind):
    assert train(folder, tmp_path, "--kind", kind, "--steps", "20") == 0
    prompts = prompt_pool(3, seed=5)
    full, brief_one = (
        evaluate_draft(folder, kind, tmp_path, prompts, "cpu", "fp32", calibrated=calibrated)
        for calibrated in (True, False)
    )
    assert full["prompts"] == brief_one["prompts"] == 3
    assert brief_one["alpha"] == pytest.approx(full["alpha"], abs=0.1)
    assert brief_one["tau"] == pytest.approx(full["tau"], abs=0.2)
    assert brief_one["c"] > 0 and brief_one["speedup"] > 0


def test_a_meter_says_tokens_a_second_and_the_time_left(monkeypatch, capsys):
    times = iter([0.0, 10.0, 10.0, 10.0])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    clock.Meter("distil", share=0.2, left_s=90.0).show(0.4, 2_000)
    drawn = capsys.readouterr().err
    assert "distil: 1:30 left" in drawn and "distil: 2,000 tokens, 200 tokens/s, 0:30 left" in drawn
    assert [clock.clock_face(seconds) for seconds in (5, 75, 7_500)] == ["0:05", "1:15", "2:05:00"]


def test_a_shard_has_the_rows_that_write_fastest_in_its_time():
    steps = {1: 0.1, 8: 0.2, 16: 0.3, 32: 0.5, 64: 1.2}
    assert Trial({"fp16": steps}, {}, 0.0).rows("fp16") == 32
    assert Trial({"fp16": steps}, {}, 0.0, longest_s=0.4).writing == {"fp16": 16 / 0.3}
    assert Trial({"fp16": steps}, {}, 0.0, longest_s=0.05).rows("fp16") == 8
