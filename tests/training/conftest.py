"""What tests of training share: a tiny target, its own text, and a training of seconds."""

import pytest
import torch
from helpers.tiny import byte_tokenizer, tiny_llama
from helpers.tiny_training import EOS, TAPS, TRIAL, VOCAB, random_prompts

from specdemo.models.attention import ATTENTION
from specdemo.training import stages
from specdemo.training.write import read_text, write_text


@pytest.fixture(scope="module")
def target():
    """A tiny target whose text can be learned."""
    return tiny_llama(VOCAB, 1, torch.float32, spread=0.5)


@pytest.fixture(scope="module")
def text(target, tmp_path_factory):
    """What it writes by itself, with states."""
    folder = tmp_path_factory.mktemp("text")
    write_text(target, random_prompts(900), EOS, folder, 20, seed=0, taps=TAPS)
    target.set_attn_implementation(ATTENTION)
    return read_text(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny target on disk, with its tokeniser."""
    path = tmp_path_factory.mktemp("target")
    tokenizer = byte_tokenizer()
    tiny_llama(len(tokenizer), 0, torch.float32, context=1024).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture
def brief(monkeypatch):
    """A training of seconds, whose arithmetic does not depend on what else the machine does."""
    monkeypatch.setattr(stages, "_trial", lambda plan, files: TRIAL)
    monkeypatch.setattr(stages, "EVALUATION_PROMPTS", 2)
    monkeypatch.setattr(stages, "TOKENS_PER_PROMPT", 512)
    monkeypatch.setattr("specdemo.training.evaluate.NEW_TOKENS", 8)
