"""Trainings of ``--minutes``: each stage stops at its share of the time, also after an interruption."""

import pytest
from helpers.tiny_training import KilledError, train

from specdemo.training import budget, evaluation, stages
from specdemo.training import distil as distil_module
from specdemo.training.batched import SampledBatch
from specdemo.training.labelled_text import read_text, seconds_spent

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
STEP_SECONDS = {"writing": 2.0, "training": 3.0, "evaluation": 1.0}


class Machine:
    """A fake clock that only work advances: steps of writing and training, events of the evaluation."""

    def __init__(self, monkeypatch):
        self.time = 0.0
        self.seconds = dict.fromkeys(STEP_SECONDS, 0.0)
        monkeypatch.setattr(budget, "now", lambda: self.time)
        monkeypatch.setattr(stages, "now", lambda: self.time)
        monkeypatch.setattr(SampledBatch, "sample", self.slow("writing", SampledBatch.sample))
        monkeypatch.setattr(distil_module, "train_step", self.slow("training", distil_module.train_step))
        machine = self

        class LiveRun(evaluation.LiveRun):
            def events(self):
                for event in super().events():
                    machine.work("evaluation")
                    yield event

        monkeypatch.setattr(evaluation, "LiveRun", LiveRun)

    def work(self, stage):
        self.time += STEP_SECONDS[stage]
        self.seconds[stage] += STEP_SECONDS[stage]

    def slow(self, stage, real):
        def run(*args, **kwargs):
            self.work(stage)
            return real(*args, **kwargs)

        return run


@pytest.mark.parametrize(
    ("kind", "writing", "training"), [("model", 90, 72), ("feature", 90, 72), ("n-gram", 162, 0)]
)
def test_every_stage_stops_at_its_share_of_the_minutes(
    folder, tmp_path, monkeypatch, capsys, kind, writing, training
):
    machine = Machine(monkeypatch)
    assert train(folder, tmp_path, "--kind", kind, "--minutes", "3") == 0
    assert writing <= machine.seconds["writing"] <= writing + 4
    assert training - 4 <= machine.seconds["training"] <= training + 4
    assert machine.seconds["evaluation"] <= 18 + 8
    out = capsys.readouterr()
    assert "tokens of text give a poor draft" in out.out
    assert "tokens/s" in out.err and "left" in out.err
    assert (read_text(tmp_path / "work" / "text")[0].states is None) == (kind != "feature")


def test_time_that_writing_leaves_goes_to_training(folder, tmp_path, monkeypatch):
    machine = Machine(monkeypatch)
    monkeypatch.setattr(budget, "MAX_PROMPTS", 64)
    assert train(folder, tmp_path, "--minutes", "12") == 0
    assert machine.seconds["writing"] < 300
    assert machine.seconds["writing"] + machine.seconds["training"] == pytest.approx(0.9 * 720, abs=6)


def test_a_resumed_training_spends_the_minutes_once(folder, tmp_path, monkeypatch):
    machine = Machine(monkeypatch)
    monkeypatch.setattr(distil_module, "CHECKPOINT_STEPS", 5)
    real, calls = distil_module.batch_loss, iter(range(10**6))

    def dying(*arguments):
        if next(calls) == 12:
            raise KilledError
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(distil_module, "batch_loss", dying)
        with pytest.raises(KilledError):
            train(folder, tmp_path, "--minutes", "3")
    written = seconds_spent(tmp_path / "work" / "text")
    assert train(folder, tmp_path, "--minutes", "3", "--resume") == 0
    assert machine.seconds["writing"] == written
    lost = 3 * STEP_SECONDS["training"]  # the steps since the last checkpoint
    assert machine.seconds["training"] == pytest.approx(72 + lost, abs=4)


def test_too_few_minutes_are_refused_with_a_number_that_is_enough(folder, tmp_path, monkeypatch, capsys):
    Machine(monkeypatch)
    assert train(folder, tmp_path / "short", "--minutes", "0.05") == 2
    error = capsys.readouterr().err
    assert "In 0.05 minutes the target wrote only" in error and "choose another --out and --minutes" in error
