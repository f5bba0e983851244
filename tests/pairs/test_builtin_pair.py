"""The real built-in pair on the CPU: same bits, same tokens, same text."""

import pytest
import torch
from helpers.tiny import emitted

from specdemo.asset_paths import BUILT_IN_DRAFT, BUILT_IN_FEATURE_DRAFT, BUILT_IN_N_GRAM
from specdemo.bench.prompts import builtin_prompts
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.load import load_sources
from specdemo.pairs.model_loader import DTYPES
from specdemo.pairs.sources import Sources
from specdemo.pairs.traced_run import TracedRun
from specdemo.records.figures import first_difference
from specdemo.records.limits import AUTO_PRECISION, UserError, parse_config
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Finish, RunConfig


def run(pair, **request):
    traced = TracedRun(pair, parse_config(request))
    *_, end = traced.events()
    return traced.run, end


def check_sameness(record, end):
    """Check that both lanes are identical, or that the difference is reported if no row counts agree here."""
    where = first_difference(record.lanes[BASELINE].ids, record.lanes[SPECULATIVE].ids)
    assert where is None or record.calibration.row_floor is None, (record.config, end["badge"])
    assert end["totals"]["identical"] is (where is None) and end["totals"]["divergence"] == where
    assert end["badge"]["kind"] == ("same" if where is None else "different")


def test_verification_logits_equal_the_baselines_bit_for_bit(builtin_pair):
    calibration = Lanes(builtin_pair).calibrate(RunConfig(prompt="", max_new_tokens=128))
    if not calibration.rows:
        return check_sameness(*run(builtin_pair, prompt="The sky is", mode="raw", max_new_tokens=40))
    text = "The lighthouse stood on the northern cliff, and every evening its keeper climbed the stairs."
    ids = torch.tensor(builtin_pair.tokenizer(text * 2)["input_ids"])
    alone, together = (ModelRuntime(builtin_pair.target, calibration.rows) for _ in "ab")
    for runtime in (alone, together):
        runtime.begin(256)
        runtime.prefill(ids[:7])
    single = torch.cat([alone.forward(token[None]) for token in ids[7:]])
    for rows in (2, 4, 5, 9, 13):
        together.rollback(7)
        chunks = ids[7:].split(rows)
        for start, chunk in zip(range(0, len(single), rows), chunks, strict=True):
            assert torch.equal(together.forward(chunk), single[start : start + rows]), (rows, start)


@pytest.mark.parametrize(("drafter", "k"), [("draft-model", 3), ("combined", 3), ("combined", "auto")])
def test_greedy_output_is_the_targets(builtin_pair, drafter, k):
    request = {"prompt": "Write a short story about a lighthouse.", "drafter": drafter, "k": k}
    record, end = run(builtin_pair, **request, max_new_tokens=20)
    check_sameness(record, end)
    rounds = record.lanes[SPECULATIVE].rounds
    # On a busy machine auto may choose to draft nothing.
    assert k == "auto" or (sum(r.accepted for r in rounds) > 0 and len(rounds) < 20)


@pytest.fixture(scope="module")
def written_alone(builtin_pair):
    """Requests of three categories, and the target's own texts."""
    found = []
    for prompt in builtin_prompts(6)[::2]:
        request = {"prompt": prompt.prompt, "mode": prompt.mode, "max_new_tokens": 16}
        config = parse_config(request)
        lane = Lanes(builtin_pair).baseline(config, builtin_pair.prompt_ids(config))
        found.append((request, emitted(lane)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "k"),
    [
        ("draft-model", 8),
        ("prompt-lookup", 8),
        ("n-gram", 4),
        ("combined", "auto"),
        ("feature-draft", 3),
        ("early-exit", 2),
    ],
)
def test_greedy_output_is_the_targets_on_prompts_of_several_categories(
    builtin_pair, written_alone, drafter, k
):
    for request, alone in written_alone:
        record, _ = run(builtin_pair, **request, drafter=drafter, k=k, baseline=False)
        same = record.lanes[SPECULATIVE].ids == alone
        assert same or record.calibration.row_floor is None, request


@pytest.mark.slow
def test_the_draft_alone_writes_its_own_argmax(builtin_pair):
    request = {"prompt": "The capital of France is", "mode": "raw", "max_new_tokens": 12}
    record, end = run(builtin_pair, **request, draft_alone=True)
    runtime, text = ModelRuntime(builtin_pair.draft), list(record.prompt_ids)
    runtime.begin(256)
    runtime.prefill(torch.tensor(text[:-1]))
    for token in record.lanes[DRAFT].ids:
        row = runtime.forward(torch.tensor(text[-1:]))[-1].argmax()
        assert token == builtin_pair.id_map[row].item()
        text.append(token)
    assert end["totals"]["draft_alone_tokens_per_s"] > end["totals"]["baseline_tokens_per_s"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", [name for name in DTYPES if name != "bf16"])
def test_in_every_precision_the_output_is_that_of_the_target_alone(builtin_pair, precision):
    automatic = precision == AUTO_PRECISION
    pair = builtin_pair if automatic else load_sources(Sources(device="cpu", precision=precision))
    for settings in (
        {"drafter": "draft-model", "k": 4},
        {"drafter": "combined", "k": "auto", "temperature": 0.8, "rule": "shared-noise"},
    ):
        record, end = run(pair, prompt="Name three colors.", **settings, max_new_tokens=24)
        assert record.precision == ("bf16" if automatic else precision)
        check_sameness(record, end)


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": "<|im_start|><|im_end|>", "mode": "raw"},
        {"prompt": "🎉 日本語のテキスト:", "mode": "raw"},
        {"prompt": "<img src=x onerror=alert(1)> ${alert(1)} {{x}}"},
        {"prompt": "a", "mode": "raw", "k": 12, "max_new_tokens": 1},
        {"prompt": "What is the capital of France? Answer in one short sentence.", "max_new_tokens": 64},
    ],
)
def test_unusual_prompts_give_a_right_run(builtin_pair, request_):
    record, end = run(builtin_pair, **{"max_new_tokens": 10, **request_})
    check_sameness(record, end)
    lane = record.lanes[SPECULATIVE]
    assert (lane.finish is Finish.EOS) == (lane.ids[-1] in builtin_pair.eos_ids)
    assert lane.finish is Finish.EOS or "France" not in request_["prompt"]
    if record.config.mode == "raw":
        prompt = b"".join(map(builtin_pair.pieces.piece, record.prompt_ids)).decode()
        assert prompt == request_["prompt"]


def test_a_prompt_beyond_the_context_is_refused(builtin_pair, monkeypatch):
    monkeypatch.setattr(builtin_pair.target.config, "max_position_embeddings", 64)
    with pytest.raises(UserError, match="shorten the prompt"):
        run(builtin_pair, prompt="word " * 100, mode="raw", max_new_tokens=4)


@pytest.mark.parametrize(
    ("folder", "most"),
    [(BUILT_IN_DRAFT, 24_000_000), (BUILT_IN_FEATURE_DRAFT, 40_000_000), (BUILT_IN_N_GRAM, 9_000_000)],
)
def test_the_builtin_drafts_are_small_and_come_with_their_cards(folder, most):
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    assert 0 < max(sizes) <= 9_000_000 and sum(sizes) <= most
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "apache-2.0" in card.lower() and "acceptance" in card.lower()


def test_the_builtin_drafts_and_the_output_read_the_targets_embedding(builtin_pair):
    embedding = builtin_pair.target.stack.embedding
    assert builtin_pair.draft.stack.embedding is embedding
    assert builtin_pair.feature_draft.stack.embedding is embedding
    assert builtin_pair.target.stack.output is embedding, "the built-in target ties them"
