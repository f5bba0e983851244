"""Training on a tiny target: a broad pool, the target's own text, a draft that learns, runs that resume."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.tiny import byte_tokenizer, config_for, tiny_llama

from specdemo.cli import main as cli
from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.drafters.feature import FeatureDrafter
from specdemo.engine.speculate import speculate
from specdemo.models.attention import ATTENTION
from specdemo.models.draft_files import load_weights
from specdemo.models.feature_draft import FeatureRuntime, default_taps, feature_draft_for
from specdemo.models.layer_views import decoder_layers, hidden_states
from specdemo.models.packed_linear import Int4Linear, takes_int4
from specdemo.models.reduced_draft import is_reduced_draft, load_draft, save_draft, slice_of_target
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.load import load_pair
from specdemo.pairs.sources import NONE, Sources
from specdemo.records.limits import UserError
from specdemo.training import arithmetic, clock, stages
from specdemo.training import batched as batched_module
from specdemo.training import distil as distil_module
from specdemo.training import evaluate as evaluate_module
from specdemo.training import write as write_module
from specdemo.training.arithmetic import TargetFiles, chosen, try_writing, writers
from specdemo.training.batched import BatchedDecoder
from specdemo.training.distil import Recipe, coverage, distil, evaluate, frequent_ids, length_batches
from specdemo.training.evaluate import evaluate_draft
from specdemo.training.objectives import OBJECTIVES
from specdemo.training.pace import Trial
from specdemo.training.pool import fill, prompt_pool, templates, topics
from specdemo.training.rounding import in_int4
from specdemo.training.students import FeatureStudent, ModelStudent
from specdemo.training.write import read_text, write_text

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
VOCAB = 60
TAPS = default_taps(2)
EOS = frozenset({3})
ASSETS = Path(__file__).parents[2] / "assets"
RECIPE = Recipe(steps=80, batch_tokens=512, learning_rate=1e-2, warmup_steps=10, held_out=0.2)
LONG = {"steps": 500}


class KilledError(Exception):
    """Stands for a kill."""


def random_prompts(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (count, 3), generator=generator).tolist()


@pytest.fixture(scope="module")
def target():
    return tiny_llama(VOCAB, 1, torch.float32, spread=0.5)


@pytest.fixture(scope="module")
def text(target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_text(target, random_prompts(900), EOS, folder, 20, seed=0, taps=TAPS)
    target.set_attn_implementation(ATTENTION)
    return read_text(folder)


def model_student(target, text):
    ids = frequent_ids(text, 40)
    assert 0.5 < coverage(text, ids) <= 1.0
    torch.manual_seed(0)
    return ModelStudent(slice_of_target(target, [1], ids))


def feature_student(target, text):
    torch.manual_seed(0)
    return FeatureStudent(feature_draft_for(target, frequent_ids(text, 40)), target, steps=2)


# The prompt pool


def test_the_pool_is_broad_distinct_reproducible_and_holds_no_shipped_prompt():
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


# The target's own text


def test_text_is_what_the_target_says_with_its_own_probabilities_and_states(target, text):
    for item in text[::10]:
        ids = item.ids.long()
        with torch.inference_mode(), hidden_states([decoder_layers(target)[i] for i in TAPS]) as found:
            logits = target(ids[None], use_cache=False).logits[0]
        probs = logits.softmax(-1)[item.start : -1]
        torch.testing.assert_close(item.top_probs.float(), probs.topk(24).values, atol=1e-3, rtol=1e-2)
        torch.testing.assert_close(item.states, torch.cat(found, -1)[0, :-1], atol=1e-3, rtol=1e-3)
        assert len(item.output) == 20 or int(item.output[-1]) in EOS
        assert not EOS & set(item.output[:-1].tolist())
    greedy = sum(item.output.tolist() == item.top_ids[:, 0].tolist() for item in text)
    assert 0.3 < greedy / len(text) < 0.7, "half of the text is greedy"


def test_a_killed_writer_resumes_to_the_same_text(target, tmp_path, monkeypatch):
    monkeypatch.setattr(write_module, "SHARD", 8)
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


def test_a_shard_cut_short_is_the_beginning_of_the_whole_one(target, tmp_path, monkeypatch):
    prompts = random_prompts(8)
    write_text(target, prompts, EOS, tmp_path / "whole", 12, seed=1, taps=TAPS)
    times = iter(range(10**6))
    monkeypatch.setattr(clock, "now", lambda: float(next(times)))
    write_text(target, prompts, EOS, tmp_path / "cut", 12, seed=1, taps=TAPS, seconds=20.0)
    for whole, cut in zip(read_text(tmp_path / "whole"), read_text(tmp_path / "cut"), strict=True):
        size = len(cut.ids)
        assert torch.equal(cut.ids, whole.ids[:size]) and 0 < len(cut.output) < 12
        assert len(cut.top_ids) == len(cut.output) and len(cut.states) == size - 1
        torch.testing.assert_close(cut.states, whole.states[: size - 1])


def test_a_trial_step_has_the_width_of_a_real_one_and_the_same_logits(target):
    decoder = BatchedDecoder(target)
    with torch.inference_mode():
        plain = decoder.begin([[5, 6], [7, 8]], 4)
        padded = decoder.begin([[5, 6], [7, 8]], 4, padding=40)
        torch.testing.assert_close(padded, plain)
        step = decoder.step(torch.tensor([1, 2]))
    assert decoder._layers[0].get_seq_length() == 43
    expected = target(torch.tensor([[5, 6, 1], [7, 8, 2]]), use_cache=False).logits[:, -1]
    torch.testing.assert_close(step, expected, atol=1e-4, rtol=1e-3)
    target.set_attn_implementation(ATTENTION)


def test_prompts_of_many_lengths_are_read_in_parts_and_continue_as_each_would_alone(target, monkeypatch):
    monkeypatch.setattr(batched_module, "PART", 2)
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


def test_a_full_disk_gets_one_sentence(target, tmp_path, monkeypatch):
    def no_space(content, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(UserError, match="free some space and run the same command with --resume"):
        write_text(target, random_prompts(2), EOS, tmp_path, 4, seed=0)


# Distillation


def test_what_the_head_cannot_say_has_no_share_in_the_labels(target, text):
    student = model_student(target, text)
    columns, p = distil_module._Labels(student).of(text[:8])
    ids = torch.cat([item.top_ids for item in text[:8]]).long()
    said = torch.isin(ids, student.id_map)
    assert said.any() and not said.all()
    assert torch.equal(student.id_map[columns[said]], ids[said])
    assert (columns[~said] == -1).all() and (p[~said] == 0).all() and (p[said] > 0).any()


@pytest.mark.parametrize(
    ("changes", "agreement", "overlap"),
    [({}, 2.0, 1.6), pytest.param(LONG, 3.0, 2.0, marks=pytest.mark.slow)],
    ids=["brief", "long"],
)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_raises_agreement_far_above_the_untrained_draft(
    target, text, tmp_path, objective, changes, agreement, overlap
):
    student = model_student(target, text)
    before = evaluate(student, text[:32])
    after = distil(student, text, replace(RECIPE, objective=objective, **changes), tmp_path)
    assert after.agreement[0] > agreement * before.agreement[0]
    assert after.overlap[0] > overlap * before.overlap[0]


def alpha(make_lane):
    """Acceptance rate over a dozen prompts of a lane that ``make_lane`` starts on a prompt and a config."""
    config = config_for(k=3, max_new_tokens=24)
    rounds = [r for prompt in random_prompts(12, seed=9) for r in make_lane(prompt, config)]
    return sum(r.accepted for r in rounds) / sum(r.compared for r in rounds)


@pytest.mark.parametrize(
    ("changes", "times", "least"),
    [({}, 2.0, 0.0), pytest.param(LONG, 3.0, 0.2, marks=pytest.mark.slow)],
    ids=["brief", "long"],
)
def test_the_acceptance_rate_of_a_trained_draft_model_rises(target, text, tmp_path, changes, times, least):
    student = model_student(target, text)
    draft = student.module
    draft.model.set_attn_implementation(ATTENTION)

    def lane(prompt, config):
        drafter = DraftModelDrafter(ModelRuntime(draft, id_map=draft.id_map))
        return speculate(ModelRuntime(target), drafter, prompt, config)

    before = alpha(lane)
    distil(student, text, replace(RECIPE, **changes), tmp_path)
    assert alpha(lane) > max(least, times * before)


@pytest.mark.parametrize(
    ("changes", "times", "least"),
    [({"steps": 120}, 1.3, 0.0), pytest.param(LONG, 1.8, 0.2, marks=pytest.mark.slow)],
    ids=["brief", "long"],
)
def test_the_acceptance_rate_of_a_trained_feature_draft_rises(target, text, tmp_path, changes, times, least):
    student = feature_student(target, text)

    def lane(prompt, config):
        host = ModelRuntime(target, taps=student.module.config.taps)
        return speculate(host, FeatureDrafter(FeatureRuntime(student.module), host), prompt, config)

    before = alpha(lane)
    quality = distil(student, text, replace(RECIPE, **changes), tmp_path)
    assert len(quality.agreement) == 2, "one figure per unrolled step"
    assert alpha(lane) > max(least, times * before)


def test_states_made_now_equal_those_kept_with_the_text(target, text):
    student = feature_student(target, text)
    batch = text[:6]
    bare = [write_module.LabelledSequence(i.ids, i.start, i.top_ids, i.top_probs) for i in batch]
    for kept, made in zip(student.predict(batch), student.predict(bare), strict=True):
        torch.testing.assert_close(kept.log_q, made.log_q, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("make", [model_student, feature_student])
def test_rounded_matrices_are_those_that_run_and_the_whole_ones_come_back(target, text, make):
    student = make(target, text)
    linears = [module for module in student.module.modules() if type(module) is torch.nn.Linear]
    linears = [linear for linear in linears if takes_int4(linear.weight)]
    whole = [linear.weight.detach().clone() for linear in linears]
    inputs = [torch.randn(4, linear.in_features).bfloat16() for linear in linears]
    with in_int4(student):
        for linear, value in zip(linears, inputs, strict=True):
            rounded = linear.weight.bfloat16()
            assert all(len(row.unique()) <= 16 for row in linear.weight.unflatten(1, (-1, 32)).flatten(0, 1))
            run = Int4Linear(linear.weight.detach().bfloat16())(value)
            torch.testing.assert_close(run, value @ rounded.T, atol=0.05, rtol=0.05)
        distil_module._loss(student, text[:4], distil_module._Labels(student), RECIPE).backward()
    assert linears and all(torch.equal(a.weight, b) for a, b in zip(linears, whole, strict=True))
    assert all(linear.weight.grad is not None for linear in linears)
    with pytest.raises(KilledError), in_int4(student):
        raise KilledError
    assert all(torch.equal(a.weight, b) for a, b in zip(linears, whole, strict=True))


def test_every_other_step_learns_rounded_where_the_draft_may_run_so():
    rounds = [replace(RECIPE, int4=True).rounds(step) for step in range(6)]
    assert rounds == [False, True] * 3 and not any(RECIPE.rounds(step) for step in range(6))


def test_texts_that_no_step_reaches_teach_nothing_and_end_nothing(target, text):
    student = feature_student(target, text)
    first = text[0]
    short = write_module.LabelledSequence(first.ids[:2], 0, first.top_ids[:1], first.top_probs[:1])
    weights = distil_module.trainable(student)
    before = [weight.clone() for weight in weights]
    optimiser, labels = torch.optim.SGD(weights, lr=1.0), distil_module._Labels(student)
    assert distil_module._learn(student, [short], labels, RECIPE, optimiser) == 0.0
    assert all(map(torch.equal, before, weights))
    long = distil_module._loss(student, [first], labels, RECIPE).item()
    both = distil_module._loss(student, [short, first], labels, RECIPE).item()
    assert both == pytest.approx(long, rel=1e-4)


@pytest.mark.parametrize("make", [model_student, feature_student])
def test_a_killed_distillation_resumes_to_the_same_weights(target, text, tmp_path, make, monkeypatch):
    recipe = replace(RECIPE, steps=40, checkpoint_every=10)
    whole, killed, resumed = make(target, text), make(target, text), make(target, text)
    distil(whole, text[:150], recipe, tmp_path / "whole")
    real, calls = distil_module._loss, iter(range(10**6))

    def dying(*arguments):
        if next(calls) == 27:
            raise KilledError
        return real(*arguments)

    monkeypatch.setattr(distil_module, "_loss", dying)
    with pytest.raises(KilledError):
        distil(killed, text[:150], recipe, tmp_path / "halves")
    distil(resumed, text[:150], recipe, tmp_path / "halves")
    logged = [json.loads(line) for line in (tmp_path / "halves" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in logged if "agreement" in entry] == [10, 20, 30, 40, 40]
    for name, tensor in whole.own_state().items():
        assert torch.equal(tensor, resumed.own_state()[name]), name


def test_a_saved_draft_loads_without_its_embedding(target, text, tmp_path):
    draft = model_student(target, text).module
    save_draft(draft, tmp_path)
    assert is_reduced_draft(tmp_path) and not is_reduced_draft(tmp_path / "nowhere")
    loaded = load_draft(tmp_path, target, ATTENTION)
    assert loaded.model.get_input_embeddings() is target.get_input_embeddings()
    ids = torch.tensor([[1, 2, 3]])
    expected = draft(ids, use_cache=False).logits
    torch.testing.assert_close(loaded(ids, use_cache=False).logits, expected, atol=0.05, rtol=0.05)


def test_batches_hold_every_sequence_once_within_the_budget():
    lengths = [5, 9, 30, 3, 12, 7, 22]
    batches = list(length_batches(lengths, 40, torch.Generator().manual_seed(0)))
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 40 for batch in batches)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("target")
    tokenizer = byte_tokenizer()
    tiny_llama(len(tokenizer), 0, torch.float32, context=1024).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


TRIAL = Trial({"bf16": {1: 0.01, 8: 0.02}}, {"bf16": 1000.0}, load_s=0.1)


@pytest.fixture
def brief(monkeypatch):
    """A training of seconds, whose arithmetic does not depend on what else the machine does."""
    monkeypatch.setattr(stages, "_trial", lambda plan, files: TRIAL)
    monkeypatch.setattr(stages, "EVALUATION_PROMPTS", 2)
    monkeypatch.setattr(stages, "TOKENS_PER_PROMPT", 512)
    monkeypatch.setattr("specdemo.training.evaluate.NEW_TOKENS", 8)


def train(folder, out, *more):
    arguments = ["train", "--target", folder, "--out", str(out), "--device", "cpu"]
    sizes = [] if "--start" in more else ["--layers", "1", "--head", "200"]
    return cli.main([*arguments, *sizes, *more])


def test_the_command_leaves_a_table_of_n_grams_that_loads_and_drafts(folder, tmp_path, brief, capsys):
    assert train(folder, tmp_path / "d", "--kind", "n-gram", "--steps", "3") == 0
    card = (tmp_path / "d" / "README.md").read_text()
    assert "identical" in card and "$" not in card and "{" not in card and "--kind n-gram --steps 3" in card
    pair = load_pair(Sources(folder, NONE, n_gram=str(tmp_path / "d"), device="cpu"))
    assert {"n-gram", "lookup+n-gram"} <= set(pair.drafters) and not {"draft-model"} & set(pair.drafters)
    written = read_text(tmp_path / "d" / "work" / "text")[0].ids.tolist()
    assert pair.n_gram.after(written[:-1]) is not None


@pytest.mark.parametrize("kind", ["model", "feature"])
def test_the_command_leaves_a_draft_that_loads_with_card_and_curve(folder, tmp_path, brief, capsys, kind):
    assert train(folder, tmp_path / "d", "--kind", kind, "--steps", "3") == 0
    assert "saved to" in capsys.readouterr().out
    card = (tmp_path / "d" / "README.md").read_text()
    assert "identical" in card and "$" not in card and f"--kind {kind} --steps 3" in card
    assert (tmp_path / "d" / "work" / "curve.html").is_file()
    if kind == "model":
        load_pair(Sources(folder, str(tmp_path / "d"), device="cpu"))
    else:
        load_pair(Sources(folder, NONE, feature_draft=str(tmp_path / "d"), device="cpu"))


@pytest.mark.parametrize("kind", ["model", "feature"])
def test_a_training_goes_on_from_a_draft_with_its_head(folder, tmp_path, brief, capsys, kind, monkeypatch):
    asked = ["--kind", kind, "--steps", "1"]
    assert train(folder, tmp_path / "first", *asked) == 0
    begun = {}

    def seen(student, text, recipe, work):
        begun.update({name: tensor.clone() for name, tensor in student.own_state().items()})
        return distil(student, text, recipe, work)

    monkeypatch.setattr(stages, "distil", seen)
    more = ["--start", str(tmp_path / "first"), "--seed", "5"]
    assert train(folder, tmp_path / "second", *asked, *more) == 0
    first, second = (load_weights(tmp_path / name) for name in ("first", "second"))
    assert torch.equal(first["id_map"], second["id_map"]) and len(first["id_map"]) <= 200
    for name, tensor in first.items():
        torch.testing.assert_close(begun[name].float(), tensor.float(), atol=1e-3, rtol=1e-2)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    card = (tmp_path / "second" / "README.md").read_text()
    assert (
        f"--start {tmp_path / 'first'}" in card and f"goes on from the draft in {tmp_path / 'first'}" in card
    )
    other = {"model": "feature", "feature": "model"}[kind]
    assert train(folder, tmp_path / "third", "--kind", other, "--steps", "1", *more) == 2
    assert f"name a {other} draft" in capsys.readouterr().err


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("write_text", marks=pytest.mark.slow),
        "distil",
        pytest.param("evaluate_draft", marks=pytest.mark.slow),
    ],
)
def test_a_training_killed_at_any_stage_resumes_to_the_same_weights(
    folder, tmp_path, brief, stage, monkeypatch
):
    assert train(folder, tmp_path / "whole", "--steps", "3") == 0
    with monkeypatch.context() as patch:

        def die(*args, **kwargs):
            raise KilledError

        patch.setattr(stages, stage, die)
        with pytest.raises(KilledError):
            train(folder, tmp_path / "killed", "--steps", "3")
    assert train(folder, tmp_path / "killed", "--steps", "3", "--resume") == 0
    whole, killed = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "killed"))
    assert whole == killed


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--steps", "0"], "--steps must be more than 0"),
        (["--minutes", "nan"], "--minutes must be more than 0"),
        (["--steps", "2", "--layers", "9"], "has 2 layers; choose --layers from 1 to 2"),
        (["--steps", "2", "--target", "/nowhere"], "Cannot load /nowhere"),
        (["--steps", "2", "--out", "/proc/nowhere"], "Cannot use /proc/nowhere"),
        (["--steps", "2", "--start", "/nowhere"], "Cannot go on from /nowhere; name a model draft"),
        (["--kind", "n-gram", "--start", "/nowhere"], "counted anew; leave out --start"),
        (["--start", "/nowhere", "--layers", "1"], "keeps its head and depth; leave out --layers"),
    ],
)
def test_what_the_user_can_put_right_gets_one_sentence(folder, tmp_path, capsys, more, sentence):
    assert train(folder, tmp_path / "d", *more) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence in error and error.startswith("specdemo: ")


def test_another_training_in_the_same_place_is_refused(folder, tmp_path, brief, capsys):
    assert train(folder, tmp_path, "--steps", "1") == 0
    assert train(folder, tmp_path, "--steps", "1") == 2
    assert "add --resume or choose another --out" in capsys.readouterr().err
    assert train(folder, tmp_path, "--steps", "2", "--resume") == 2
    assert "repeat them or choose another --out" in capsys.readouterr().err


# Machines


class Machine:
    """Time that passes only where work is done: per token written or learned, and per round decoded."""

    WRITERS = ("Linear", "bf16"), ("HalfLinear", "fp16"), ("BlockedLinear", "fp32")

    def __init__(self, monkeypatch, writing, learning, round_s=0.1):
        self.time, self.writing, self.learning, self.round_s = 0.0, writing, learning, round_s
        monkeypatch.setattr(clock, "now", lambda: self.time)
        monkeypatch.setattr(evaluate_module, "race", self.slow_race(evaluate_module.race))
        monkeypatch.setattr(evaluate_module, "LiveRun", self.live_run(evaluate_module.LiveRun))
        monkeypatch.setattr(BatchedDecoder, "_pass", self.slow_pass(BatchedDecoder._pass))
        monkeypatch.setattr(distil_module, "_loss", self.slow_loss(distil_module._loss))

    def slow_pass(self, real):
        names = dict(self.WRITERS)

        def run(decoder, ids, positions, mask):
            name = names[type(decoder._model.lm_head).__name__]
            self.time += 0.05 + ids.numel() / self.writing[name]
            return real(decoder, ids, positions, mask)

        return run

    def slow_loss(self, real):
        def run(student, batch, labels, recipe):
            self.time += sum(len(item.ids) for item in batch) / self.learning[recipe.arithmetic]
            return real(student, batch, labels, recipe)

        return run

    def slow_race(self, real):
        def run(lanes):
            for item in real(lanes):
                self.time += self.round_s
                yield item

        return run

    def live_run(self, real):
        machine = self

        class LiveRun(real):
            def events(self):
                for event in super().events():
                    machine.time += machine.round_s
                    yield event

        return LiveRun


WITHOUT_BF16 = {"writing": {"bf16": 12, "fp16": 80, "fp32": 70}, "learning": {"bf16": 40, "fp32": 250}}
WITH_BF16 = {"writing": {"bf16": 200, "fp16": 80, "fp32": 70}, "learning": {"bf16": 600, "fp32": 250}}


def read_pace(out):
    return json.loads((out / "work" / "pace.json").read_text())


@pytest.mark.parametrize(
    ("kind", "speeds", "written", "learned"),
    [
        ("model", WITHOUT_BF16, "fp16", "fp32"),
        ("feature", WITH_BF16, "bf16", "bf16"),
        pytest.param("feature", WITHOUT_BF16, "fp16", "fp32", marks=pytest.mark.slow),
        pytest.param("model", WITH_BF16, "bf16", "bf16", marks=pytest.mark.slow),
    ],
)
def test_minutes_are_kept_in_the_arithmetic_that_is_fastest_here(
    folder, tmp_path, monkeypatch, capsys, kind, speeds, written, learned
):
    machine = Machine(monkeypatch, **speeds)
    assert train(folder, tmp_path, "--kind", kind, "--minutes", "3") == 0
    assert 162 <= machine.time <= 198
    pace = read_pace(tmp_path)
    assert (pace["writing"], pace["learning"]) == (written, learned)
    card, told = (tmp_path / "README.md").read_text(), capsys.readouterr()
    assert f"Text is written in {written}" in card and f"learned in {learned}" in card
    assert f"Text is written in {written}" in told.out and "too little for a good draft" in told.out
    assert "tokens/s" in told.err and "left" in told.err
    assert read_text(tmp_path / "work" / "text")[0].states is None or kind == "feature"


def test_a_resumed_training_keeps_its_arithmetic_and_its_time(folder, tmp_path, monkeypatch):
    machine = Machine(monkeypatch, **WITHOUT_BF16)
    real, calls = distil_module._save, iter(range(10**6))

    def dying(*arguments):
        real(*arguments)
        if next(calls) == 0:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(distil_module, "_save", dying)
        with pytest.raises(KilledError):
            train(folder, tmp_path, "--minutes", "3")
    before = read_pace(tmp_path)
    machine.writing, machine.learning = WITH_BF16["writing"], {"fp32": 250}
    assert train(folder, tmp_path, "--minutes", "3", "--resume") == 0
    assert read_pace(tmp_path) == before
    assert machine.time < 240, "but for loading and half an evaluation no more than was asked for"


def test_minutes_that_cannot_be_enough_are_refused_at_once(folder, tmp_path, monkeypatch, capsys):
    machine = Machine(monkeypatch, {"bf16": 1, "fp16": 3, "fp32": 2}, {"bf16": 5, "fp32": 20})
    assert train(folder, tmp_path, "--minutes", "3") == 2
    sentence = capsys.readouterr().err.strip().splitlines()[-1]
    assert "3 minutes are not enough here" in sentence and "tokens/s; give --minutes" in sentence
    assert machine.time < 180, "nothing was written or learned"
    minutes = sentence.split("--minutes ")[1].split(" ")[0]
    assert int(minutes) > 5
    with pytest.raises(KilledError), monkeypatch.context() as patch:
        patch.setattr(stages, "write_text", lambda *args, **kwargs: (_ for _ in ()).throw(KilledError))
        train(folder, tmp_path, "--minutes", minutes)


def test_what_fails_here_is_no_candidate(folder, monkeypatch):
    def broken(model, *precisions):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(arithmetic, "pack_linears", broken)
    files = TargetFiles(folder, torch.device("cpu"))
    names = writers(files.plain())
    assert set(names) == {"bf16", "fp16", "fp32"}
    found = try_writing(files, names, (), 1.0)
    assert set(found) == {"bf16"} and 1 in found["bf16"] and 8 in found["bf16"]
    with pytest.raises(UserError, match="No text can be written on this device"):
        try_writing(files, ("fp16", "fp32"), (), 1.0)


def test_a_target_that_does_not_fit_twice_is_tried_in_bf16_only(folder, monkeypatch):
    monkeypatch.setattr(arithmetic, "free_ram", lambda: 1)
    assert writers(TargetFiles(folder, torch.device("cpu")).plain()) == ("bf16",)


def test_of_about_equal_arithmetics_the_same_one_is_taken_every_time():
    assert chosen({"fp32": 110.0, "fp16": 100.0, "bf16": 95.0}) == "bf16"
    assert chosen({"fp32": 110.0, "fp16": 100.0, "bf16": 37.0}) == "fp16"
    assert chosen({"fp32": 190.0, "bf16": 37.0}) == "fp32"


def test_minutes_are_kept_where_text_is_only_counted(folder, tmp_path, monkeypatch, capsys):
    machine = Machine(monkeypatch, **WITHOUT_BF16)
    assert train(folder, tmp_path, "--kind", "n-gram", "--minutes", "3") == 0
    # What the evaluation does not need nobody else can use: the text is written by then.
    assert 144 <= machine.time <= 198
    assert read_pace(tmp_path)["learning"] == ""
    assert "learned in" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["model", pytest.param("feature", marks=pytest.mark.slow)])
def test_an_evaluation_without_measurements_finds_the_same_draft(folder, tmp_path, brief, kind):
    assert train(folder, tmp_path, "--kind", kind, "--steps", "20") == 0
    prompts = prompt_pool(3, seed=5)
    full, brief_one = (
        evaluate_draft(folder, kind, tmp_path, prompts, "cpu", "fp32", calibrated=calibrated)
        for calibrated in (True, False)
    )
    assert full["prompts"] == brief_one["prompts"] == 3
    assert brief_one["alpha"] == pytest.approx(full["alpha"], abs=0.1)
    assert brief_one["tau"] == pytest.approx(full["tau"], abs=0.2)
    assert brief_one["c"] > 0 and brief_one["speedup"] > 0


def test_a_meter_says_tokens_a_second_and_the_time_left(monkeypatch, capsys):
    times = iter([0.0, 10.0, 10.0, 10.0])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    clock.Meter("distil", share=0.2, left_s=90.0).show(0.4, 2_000)
    drawn = capsys.readouterr().err
    assert "distil: 1:30 left" in drawn and "distil: 2,000 tokens, 200 tokens/s, 0:30 left" in drawn
    assert [clock.clock_face(seconds) for seconds in (5, 75, 7_500)] == ["0:05", "1:15", "2:05:00"]


def test_a_shard_has_the_rows_that_write_fastest_in_its_time():
    steps = {1: 0.1, 8: 0.2, 16: 0.3, 32: 0.5, 64: 1.2}
    assert Trial({"fp16": steps}, {}, 0.0).rows("fp16") == 32
    assert Trial({"fp16": steps}, {}, 0.0, longest_s=0.4).writing == {"fp16": 16 / 0.3}
    assert Trial({"fp16": steps}, {}, 0.0, longest_s=0.05).rows("fp16") == 8
