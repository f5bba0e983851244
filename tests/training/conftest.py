"""Fixtures of the tests of training: a tiny target, its own text, and a training that takes seconds."""

import pytest
import torch
from helpers.on_disk import save
from helpers.tiny import byte_tokenizer, tiny_llama
from helpers.tiny_training import EOS, TAPS, VOCAB, random_prompts

from specdemo.models.attention import ATTENTION
from specdemo.training import budget, stages
from specdemo.training.labelled_text import read_text, write_text


@pytest.fixture(scope="module")
def target():
    return tiny_llama(VOCAB, 1, torch.float32, spread=0.5)


@pytest.fixture(scope="module")
def text(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_text(target, random_prompts(900), EOS, folder, 20, seed=0, taps=TAPS)
    target.set_attn_implementation(ATTENTION)
    return read_text(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = byte_tokenizer()
    model = tiny_llama(len(tokenizer), 0, torch.float32, context=1024)
    return save(model, tokenizer, tmp_path_factory.mktemp("target"))


@pytest.fixture
def brief(monkeypatch):
    """Make a training take seconds."""
    monkeypatch.setattr(stages, "EVALUATION_PROMPTS", 2)
    monkeypatch.setattr(budget, "TOKENS_PER_PROMPT", 512)
    monkeypatch.setattr("specdemo.training.evaluation.NEW_TOKENS", 8)
