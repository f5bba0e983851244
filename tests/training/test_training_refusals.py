"""What a training says where the system refuses it something: one sentence that helps."""

import errno
import os

import pytest
import torch

from specdemo.cli import main as cli
from specdemo.records.limits import UserError
from specdemo.training import stages
from specdemo.training.write import save_whole


def train(target, out):
    return cli.main(["train", "--target", target, "--out", str(out), "--device", "cpu", "--steps", "1"])


@pytest.mark.parametrize(
    ("number", "to_do"),
    [
        (errno.ENOSPC, "free some space and run the same command with --resume"),
        (errno.EDQUOT, "free some space and run the same command with --resume"),
        (errno.EACCES, "choose another --out"),
        (errno.EROFS, "choose another --out"),
        (errno.ENOTDIR, "choose another --out"),
        (errno.EIO, "put that right and run the same command with --resume"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_helps(tmp_path, capsys, monkeypatch, number, to_do):
    def failing(*asked):
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr(stages, "_train", failing)
    assert train("any", tmp_path) == 2
    assert capsys.readouterr().err == f"specdemo: Cannot use /some/file: {os.strerror(number)}; {to_do}.\n"


def test_a_file_where_the_folder_should_be_is_no_lack_of_space(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert train("any", tmp_path / "taken") == 2
    said = capsys.readouterr().err
    assert "Not a directory; choose another place" in said and "space" not in said


def test_a_damaged_embedded_target_is_made_anew_and_told_of(tmp_path, capsys, monkeypatch):
    def failing(*asked):
        raise UserError("Cannot load it.")

    monkeypatch.setattr(stages, "_train", failing)
    monkeypatch.setattr(stages, "mended_target", lambda progress: True)
    assert train("embedded", tmp_path) == 2
    assert "have been made anew; run the command again." in capsys.readouterr().err
    assert train("any", tmp_path) == 2
    assert capsys.readouterr().err == "specdemo: Cannot load it.\n"


def test_torchs_own_writer_tells_no_reason_but_a_full_disk_is_the_usual_one(tmp_path, monkeypatch):
    def failing(content, path):
        raise RuntimeError("file write failed")

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(UserError, match=r"Cannot use .*text: file write failed; free some space and run"):
        save_whole({}, tmp_path / "text")
