"""The command ``specdemo train``: its files, resume, --start, and what it refuses."""

import pytest
import torch
from helpers.tiny_training import KilledError, killed_at, train

from specdemo.models.weight_files import load_weights
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import NONE, Sources
from specdemo.training import budget, evaluation, stages
from specdemo.training import distil as distil_module
from specdemo.training.batched import SampledBatch
from specdemo.training.distil import distil
from specdemo.training.labelled_text import read_text, seconds_spent

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


@pytest.mark.parametrize("kind", ["model", "feature"])
def test_a_training_goes_on_from_a_draft_with_its_head(folder, tmp_path, brief, capsys, kind, monkeypatch):
    asked = ["--kind", kind, "--steps", "1"]
    assert train(folder, tmp_path / "first", *asked) == 0
    begun = {}

    def seen(student, text, recipe, work):
        begun.update({name: tensor.clone() for name, tensor in student.own_state().items()})
        return distil(student, text, recipe, work)

    monkeypatch.setattr(stages, "distil", seen)
    more = ["--start", str(tmp_path / "first"), "--seed", "5"]
    assert train(folder, tmp_path / "second", *asked, *more) == 0
    first, second = (load_weights(tmp_path / name) for name in ("first", "second"))
    assert torch.equal(first["id_map"], second["id_map"]) and len(first["id_map"]) <= 200
    for name, tensor in first.items():
        torch.testing.assert_close(begun[name].float(), tensor.float(), atol=1e-3, rtol=1e-2)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    card = (tmp_path / "second" / "README.md").read_text()
    assert f"--start {tmp_path / 'first'}" in card
    assert f"continues from the draft in {tmp_path / 'first'}" in card
    other = {"model": "feature", "feature": "model"}[kind]
    assert train(folder, tmp_path / "third", "--kind", other, "--steps", "1", *more) == 2
    assert f"choose the folder of a draft that `specdemo train --kind {other}`" in capsys.readouterr().err


def test_a_training_killed_at_every_stage_resumes_to_the_same_weights(
    folder, tmp_path, brief, monkeypatch, capsys
):
    def die(*args, **kwargs):
        raise KilledError

    assert train(folder, tmp_path / "whole", "--steps", "3") == 0
    for stage in ("write_text", "distil", "evaluate_draft"):
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(stages, stage, die)
            train(folder, tmp_path / "killed", "--steps", "3", "--resume")
    assert train(folder, tmp_path / "killed", "--steps", "3", "--resume") == 0
    whole, killed = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "killed"))
    assert whole == killed
    assert train(folder, tmp_path / "whole", "--steps", "3") == 2
    assert "add --resume to continue" in capsys.readouterr().err
    assert train(folder, tmp_path / "whole", "--steps", "2", "--resume") == 2
    assert "different settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--steps", "0"], "--steps must be more than 0"),
        (["--minutes", "nan"], "--minutes must be more than 0"),
        (["--steps", "2", "--layers", "9"], "has 2 layers; set --layers to a number from 1 to 2"),
        (["--steps", "2", "--target", "/nowhere"], "--target must be a hub id"),
        (["--steps", "2", "--out", "/proc/nowhere"], "/proc/nowhere"),
        (["--steps", "2", "--start", "/nowhere"], "--start must be an existing folder"),
        (["--kind", "n-gram", "--text", "nowhere"], "--text must be an existing folder"),
        (["--kind", "n-gram", "--start", "/nowhere"], "--start does not support"),
        (["--start", "/nowhere", "--layers", "1"], "leave out --layers"),
    ],
)
def test_wrong_arguments_get_one_sentence(folder, tmp_path, capsys, more, sentence):
    assert train(folder, tmp_path / "d", *more) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence in error and error.startswith("specdemo: ")


# Trainings of ``--minutes``

PART = {"model": "draft", "feature": "feature_draft", "n-gram": "n_gram"}
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
        events = evaluation.TracedRun.events

        def slow_events(run):
            for event in events(run):
                self.work("evaluation")
                yield event

        monkeypatch.setattr(evaluation.TracedRun, "events", slow_events)

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
def test_every_stage_stops_at_its_share_of_the_minutes_and_leaves_a_draft_that_loads(
    folder, tmp_path, monkeypatch, capsys, kind, writing, training
):
    machine = Machine(monkeypatch)
    assert train(folder, tmp_path, "--kind", kind, "--minutes", "3") == 0
    assert writing <= machine.seconds["writing"] <= writing + 4
    assert training - 4 <= machine.seconds["training"] <= training + 4
    assert machine.seconds["evaluation"] <= 18 + 8
    out = capsys.readouterr()
    assert "tokens of text are few for a good draft" in out.out and "saved to" in out.out
    assert "tokens/s" in out.err and "left" in out.err
    card, work = (tmp_path / "README.md").read_text(), tmp_path / "work"
    assert "identical" in card and "$" not in card and f"--kind {kind} --minutes 3" in card
    assert (work / "curve.html").is_file() == (kind != "n-gram")
    written = read_text(work / "text")[0]
    assert (written.states is None) == (kind != "feature")
    pair = load_sources(Sources(**{"target": folder, "draft": NONE, PART[kind]: str(tmp_path)}, device="cpu"))
    if kind == "n-gram":
        assert "n-gram" in pair.drafters and "draft-model" not in pair.drafters
        assert pair.n_gram.after(written.ids.tolist()[:-1]) is not None


def test_time_that_writing_leaves_goes_to_training(folder, tmp_path, monkeypatch):
    machine = Machine(monkeypatch)
    monkeypatch.setattr(budget, "MAX_PROMPTS", 64)
    assert train(folder, tmp_path, "--minutes", "12") == 0
    assert machine.seconds["writing"] < 300
    assert machine.seconds["writing"] + machine.seconds["training"] == pytest.approx(0.9 * 720, abs=6)


def test_a_resumed_training_spends_the_minutes_once(folder, tmp_path, monkeypatch):
    machine = Machine(monkeypatch)
    monkeypatch.setattr(distil_module, "CHECKPOINT_STEPS", 5)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(distil_module, "batch_loss", killed_at(12, distil_module.batch_loss))
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
    assert "In 0.05 minutes the target wrote only" in error and "too few for a draft" in error
