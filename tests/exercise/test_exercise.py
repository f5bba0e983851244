"""The exercise: its tests accept the solution, and name the law that a wrong one breaks."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .solution import Solution

FOLDER = Path(__file__).parents[2] / "assets" / "exercise"


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"exercise_{name}", FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TESTS = loaded("test_speculative")
EXERCISE = TESTS.speculative


def broken_laws(solution, monkeypatch):
    """Return the first word of each failed test's message, the name of the law."""
    for name in ("draft", "residual", "verify"):
        monkeypatch.setattr(EXERCISE, name, getattr(solution, name))
    laws = []
    for check, cases in (
        (TESTS.test_greedy_text_is_the_targets_own, [(1, 0.0), (3, 0.4), (3, 2.0)]),
        (TESTS.test_a_perfect_draft_is_accepted_whole, [()]),
        (TESTS.test_the_residual_distribution, [()]),
        (TESTS.test_sampled_tokens_have_the_targets_distribution, [()]),
        (TESTS.test_a_draft_forgets_rejected_tokens, [()]),
        (TESTS.test_nothing_follows_the_end_of_a_text_inside_a_draft, [([5, 0, 7], [5, 0]), ([0] * 3, [0])]),
    ):
        for case in cases:
            try:
                check(*case)
            except AssertionError as error:
                laws.append(str(error).partition(":")[0].splitlines()[0])
    return {law if law.isalpha() else "residual" for law in laws}


class NoRollback(Solution):
    def forget(self, model, ids):
        pass


class NoResidual(Solution):
    def residual(self, p, q):
        return p


class AcceptsEverything(Solution):
    def accepts(self, p, q, rng):
        return True


class AcceptsTooRarely(Solution):
    def accepts(self, p, q, rng):
        return torch.rand((), generator=rng) < p


class NoBonus(Solution):
    def verify(self, drafted, p, q, rng):
        return super().verify(drafted, p, q, rng)[: len(drafted)]


class ReadsPastTheEnd(Solution):
    def verify(self, drafted, p, q, rng):
        added = super().verify(drafted, p, q, rng)
        return [*added, 1] if self.exercise.END in added else added


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (NoRollback, "rollback"),
        (NoResidual, "residual"),
        (AcceptsEverything, "identity"),
        (AcceptsTooRarely, "acceptance"),
        (NoBonus, "bonus"),
        (ReadsPastTheEnd, "end"),
    ],
)
def test_a_wrong_solution_breaks_the_law_that_is_named(wrong, law, monkeypatch):
    assert law in broken_laws(wrong(EXERCISE), monkeypatch)


@pytest.mark.parametrize("wrong", [NoResidual, AcceptsEverything, AcceptsTooRarely])
def test_a_wrong_rule_changes_the_distribution(wrong, monkeypatch):
    assert "distribution" in broken_laws(wrong(EXERCISE), monkeypatch)


def test_the_solution_obeys_all_laws(monkeypatch):
    assert broken_laws(Solution(EXERCISE), monkeypatch) == set()


@pytest.mark.slow
def test_the_unsolved_exercise_says_what_to_write():
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", str(FOLDER)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=FOLDER.parents[1])
    assert result.returncode == 1 and "NotImplementedError: Write draft." in result.stdout
