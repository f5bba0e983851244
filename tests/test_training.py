"""Distillation on a tiny target: the draft learns, a killed run resumes to the same weights."""

import pytest
import torch
from tiny import byte_tokenizer, tiny_llama

from specdemo.draft_model import is_reduced_draft, load_draft, save_draft, slice_of_target
from specdemo.runtime import ATTENTION
from specdemo.training.corpus import Continuation, append_corpus, frequent_ids, length_batches, read_corpus
from specdemo.training.distil import Recipe, distil, evaluate
from specdemo.training.generate import generate_corpus
from specdemo.training.labels import label_corpus, read_labels

pytestmark = pytest.mark.usefixtures("one_thread")
VOCAB = 60
RECIPE = Recipe(steps=300, batch_tokens=512, learning_rate=1e-2, warmup_steps=10, held_out=0.2)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    target = tiny_llama(VOCAB, 1, torch.float32, spread=0.5)
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(VOCAB, (160, 3), generator=generator)
    written = target.generate(prompts, max_new_tokens=24, do_sample=False, pad_token_id=0)[:, 3:]
    rows = zip(prompts.tolist(), written.tolist(), strict=True)
    corpus = [Continuation(prompt, output, 0.0) for prompt, output in rows]
    folder = tmp_path_factory.mktemp("labels")
    label_corpus(target, corpus, folder)
    return target, corpus, read_labels(folder)


def fresh_draft(target, corpus):
    ids, coverage = frequent_ids(corpus, 40)
    assert 0.5 < coverage <= 1.0
    torch.manual_seed(0)
    return slice_of_target(target, [1], ids)


def test_labels_are_the_targets_own_probabilities(labelled):
    target, corpus, labels = labelled
    item, label = corpus[5], labels[5]
    probs = target(torch.tensor([item.ids]), use_cache=False).logits[0].softmax(-1)
    assert label.ids.tolist() == item.ids
    assert label.top_ids[:, 0].tolist() == item.output, "greedy text is the teacher's argmax"
    torch.testing.assert_close(
        label.top_probs[0].float(), probs[label.start].topk(24).values, atol=1e-3, rtol=1e-2
    )


def test_distillation_raises_agreement_far_above_the_untrained_draft(labelled, tmp_path):
    target, corpus, labels = labelled
    draft = fresh_draft(target, corpus)
    before = evaluate(draft, labels[:32])
    after = distil(draft, labels, RECIPE, tmp_path)
    assert after.agreement > 4 * before.agreement
    assert after.overlap > 2 * before.overlap


def test_a_killed_run_resumes_to_the_same_weights(labelled, tmp_path):
    target, corpus, labels = labelled
    whole, halves = fresh_draft(target, corpus), fresh_draft(target, corpus)
    distil(whole, labels, RECIPE, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill_later(*args, **kwargs):
        kill_later.calls += 1
        if kill_later.calls == 145:
            raise KilledError

    kill_later.calls = 0
    hook = halves.model.register_forward_pre_hook(kill_later)
    with pytest.raises(KilledError):
        distil(halves, labels, RECIPE, tmp_path / "halves")
    hook.remove()
    resumed = fresh_draft(target, corpus)
    distil(resumed, labels, RECIPE, tmp_path / "halves")
    for name, tensor in whole.own_state().items():
        assert torch.equal(tensor, resumed.own_state()[name]), name


def test_a_saved_draft_loads_without_its_embedding(labelled, tmp_path):
    target, corpus, _ = labelled
    draft = fresh_draft(target, corpus)
    save_draft(draft, tmp_path)
    assert is_reduced_draft(tmp_path) and not is_reduced_draft(tmp_path / "nowhere")
    loaded = load_draft(tmp_path, target, ATTENTION)
    assert loaded.model.embed_tokens is target.get_input_embeddings()
    ids = torch.tensor([[1, 2, 3]])
    expected = draft(ids, use_cache=False).logits
    torch.testing.assert_close(loaded(ids, use_cache=False).logits, expected, atol=0.05, rtol=0.05)


def test_the_target_writes_one_continuation_per_prompt_and_resumes(tmp_path):
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"mode": "raw", "prompt": "p{i}"}}\n' for i in range(70)))
    whole, again = tmp_path / "whole.jsonl", tmp_path / "again.jsonl"
    generate_corpus(target, tokenizer, prompts, whole, 5, seed=1)
    items = read_corpus(whole)
    assert len(items) == 70
    append_corpus(again, items[:10])
    generate_corpus(target, tokenizer, prompts, again, 5, seed=1)
    assert read_corpus(again) == items


def test_batches_hold_every_sequence_once_within_the_budget():
    lengths = [5, 9, 30, 3, 12, 7, 22]
    batches = list(length_batches(lengths, 40, torch.Generator().manual_seed(0)))
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(len(b) * max(lengths[i] for i in b) <= 40 + 8 * len(b) for b in batches)
