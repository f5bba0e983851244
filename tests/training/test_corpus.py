"""The texts of ``specdemo write``: prompts, batches, files, and labels for a training."""

import json

import numpy as np
import pytest
import torch
from helpers.tiny import byte_tokenizer, tiny_llama
from helpers.tiny_training import train

from specdemo.cli import main as cli
from specdemo.pairs.pair import eos_ids_of
from specdemo.records.limits import UserError
from specdemo.training import corpus, labelled_text
from specdemo.training.batched import sample_tokens
from specdemo.training.budget import StageClock
from specdemo.training.corpus import REPEATED, CorpusWriter, own_tokens, repeats
from specdemo.training.labelled_text import label_texts, read_text, write_text
from specdemo.training.text_files import (
    TextGroup,
    WrittenText,
    claim_folder,
    load_groups,
    load_texts,
    next_number,
    save_groups,
    text_path,
)
from specdemo.training.training_prompts import MAX_SAME_OPENING, ChatHeaders, PromptFilter

pytestmark = pytest.mark.usefixtures("one_thread")
TEMPLATE = (
    "<s>system: be kind</s>{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    found = byte_tokenizer()
    found.chat_template = TEMPLATE
    return found


@pytest.fixture(scope="module")
def target(tokenizer):
    model = tiny_llama(len(tokenizer), 1, torch.float32, spread=0.5)
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] *= 2  # its texts end now and then
    return model


@pytest.fixture
def small(monkeypatch):
    """Make a batch consist of a few short texts."""
    for name, value in {"PROPOSED": 24, "POOLED": 4, "FREE": 4, "POOL_BATCHES": 2}.items():
        monkeypatch.setattr(corpus, name, value)
    for name in ("PROPOSAL_TOKENS", "ANSWER_TOKENS", "FREE_TOKENS"):
        monkeypatch.setattr(corpus, name, 24)
    # A random model proposes no plain prompts.
    monkeypatch.setattr(PromptFilter, "take", lambda self, prompt, alone=True: bool(prompt))


def test_headers_are_what_the_template_puts_around_messages(tokenizer, target):
    eos = eos_ids_of(target, tokenizer)
    chat = ChatHeaders(tokenizer, eos)
    (end,) = eos
    ids = [*chat.user, *tokenizer("Hi")["input_ids"], end, *chat.answer]
    assert tokenizer.decode(ids) == "<s>system: be kind</s><s>user: Hi</s><s>assistant: "
    ids += [*tokenizer("Yes")["input_ids"], end, *chat.next_user]
    assert tokenizer.decode(ids).endswith("<s>assistant: Yes</s><s>user: ")
    assert chat.message([*tokenizer(" Hi ")["input_ids"], end]) == "Hi"


def test_a_prompt_is_plain_not_forbidden_used_once_and_few_open_alike():
    chosen = PromptFilter(["The quick brown fox jumps over the lazy dog."])
    for odd in (
        "",
        "Too short",
        "Was ist größer, schöner, älter? Ä Ö Ü ß",
        "word " * 200,
        "Please tell me why the quick brown fox jumps over the lazy dog, in French.",
    ):
        assert not chosen.take(odd), odd
    assert chosen.take("How do bees find their way?")
    assert not chosen.take("how do  bees find their way")
    taken = [chosen.take(f"What is the best kind number {index}?") for index in range(2 * MAX_SAME_OPENING)]
    assert sum(taken) == MAX_SAME_OPENING
    assert chosen.take("What is the best of all of these, then?", alone=False)


def ids(parts):
    return [text.ids.tolist() for part in parts for text in part.texts]


def test_a_batch_has_texts_of_every_kind_and_the_seed_determines_it(small, target, tokenizer):
    def write(seed):
        return CorpusWriter(target, tokenizer, [], seed, StageClock("writing")).write_batch(0)

    made, same, other = write(0), write(0), write(1)
    assert [part.kind for part in made] == ["free", "pool", "proposed", "second turn", "third turn", "edit"]
    assert all(part.texts for part in made[:4])
    assert ids(made) == ids(same) != ids(other)
    (end,) = eos_ids_of(target, tokenizer)
    for text in (text for part in made for text in part.texts):
        assert 0 < text.start <= len(text.ids)
        assert text.ended == (int(text.ids[-1]) == end)
        assert end not in text.ids[text.start : -1]
    first = ids(made[2:3])
    for text in made[3].texts:
        second = text.ids.tolist()
        assert any(second[: len(before)] == before for before in first)
        assert tokenizer.decode(second[: text.start]).endswith("<s>assistant: ")


def test_labels_of_texts_read_are_those_of_texts_written(target, tmp_path):
    taps = (0, 1)
    prompts = [[5, 6, 7], [8], [9, 10], [11, 12, 13, 14]] * 6
    write_text(target, prompts, frozenset({3}), tmp_path / "written", 12, seed=0, taps=taps)
    written = [row for row in read_text(tmp_path / "written") if len(row.output)]
    texts = [WrittenText(row.ids.numpy(), row.start + 1) for row in written]
    label_texts(target, texts, tmp_path / "read", seed=0, taps=taps)
    found = {tuple(row.ids.tolist()): row for row in read_text(tmp_path / "read")}
    for row in written:
        read = found[tuple(row.ids.tolist())]
        assert read.start == row.start
        torch.testing.assert_close(read.top_probs, row.top_probs, atol=2e-3, rtol=0)
        sure = (row.top_probs[:, 0] - row.top_probs[:, 1]) > 0.01
        assert torch.equal(read.top_ids[sure, 0], row.top_ids[sure, 0])
        torch.testing.assert_close(read.states, row.states, atol=1e-3, rtol=2e-2)  # bf16


def test_labelling_stops_at_its_deadline_and_continues_after_an_interruption(target, tmp_path, monkeypatch):
    monkeypatch.setattr(labelled_text, "READ_SHARD", 4)
    texts = [WrittenText(np.arange(4, 4 + size), 2) for size in range(3, 15)]
    label_texts(target, texts, tmp_path / "whole", seed=0)
    label_texts(target, texts, tmp_path / "cut", seed=0, seconds=0.0)
    assert len(read_text(tmp_path / "cut")) == 4
    label_texts(target, texts, tmp_path / "cut", seed=0)
    whole, cut = ([row.ids.tolist() for row in read_text(tmp_path / name)] for name in ("whole", "cut"))
    assert whole == cut and len(whole) == len(texts)


def test_a_text_that_repeats_itself_is_found():
    loop = np.tile(np.arange(10), 10)
    assert repeats(loop)
    assert not repeats(loop[: REPEATED + 9])
    assert not repeats(np.arange(200))


def test_texts_come_back_from_a_file_as_they_were_and_no_number_is_used_again(tmp_path):
    texts = [WrittenText(np.array([1, 2, 70_000]), 1, ended=True), WrittenText(np.array([5]), 1)]
    save_groups([TextGroup("pool", texts), TextGroup("edit", [])], text_path(tmp_path, 3))
    (pool, edit) = load_groups(text_path(tmp_path, 3))
    assert (pool.kind, edit) == ("pool", TextGroup("edit", []))
    read = [(text.ids.tolist(), text.start, text.ended) for text in pool.texts]
    assert read == [([1, 2, 70_000], 1, True), ([5], 1, False)]
    assert len(load_texts(tmp_path, "here")) == 2 and next_number(tmp_path) == 4


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_damaged_files_and_empty_folders_are_refused(tmp_path, content):
    if content is not None:
        text_path(tmp_path, 0).write_bytes(content)
    with pytest.raises(UserError, match=r"contains no texts; .*specdemo write"):
        load_texts(tmp_path, "here")


def test_a_text_without_tokens_of_the_target_gives_no_labels(target, tmp_path):
    with pytest.raises(UserError, match="no text written by this target"):
        label_texts(target, [WrittenText(np.array([1, 2]), 2)], tmp_path, seed=0)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_texts_of_another_target_or_with_a_damaged_name_are_refused_and_kept(tmp_path, content):
    named, words = tmp_path / "target.json", r"target\.json is damaged; delete this file if other wrote"
    for _ in range(2):
        claim_folder(tmp_path, "one")
    if content is None:
        content, words = named.read_bytes(), "written by another target, one"
    named.write_bytes(content)
    for use in (claim_folder, load_texts):
        with pytest.raises(UserError, match=words):
            use(tmp_path, "other")
    assert named.read_bytes() == content


@pytest.mark.slow
def test_the_command_writes_continues_and_feeds_a_training(small, target, tokenizer, tmp_path, capsys):
    home, out = tmp_path / "target", tmp_path / "text"
    target.save_pretrained(home)
    tokenizer.save_pretrained(home)
    arguments = ["write", "--target", str(home), "--device", "cpu", "--out", str(out)]
    assert cli.main([*arguments, "--tokens", "10"]) == 0
    first = load_groups(text_path(out, 0))
    assert f"{own_tokens(first):,} tokens" in capsys.readouterr().out
    assert cli.main([*arguments, "--tokens", str(own_tokens(first) + 1)]) == 0
    assert ids(load_groups(text_path(out, 0))) == ids(first)
    assert text_path(out, 1).is_file() and not text_path(out, 2).exists()
    table, draft = tmp_path / "table", tmp_path / "draft"
    assert train(str(home), table, "--kind", "n-gram", "--text", str(out), "--minutes", "5") == 0
    figures = json.loads((table / "work" / "evaluation.json").read_text())
    assert figures["tokens"] == sum(len(text.ids) - text.start for text in load_texts(out, str(home)))
    assert train(str(home), draft, "--text", str(out), "--steps", "2") == 0
    card = (draft / "README.md").read_text()
    assert f"--text {out}" in card and "specdemo write" in card


def test_writing_no_tokens_is_refused(capsys):
    assert cli.main(["write", "--tokens", "0"]) == 2
    assert "--tokens must be" in capsys.readouterr().err


def test_tokens_are_sampled_at_the_temperature_of_their_row():
    rows, scores = 20_000, torch.tensor([2.0, 1.0, 0.0, -1.0, -60.0])
    generator = torch.Generator().manual_seed(0)
    for temperature in (0.0, 0.7, 1.0):
        logits = scores.expand(rows, -1).bfloat16()
        drawn = sample_tokens(logits, logits.argmax(-1), torch.full((rows,), temperature), generator)
        shares = drawn.bincount(minlength=5) / rows
        expected = (scores / temperature).softmax(-1) if temperature else torch.tensor([1.0, 0, 0, 0, 0])
        torch.testing.assert_close(shares, expected, atol=0.015, rtol=0.0)
        assert logits[0, 0] == 2.0, "logits are read again for labels"
