"""Loading any pair from folders, and refusing pairs that do not fit with the reason."""

import json
import shutil
import threading
from types import SimpleNamespace

import pytest
import torch
from helpers.on_disk import ON_CPU, own_text, run, save
from helpers.tiny import byte_tokenizer, nearby, tiny_llama
from helpers.waiting import PATIENCE_S
from tokenizers.processors import TemplateProcessing
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from specdemo.pairs import builtin_target as fetch
from specdemo.pairs import calibrate, load, sources
from specdemo.pairs.calibrate import ROWS, TARGET_ALONE
from specdemo.pairs.compatible import require_same_tokens
from specdemo.pairs.load import load_sources
from specdemo.pairs.model_loader import weights_counted
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.records.trace import ROUGH, Calibration

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory):
    tokenizer = byte_tokenizer()
    model = tiny_llama(len(tokenizer), 0, torch.float32)
    return save(model, tokenizer, tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize(("target_rows", "draft_rows"), [(0, 6), (6, 0), (9, 4)])
def test_padding_rows_on_either_side_leave_the_text_to_the_target(tmp_path, target_rows, draft_rows):
    tokenizer = byte_tokenizer()
    target, other = (tiny_llama(len(tokenizer), 0, torch.float32) for _ in "ab")
    draft = nearby(other, 1, 0.02)
    for model, rows in ((target, target_rows), (draft, draft_rows)):
        model.resize_token_embeddings(len(tokenizer) + rows, mean_resizing=False)
    saved = [save(target, tokenizer, tmp_path / "target"), save(draft, tokenizer, tmp_path / "draft")]
    pair = load_sources(Sources(*saved, **ON_CPU))
    record, _ = run(pair, max_new_tokens=40)
    assert list(record.lanes["speculative"].ids) == own_text(target, record, 40)
    rounds = record.lanes["speculative"].rounds
    assert 0 < sum(round_.accepted for round_ in rounds) < sum(len(round_.drafted) for round_ in rounds)
    assert run(pair, temperature=0.9, rule="shared-noise")[1]["badge"]["kind"] == "same"
    record, _ = run(pair, temperature=0.9, rule="rejection", max_new_tokens=40)
    assert record.totals["alpha_compared"] > 0


def gpt2(width=16):
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=1, n_head=2, vocab_size=258))


@pytest.mark.parametrize(
    ("stored", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)]
)
def test_two_architectures_make_a_pair_in_the_precision_in_which_the_target_is_stored(
    target_folder, tmp_path, stored, dtype
):
    target = save(gpt2().to(dtype), byte_tokenizer(), tmp_path)
    pair = load_sources(Sources(target, target_folder, device="cpu"))
    assert pair.precision == stored and run(pair)[1]["badge"]["kind"] == "same"


def test_a_target_whose_first_layers_do_not_run_alone_loads_without_early_exit(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    per_layer = {"vocab_size_per_layer_input": 258, "hidden_size_per_layer_input": 4, "laurel_rank": 2}
    kinds = {"layer_types": ["full_attention"] * 2, "activation_sparsity_pattern": [0.0] * 2}
    config = Gemma3nTextConfig(
        **sizes, **per_layer, **kinds, vocab_size=258, head_dim=8, intermediate_size=[32] * 2,
        num_kv_shared_layers=0, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    target = Gemma3nForCausalLM(config).eval()
    pair = load_sources(Sources(save(target, byte_tokenizer(), tmp_path), "none", **ON_CPU))
    record, _ = run(pair, drafter="prompt-lookup")
    assert list(record.lanes["speculative"].ids) == own_text(target, record, 10)
    with pytest.raises(UserError, match="first layers of Gemma3nForCausalLM do not run without the others"):
        run(pair, drafter="early-exit")


@pytest.fixture
def with_unknown_tokens(target_folder, tmp_path):
    """A target whose tokenizer has two tokens more than its embedding has rows."""
    shutil.copytree(target_folder, tmp_path, dirs_exist_ok=True)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<extra1>", "<extra2>"])
    tokenizer.save_pretrained(tmp_path)
    return tokenizer, tmp_path


def test_prompts_with_an_unknown_token_are_refused_and_scripts_end_before_it(with_unknown_tokens):
    folder = str(with_unknown_tokens[1])
    pair = load_sources(Sources(folder, folder, **ON_CPU))
    with pytest.raises(UserError, match=f"^{folder} has no embedding for the token '<extra2>'"):
        run(pair, prompt="Hi <extra2> there")
    record, _ = run(pair, prompt="Hi there", drafter="scripted", script="<extra2>")
    assert record.totals["identical"]
    assert "no embedding for '<extra1>', '<extra2>'; prompts with" in record.arithmetic
    assert pair.pieces.text(pair.script_ids("ab<extra2>cd")) == "ab"


def test_a_target_that_lacks_the_token_before_every_text_is_refused_at_load(with_unknown_tokens):
    tokenizer, folder = with_unknown_tokens
    first = ("<extra1>", tokenizer.convert_tokens_to_ids("<extra1>"))
    template = TemplateProcessing(single="<extra1> $A", special_tokens=[first])
    tokenizer.backend_tokenizer.post_processor = template
    tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match="has no embedding for the token '<extra1>'"):
        load_sources(Sources(str(folder), "none", **ON_CPU))


@pytest.mark.parametrize(("free", "reported"), [(200_000_000, True), (600_000_000, False)])
def test_too_little_memory_is_reported_before_the_models_are_loaded(
    target_folder, monkeypatch, caplog, free, reported
):
    monkeypatch.setattr(load, "free_ram", lambda: free)
    logged = {}

    def progress(text, _fraction):
        logged[text] = caplog.text

    load_sources(Sources(str(target_folder), "none", **ON_CPU), progress=progress)
    words = "need about 0.5 GB of memory, but only 0.2 GB are free"
    assert (words in logged["Loading the models"]) == reported


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"repetition_penalty": 1.3, "suppress_tokens": [5]}, "repetition_penalty, suppress_tokens"),
        ({"num_beams": 4, "min_new_tokens": 3, "do_sample": True, "top_p": 0.9}, "min_new_tokens, num_beams"),
        ({"repetition_penalty": 1.0, "suppress_tokens": [], "num_beams": 1, "no_repeat_ngram_size": 0}, None),
    ],
)
def test_generation_settings_that_are_not_applied_are_named(target_folder, tmp_path, settings, named):
    shutil.copytree(target_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    pair = load_sources(Sources(str(tmp_path), "none", **ON_CPU))
    arithmetic = run(pair, drafter="prompt-lookup")[0].arithmetic
    assert f"not applied: {named}." in arithmetic if named else "not applied" not in arithmetic


def test_int8_is_refused_for_a_model_that_keeps_its_weights_elsewhere(tmp_path):
    folder = save(gpt2(32), byte_tokenizer(), tmp_path)
    with pytest.raises(UserError, match="int8 needs linear layers, but most weights of GPT2LMHeadModel"):
        load_sources(Sources(folder, "none", device="cpu", precision="int8"))


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ("abcd", "acbd", "token 1 is 'b' in the target's and 'c' in the draft model's"),
        ("abcd", "ab", "token 2 is 'c' in the target's and missing in the draft model's"),
        ("ab", "abcd", "token 2 is missing in the target's and 'c' in the draft model's"),
    ],
)
def test_a_draft_with_another_tokenizer_is_refused_with_the_first_difference(target, draft, words):
    vocabularies = ({name: token for token, name in enumerate(names)} for names in (target, draft))
    tokenizers = [SimpleNamespace(get_vocab=lambda found=found: found) for found in vocabularies]
    with pytest.raises(UserError, match=words):
        require_same_tokens(*tokenizers)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "/no/such/folder", "draft": "/none"}, "Cannot load /no/such/folder"),
        ({"target": "/no/such/folder"}, "choose a draft model for /no/such"),
        ({"precision": "fp3"}, "choose one of: .*bf16.*fp32"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not available on this machine; choose c"),
    ],
)
def test_a_pair_that_cannot_be_loaded_is_refused_with_the_reason(options, words, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=words):
        load_sources(Sources(**options))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_load_measures_while_nothing_else_computes_and_runs_measure_nothing(
    target_folder, tmp_path, monkeypatch, compiled
):
    within, seen = [], []
    steps = ["measure_target"] if compiled else ["find_batch_invariant_rows", "measure_target"]
    folder = target_folder if compiled else save(gpt2(), byte_tokenizer(), tmp_path)

    def alone(measure):
        within.append(True)
        measure()
        within.pop()

    def watched(name, plain):
        def measure(*args):
            assert within, name
            seen.append(name)
            return plain(*args)

        monkeypatch.setattr(calibrate, name, measure)

    watched("find_batch_invariant_rows", calibrate.find_batch_invariant_rows)
    watched("measure_target", calibrate.measure_target)
    pair = load_sources(Sources(folder, "none", device="cpu"), alone=alone)
    for length in (4, 100):
        record, _ = run(pair, drafter="prompt-lookup", max_new_tokens=length)
        assert record.calibration == pair.costs.known[TARGET_ALONE]
    assert seen == steps


@pytest.mark.parametrize(("recalibrate", "measured"), [(False, 1), (True, 5)])
def test_a_rough_calibration_is_repeated_on_request(target_folder, monkeypatch, recalibrate, measured):
    calls, rough = [], Calibration(1.0, 0.0, (1.0,) * ROWS, row_floor=1, scatter=ROUGH + 0.1)
    monkeypatch.setattr(calibrate, "measure_target", lambda *_: calls.append(1) or rough)
    pair = load_sources(Sources(target_folder, "none", device="cpu"), recalibrate=recalibrate)
    assert len(calls) == measured
    assert run(pair, drafter="prompt-lookup")[0].calibration.is_rough


def test_two_loads_at_once_keep_their_progress_apart_and_leave_no_hook_behind():
    told = {"one": [], "other": []}
    entered, leave = threading.Event(), threading.Event()

    def load_other():
        with weights_counted("other", lambda text, share: told["other"].append(text)):
            entered.set()
            leave.wait(PATIENCE_S)

    other = threading.Thread(target=load_other)
    with weights_counted("one", lambda text, share: told["one"].append(text)):
        other.start()
        crossed = entered.wait(0.2)
        logging.tqdm(total=2).update(1)
    entered.wait(PATIENCE_S)
    leave.set()
    other.join(PATIENCE_S)
    assert logging.set_tqdm_hook(None) is None
    assert not crossed and told == {"one": ["Loading one"], "other": []}


@pytest.fixture
def damaged(target_folder, tmp_path, monkeypatch):
    """The built-in target's folder with a tiny model in it; a new conversion puts the same model there."""
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "BUILT_IN_FEATURE_DRAFT", tmp_path / "none")
    monkeypatch.setattr(sources, "BUILT_IN_N_GRAM", tmp_path / "none")

    def make(every_byte, progress):
        folder = tmp_path / fetch.NAME
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(target_folder, folder)
        fetch.write_manifest(folder)

    monkeypatch.setattr(fetch, "make_target", make)
    return fetch.builtin_target()


@pytest.mark.parametrize(
    ("name", "at", "content"),
    [
        ("model.safetensors", 0, b"\xff" * 8),
        ("model.safetensors", -10_000, b"\xff" * 10_000),
        ("config.json", 0, b"x"),
        ("tokenizer.json", 0, b"x"),
    ],
    ids=["header", "infinite weights", "config", "tokenizer"],
)
def test_a_damaged_target_that_cannot_be_loaded_is_converted_again(damaged, name, at, content):
    whole = (damaged / name).read_bytes()
    at %= len(whole)
    (damaged / name).write_bytes(whole[:at] + content + whole[at + len(content) :])
    pair = load.assemble_pair(Sources(draft="none", **ON_CPU))
    assert (damaged / name).read_bytes() == whole
    assert run(pair, drafter="prompt-lookup")[1]["badge"]["kind"] == "same"


def test_a_load_that_fails_for_another_reason_fails_once(damaged, monkeypatch):
    loads = []
    monkeypatch.setattr(load, "tokenizer_of", lambda files: loads.append(files) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load.assemble_pair(Sources(draft="none", **ON_CPU))
    assert len(loads) == 1
