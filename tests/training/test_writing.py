"""The prompt pool, and the text that a tiny target writes after prompts, interrupted or not."""

import random
import shutil

import pytest
import torch
from helpers.tiny_training import EOS, TAPS, random_prompts

from specdemo.bench.prompts import builtin_prompts
from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.training import budget
from specdemo.training import labelled_text as labelled_text_module
from specdemo.training.labelled_text import read_text, write_text
from specdemo.training.training_prompts import fill, prompt_pool, templates, topics

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


def test_the_pool_is_broad_distinct_reproducible_and_holds_no_builtin_prompt():
    pool = prompt_pool(20_000, seed=0)
    assert len({item.prompt for item in pool}) == 20_000
    assert pool[:50] == prompt_pool(50, seed=0) != prompt_pool(50, seed=1)
    assert {item.style for item in pool} == set(templates()["styles"])
    assert sum(map(len, map(set, topics().values()))) > 1_500
    assert not {item.prompt for item in builtin_prompts()} & {item.prompt for item in pool}
    found = [one for modes in templates()["styles"].values() for many in modes.values() for one in many]
    assert not any("{name}" in fill(template, random.Random(0)) for template in found)


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
