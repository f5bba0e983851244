"""The sentences about a pair's precision, which the page, the terminal and traces show."""

import pytest
import torch
from helpers.on_disk import ON_CPU, save
from helpers.tiny import byte_tokenizer, nearby, tiny_llama

from specdemo.pairs import hardware
from specdemo.pairs.load import load_sources
from specdemo.pairs.sources import Sources


@pytest.mark.parametrize(
    ("device", "precision", "drafts", "words"),
    [
        ("cpu", "bf16", "int8", "Weights in bf16, drafts in int8; all arithmetic in fp32."),
        ("cpu", "int8", "int8", "Weights in int8; all arithmetic in fp32."),
        ("cuda", "bf16", "bf16", "Weights and arithmetic in bf16."),
    ],
)
def test_weights_and_arithmetic_are_named(device, precision, drafts, words, monkeypatch):
    monkeypatch.setattr(hardware, "missing", lambda: None)
    assert hardware.arithmetic_of(torch.device(device), precision, drafts) == words


def test_passes_that_are_not_compiled_are_named_with_the_reason(monkeypatch):
    monkeypatch.setattr(hardware, "missing", lambda: "numba is not installed")
    words = hardware.arithmetic_of(torch.device("cpu"), "bf16", "bf16")
    assert words.endswith(" Passes are not compiled, because numba is not installed.")


@pytest.mark.usefixtures("one_thread", "few_measurements")
def test_a_draft_that_is_a_whole_model_is_not_said_to_be_rounded(tmp_path):
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32)
    folders = (
        save(target, tokenizer, tmp_path / "target"),
        save(nearby(target, 1, 0.02), tokenizer, tmp_path / "draft"),
    )
    pair = load_sources(Sources(*folders, **ON_CPU))
    assert pair.precision_reason.startswith("Weights in fp32; all arithmetic in fp32.")
