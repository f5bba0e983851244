"""The prompt pool, and the text that a tiny target writes after prompts, interrupted or not."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from helpers.tiny_training import EOS, TAPS, random_prompts

from specdemo.models.attention import ATTENTION
from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.training import batched as batched_module
from specdemo.training import budget
from specdemo.training import labelled_text as labelled_text_module
from specdemo.training.batched import BatchedDecoder
from specdemo.training.labelled_text import read_text, write_text
from specdemo.training.training_prompts import fill, prompt_pool, templates, topics

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
ASSETS = Path(__file__).parents[2] / "assets"


def test_the_pool_is_broad_distinct_reproducible_and_holds_no_builtin_prompt():
    pool = prompt_pool(20_000, seed=0)
    assert len({item.prompt for item in pool}) == 20_000
    assert pool[:50] == prompt_pool(50, seed=0) != prompt_pool(50, seed=1)
    assert {item.style for item in pool} == set(templates()["styles"])
    assert sum(map(len, map(set, topics().values()))) > 1_500
    lines = (ASSETS / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    shipped = {json.loads(line)["prompt"] for line in lines}
    assert not shipped & {item.prompt for item in pool}


def test_every_template_can_be_filled():
    rng = random.Random(0)
    for modes in templates()["styles"].values():
        for found in modes.values():
            for template in found:
                assert "{name}" not in fill(template, rng)


def test_text_comes_with_the_probabilities_and_states_of_the_target(target, text):
    for item in text[::10]:
        ids = item.ids.long()
        with torch.inference_mode(), hidden_states([decoder_layers(target)[i] for i in TAPS]) as found:
            logits = target(ids[None], use_cache=False).logits[0]
        probs = logits.softmax(-1)[item.start : -1]
        torch.testing.assert_close(item.top_probs.float(), probs.topk(24).values, atol=1e-3, rtol=1e-2)
        states = torch.cat(found, -1)[0, :-1].bfloat16()
        torch.testing.assert_close(item.states, states, atol=2e-2, rtol=2e-2)
        assert len(item.output) == 20 or int(item.output[-1]) in EOS
        assert not EOS & set(item.output[:-1].tolist())
    greedy = sum(item.output.tolist() == item.top_ids[:, 0].tolist() for item in text)
    assert 0.3 < greedy / len(text) < 0.7, "half of the text is greedy"


def test_a_killed_writer_resumes_to_the_same_text(target, tmp_path, monkeypatch):
    monkeypatch.setattr(labelled_text_module, "WRITTEN_SHARD", 8)
    prompts = random_prompts(30)
    write_text(target, prompts, EOS, tmp_path / "whole", 6, seed=1)
    (tmp_path / "again").mkdir()
    for name in ("text-00000.pt", "text-00002.pt"):
        shutil.copy(tmp_path / "whole" / name, tmp_path / "again" / name)
    write_text(target, prompts, EOS, tmp_path / "again", 6, seed=1)
    whole, again = read_text(tmp_path / "whole"), read_text(tmp_path / "again")
    assert len(whole) == 30
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(whole, again, strict=True))
    write_text(target, prompts, EOS, tmp_path / "brief", 6, seed=1, seconds=0.0)
    assert len(read_text(tmp_path / "brief")) == 8, "out of time after the first shard"


def test_a_shard_cut_at_the_deadline_is_the_beginning_of_the_whole_one(target, tmp_path, monkeypatch):
    prompts = random_prompts(8)
    write_text(target, prompts, EOS, tmp_path / "whole", 12, seed=1, taps=TAPS)
    times = iter(range(10**6))
    monkeypatch.setattr(budget, "now", lambda: float(next(times)))
    write_text(target, prompts, EOS, tmp_path / "cut", 12, seed=1, taps=TAPS, seconds=20.0)
    for whole, cut in zip(read_text(tmp_path / "whole"), read_text(tmp_path / "cut"), strict=True):
        size = len(cut.ids)
        assert torch.equal(cut.ids, whole.ids[:size]) and 0 < len(cut.output) < 12
        assert len(cut.top_ids) == len(cut.output) and len(cut.states) == size - 1
        torch.testing.assert_close(cut.states, whole.states[: size - 1])


def test_prompts_of_many_lengths_are_read_in_parts_and_continue_as_each_would_alone(target, monkeypatch):
    monkeypatch.setattr(batched_module, "PROMPT_ROWS", 2)
    prompts = [[5], [6, 7], [8, 9, 10], [11] * 7, [12, 13] * 20]
    decoder, next_tokens = BatchedDecoder(target, TAPS), torch.tensor([1, 2, 3, 4, 5])
    with torch.inference_mode():
        logits, states = decoder.begin(prompts, 4), decoder.states
        after = decoder.step(next_tokens)
        decoder.keep(torch.tensor([1, 4]))
        kept = decoder.step(torch.tensor([7, 8]))
        target.set_attn_implementation(ATTENTION)
        for row, prompt in enumerate(prompts):
            ids = torch.tensor([[*prompt, int(next_tokens[row])]])
            with hidden_states([target.model.layers[index] for index in TAPS]) as found:
                alone = target(ids, use_cache=False).logits[0]
            torch.testing.assert_close(logits[row], alone[-2], atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(after[row], alone[-1], atol=1e-4, rtol=1e-3)
            expected = torch.cat(found, -1)[0, : len(prompt)]
            torch.testing.assert_close(states[row, -len(prompt) :], expected, atol=1e-4, rtol=1e-3)
        ids = torch.tensor([[*prompts[4], 5, 8]])
        torch.testing.assert_close(kept[1], target(ids, use_cache=False).logits[0, -1], atol=1e-4, rtol=1e-3)
