"""``specdemo prove`` on a tiny pair."""

import pytest
from helpers.tiny import tiny_pair

import specdemo.pairs.load
from specdemo.cli import prove
from specdemo.cli.main import main

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def pair(monkeypatch):
    loaded = tiny_pair(noise=0.3)
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: loaded)
    return loaded


def test_audit_and_other_libraries_print_a_line_per_text(capsys):
    assert main(["prove", "--audit", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count(" 48 tokens  identical") == 2
    assert out.count("1 of 1 texts identical, 48 tokens compared.") == 2
    assert "greedy rule, temperature 0\n" in out and "shared-noise rule, temperature 0.8\n" in out
    assert "χ²" not in out
    assert main(["prove", "--other-libraries", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count(" 48 tokens  identical, smallest gap") == 1
    assert "0 of 1 texts differ, 48 tokens compared. The two highest logits are at least" in out


def test_the_distribution_test_prints_counts_and_verdict(capsys):
    assert main(["prove", "--distribution", "60"]) == 0
    captured = capsys.readouterr()
    assert (
        "was found (60 draws of 5 tokens per sample at temperature 1, top-k 2): total variation"
        in captured.out
    )
    assert "identical" not in captured.out and "Drawing continuations" in captured.err
    header, first = captured.out.splitlines()[:2]
    assert "speculative" in header and sum(map(int, first.split()[:2])) > 1


def test_a_control_alone_runs_the_distribution_test_and_gives_status_1(capsys, monkeypatch):
    monkeypatch.setattr(prove, "DRAWS", 200)
    assert main(["prove", "--control", "accept-everything"]) == 1
    assert "does not have the target's distribution" in capsys.readouterr().out
    assert main(["prove", "--control", "no-residual", "--audit", "2"]) == 2
    assert "add --distribution N" in capsys.readouterr().err.splitlines()[-1]
    assert main(["prove", "--other-libraries", "0"]) == 2
