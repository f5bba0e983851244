"""The package's public API: names, a light import, and the README's examples."""

import ast
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from helpers.on_disk import save_pair
from helpers.readme import example
from helpers.tiny import tiny_pair

import specdemo
import specdemo.pairs.load
from specdemo.records.trace import BASELINE, SPECULATIVE, Finish
from specdemo.records.trace_file import load

PROMPT = "naïve 🎉"
SETTINGS = {"mode": "raw", "max_new_tokens": 12}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def test_importing_the_package_loads_no_torch_and_every_name_is_there():
    code = "import sys, specdemo; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(specdemo.__all__) <= set(dir(specdemo))
    names: dict[str, Any] = {}
    exec("from specdemo import *", names)
    wanted = ("StreamDecoder", "UserError", "compare", "load_pair", "speculate")
    assert all(callable(names[name]) for name in wanted)
    with pytest.raises(AttributeError, match=r"^module 'specdemo' has no attribute 'specualte'$"):
        specdemo.specualte  # noqa: B018


def test_two_saved_models_make_a_pair(tmp_path_factory):
    folders = save_pair(tmp_path_factory, noise=0.02)
    pair = specdemo.load_pair(*folders, precision="fp32", device="cpu")
    assert (pair.precision, pair.device.type) == ("fp32", "cpu")
    totals = specdemo.compare(pair, PROMPT, **SETTINGS).totals
    assert totals["identical"] and totals["alpha_compared"] > 0
    with pytest.raises(specdemo.UserError, match="choose a draft model for"):
        specdemo.load_pair(folders[0])


def test_rounds_arrive_one_by_one_and_give_the_targets_text(pair):
    rounds = specdemo.speculate(pair, PROMPT, **SETTINGS, k=4)
    first = next(rounds)
    assert len(first.drafted) == 4 and first.finish is None
    rest = list(rounds)
    assert rest[-1].finish is Finish.LENGTH
    ids = [token for round_ in (first, *rest) for token in round_.emitted]
    assert ids == specdemo.compare(pair, PROMPT, **SETTINGS).lanes[BASELINE].ids


def test_a_comparison_is_a_whole_run_with_figures_that_can_be_saved(pair):
    run = specdemo.compare(pair, PROMPT, **SETTINGS, rule="shared-noise", temperature=0.8, seed=3)
    assert run.config.seed == 3 and run.totals["tokens"] == 12
    assert run.totals["identical"] is True and run.totals["speedup"] > 0
    assert load(run.to_json()) == run
    assert set(run.lanes) == {SPECULATIVE, BASELINE}


def test_bad_settings_are_refused_at_once(pair):
    for function in (specdemo.speculate, specdemo.compare):
        with pytest.raises(specdemo.UserError, match=r"^k must be from 1 to 12, not 99\.$"):
            function(pair, PROMPT, k=99)
        with pytest.raises(specdemo.UserError, match="Unknown setting 'temprature'"):
            function(pair, PROMPT, temprature=0.8)


def test_a_pair_without_a_draft_model_uses_prompt_lookup():
    pair = replace(tiny_pair(), draft=None)
    (*_, last) = specdemo.speculate(pair, "abcabcabc", **SETTINGS)
    assert last.finish is Finish.LENGTH
    assert specdemo.compare(pair, "abcabcabc", **SETTINGS).config.drafter == "prompt-lookup"


@pytest.mark.slow
def test_the_readmes_examples_run_as_they_stand(builtin_pair, monkeypatch, capsys):
    monkeypatch.setattr(specdemo.pairs.load, "load_pair", lambda: builtin_pair)
    exec(example("speculate(pair"), {})
    lines = re.findall(
        r"^(\d) of (\d) draft tokens accepted, text: (.*)$", capsys.readouterr().out, re.MULTILINE
    )
    assert "as soon as possible" in "".join(ast.literal_eval(text) for *_, text in lines)
    assert sum(int(kept) for kept, _, _ in lines) > 5
    exec(example("compare(load_pair"), {})
    assert re.fullmatch(r"\d\.\d\d×, τ \d\.\d\d, identical: True\n", capsys.readouterr().out)
