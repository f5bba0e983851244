"""The options of a run correspond to the fields of ``RunConfig``."""

from dataclasses import MISSING, asdict, fields

import pytest
import torch
from helpers.tiny import tiny_pair

import specdemo.pairs.load
from specdemo.cli.main import command_parser, main
from specdemo.cli.options import RUN_FIELDS
from specdemo.records.limits import SCRIPTED
from specdemo.records.trace import Mode, Rule, RunConfig
from specdemo.records.trace_file import load

OTHERWISE = {
    "mode": (["--raw"], Mode.RAW),
    "k": (["--k", "auto"], "auto"),
    "temperature": (["--temperature", "0.5"], 0.5),
    "top_k": (["--top-k", "7"], 7),
    "top_p": (["--top-p", "0.9"], 0.9),
    "rule": (["--rule", "shared-noise"], Rule.SHARED_NOISE),
    "drafter": (["--drafter", "scripted"], SCRIPTED),
    "script": (["--script", "abc"], "abc"),
    "seed": (["--seed", "5"], 5),
    "max_new_tokens": (["--max-new-tokens", "6"], 6),
    "baseline": (["--baseline"], True),
    "draft_alone": (["--draft-alone"], True),
}
LEFT_OUT = {"baseline": False, "rule": None}
"""Options whose default differs from the field's; the rule depends on the temperature."""


def test_every_field_of_a_run_has_an_option_with_its_default():
    options = vars(command_parser().parse_args(["generate", "hello"]))
    defaults = {field.name: field.default for field in fields(RunConfig)} | LEFT_OUT
    assert {name: options[name] for name in defaults} == {**defaults, "prompt": "hello"}
    assert [name for name, default in defaults.items() if default is MISSING] == ["prompt"]


def test_every_option_of_a_run_arrives_in_its_field():
    assert set(OTHERWISE) == set(RUN_FIELDS) - {"prompt"}
    for name, (arguments, value) in OTHERWISE.items():
        assert getattr(command_parser().parse_args(["generate", "hello", *arguments]), name) == value


@pytest.mark.usefixtures("one_thread")
def test_a_run_uses_all_options(monkeypatch, capsys):
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: tiny_pair())
    arguments = [word for words, _ in OTHERWISE.values() for word in words]
    assert main(["generate", "hello", *arguments, "--json", "-"]) == 0
    config = asdict(load(capsys.readouterr().out).config)
    assert config == {"prompt": "hello", **{name: value for name, (_, value) in OTHERWISE.items()}}


@pytest.mark.usefixtures("one_thread")
def test_a_run_computes_with_the_number_of_threads_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: tiny_pair())
    assert main(["generate", "hello", "--threads", "3", "--max-new-tokens", "2", "--json", "-"]) == 0
    assert torch.get_num_threads() == 3
    assert load(capsys.readouterr().out).device.endswith(", 3 threads")
