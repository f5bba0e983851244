"""The command ``specdemo train``: its files, resume, --start, and what it refuses."""

from pathlib import Path

import pytest
import torch
from helpers.tiny_training import KilledError, train

from specdemo.models.draft_files import load_weights
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import NONE, Sources
from specdemo.training import stages
from specdemo.training.distil import distil
from specdemo.training.labelled_text import read_text

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
ASSETS = Path(__file__).parents[2] / "assets"


def test_the_command_leaves_a_table_of_n_grams_that_loads_and_drafts(folder, tmp_path, brief, capsys):
    assert train(folder, tmp_path / "d", "--kind", "n-gram", "--steps", "3") == 0
    card = (tmp_path / "d" / "README.md").read_text()
    assert "identical" in card and "$" not in card and "{" not in card and "--kind n-gram --steps 3" in card
    pair = load_sources(Sources(folder, NONE, n_gram=str(tmp_path / "d"), device="cpu"))
    assert {"n-gram", "lookup+n-gram"} <= set(pair.drafters) and not {"draft-model"} & set(pair.drafters)
    written = read_text(tmp_path / "d" / "work" / "text")[0].ids.tolist()
    assert pair.n_gram.after(written[:-1]) is not None


@pytest.mark.parametrize("kind", ["model", "feature"])
def test_the_command_leaves_a_draft_that_loads_with_card_and_curve(folder, tmp_path, brief, capsys, kind):
    assert train(folder, tmp_path / "d", "--kind", kind, "--steps", "3") == 0
    assert "saved to" in capsys.readouterr().out
    card = (tmp_path / "d" / "README.md").read_text()
    assert "identical" in card and "$" not in card and f"--kind {kind} --steps 3" in card
    assert (tmp_path / "d" / "work" / "curve.html").is_file()
    if kind == "model":
        load_sources(Sources(folder, str(tmp_path / "d"), device="cpu"))
    else:
        load_sources(Sources(folder, NONE, feature_draft=str(tmp_path / "d"), device="cpu"))


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
    assert f"choose a {other} draft" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["write_text", "distil", "evaluate_draft"])
def test_a_training_killed_at_any_stage_resumes_to_the_same_weights(
    folder, tmp_path, brief, stage, monkeypatch
):
    assert train(folder, tmp_path / "whole", "--steps", "3") == 0
    with monkeypatch.context() as patch:

        def die(*args, **kwargs):
            raise KilledError

        patch.setattr(stages, stage, die)
        with pytest.raises(KilledError):
            train(folder, tmp_path / "killed", "--steps", "3")
    assert train(folder, tmp_path / "killed", "--steps", "3", "--resume") == 0
    whole, killed = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "killed"))
    assert whole == killed


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--steps", "0"], "--steps must be more than 0"),
        (["--minutes", "nan"], "--minutes must be more than 0"),
        (["--steps", "2", "--layers", "9"], "has 2 layers; choose --layers from 1 to 2"),
        (
            ["--steps", "2", "--target", "/nowhere"],
            "--target takes a hub id or a folder, and /nowhere is not a folder",
        ),
        (["--steps", "2", "--out", "/proc/nowhere"], "/proc/nowhere"),
        (["--steps", "2", "--start", "/nowhere"], "--start takes a folder, and /nowhere is not one"),
        (["--kind", "n-gram", "--text", "nowhere"], "--text takes a folder, and nowhere is not one"),
        (["--kind", "n-gram", "--start", "/nowhere"], "--start does not support tables of n-grams"),
        (
            ["--start", "/nowhere", "--layers", "1"],
            "--start keeps the draft's head and depth; leave out --layers",
        ),
    ],
)
def test_wrong_arguments_get_one_sentence(folder, tmp_path, capsys, more, sentence):
    assert train(folder, tmp_path / "d", *more) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence in error and error.startswith("specdemo: ")


def test_another_training_in_the_same_place_is_refused(folder, tmp_path, brief, capsys):
    assert train(folder, tmp_path, "--steps", "1") == 0
    assert train(folder, tmp_path, "--steps", "1") == 2
    assert "add --resume to continue it" in capsys.readouterr().err
    assert train(folder, tmp_path, "--steps", "2", "--resume") == 2
    assert "different settings" in capsys.readouterr().err
