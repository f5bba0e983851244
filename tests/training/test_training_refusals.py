"""Errors of the system during a training: one sentence that helps."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.tiny_training import train
from safetensors import SafetensorError

from specdemo.models import weight_files
from specdemo.models.weight_files import load_weights, save_weights
from specdemo.records.limits import UserError
from specdemo.training import stages
from specdemo.training.budget import TrainingPlan, save_plan
from specdemo.training.labelled_text import save_atomically


def raising(error: Exception) -> Callable[..., None]:
    def run(*_: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plan.json", b"{"),
        ("plan.json", b"[" * 100_000),
        ("text/seconds.txt", b"nan"),
        ("text/seconds.txt", b""),
        ("text/text-00000.pt", None),
        ("text/text-00000.pt", b""),
        ("text/text-00000.pt", b"\x80\x04K\x01."),
        ("checkpoint.pt", None),
    ],
)
def test_a_damaged_file_of_a_training_is_named_before_anything_is_loaded(
    tmp_path, capsys, monkeypatch, name, content
):
    monkeypatch.setattr(stages, "chosen_device", lambda *_: pytest.fail("loaded"))
    work = tmp_path / "work"
    save_plan(TrainingPlan("any", "model", 1, None, layers=1, head=200), work)
    (work / "text").mkdir()
    save_atomically([], work / "text" / "text-00000.pt")
    save_atomically({}, work / "checkpoint.pt")
    damaged = work / name
    damaged.write_bytes(damaged.read_bytes()[:-100] if content is None else content)
    assert train("any", tmp_path, "--steps", "1", "--resume") == 2
    assert capsys.readouterr().err.startswith(f"specdemo: {damaged} is damaged; ")


@pytest.mark.parametrize(
    ("number", "to_do"),
    [
        (errno.ENOSPC, "free some space, then run the same command with --resume"),
        (errno.EDQUOT, "free some space, then run the same command with --resume"),
        (errno.EACCES, "choose another folder for --out"),
        (errno.EROFS, "choose another folder for --out"),
        (errno.ENOTDIR, "choose another folder for --out"),
        (errno.EIO, "solve this problem, then run the same command with --resume"),
    ],
)
def test_an_error_of_the_system_becomes_a_sentence_that_helps(tmp_path, capsys, monkeypatch, number, to_do):
    monkeypatch.setattr(stages, "chosen_device", raising(OSError(number, os.strerror(number), "/some/file")))
    assert train("any", tmp_path, "--steps", "1") == 2
    assert capsys.readouterr().err == f"specdemo: Cannot use /some/file: {os.strerror(number)}; {to_do}.\n"


def test_a_file_in_place_of_the_folder_is_not_reported_as_a_full_disk(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert train("any", tmp_path / "taken", "--steps", "1") == 2
    assert "Not a directory; choose another path" in capsys.readouterr().err


def test_a_damaged_builtin_target_is_made_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stages, "chosen_device", raising(UserError("Cannot load it.")))
    monkeypatch.setattr(stages, "mended_target", lambda progress: True)
    assert train("built-in", tmp_path, "--steps", "1") == 2
    assert "are repaired now; run the same command again." in capsys.readouterr().err
    assert train("any", tmp_path, "--steps", "1") == 2
    assert capsys.readouterr().err == "specdemo: Cannot load it.\n"


def test_an_error_of_torchs_writer_is_reported_as_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "save", raising(RuntimeError("file write failed")))
    with pytest.raises(UserError, match=r"Cannot use .*text: file write failed; free some space, then run"):
        save_atomically({}, tmp_path / "text")


def test_a_full_disk_keeps_the_weights_of_an_earlier_training(tmp_path, monkeypatch):
    save_weights({"norm": torch.ones(4)}, tmp_path)

    def failing(state, folder, **options):
        (Path(folder) / "model-00001-of-00002.safetensors").write_bytes(b"cut")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(weight_files, "save_torch_state_dict", failing)
    with pytest.raises(UserError, match=r"Cannot write .*No space left on device"):
        save_weights({"norm": torch.zeros(4)}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert torch.equal(load_weights(tmp_path)["norm"], torch.ones(4, dtype=torch.bfloat16))
