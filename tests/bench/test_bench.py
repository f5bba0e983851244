"""The bench: rows with every promised figure, interrupted runs that resume, files that are refused."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from types import SimpleNamespace

import pytest
from helpers.tiny import nearby, tiny_llama, tiny_pair

from specdemo.bench import bench as measuring
from specdemo.bench.bench import Bench, summary_of
from specdemo.bench.measuring import FIGURES, SPEEDS, all_identical
from specdemo.bench.overlap import measure_overlap
from specdemo.bench.peers import PeerBench
from specdemo.bench.prompts import Prompt, Settings, builtin_prompts, read_prompts
from specdemo.engine.speculate import never
from specdemo.lab.experiments import measure_experiment, plan_experiment
from specdemo.pairs.lanes import Lanes
from specdemo.proof.proof_events import proof_events
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import quiz_events
from specdemo.records.figures import median_run
from specdemo.records.limits import UserError

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
SETTINGS = Settings(["draft-model"], [2, 3], [0.0, 0.8], None, 8, 2, 0)
ROW = {"engine", "drafter", "k", "temperature", "rule", "precision", "id", "category", "tokens", "seconds"}
ROW |= {"tokens_per_s", "baseline_tokens_per_s", "speedup", "speedup_end_to_end", "alpha_compared"}
ROW |= {"alpha_drafted", "tau", "c", "v", "overhead", "identical"}


README = Path(__file__).parents[2] / "README.md"
BENCHMARKS = README.parent / "assets" / "benchmarks"
DRAFTERS = ["draft-model", "feature-draft", "combined"]
PROMPTS = [Prompt(f"p{i}", "ab"[i % 2], "raw", f"text {i}") for i in range(4)]


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


def test_rows_have_every_figure_and_the_summary_every_setting(pair, tmp_path):
    bench = Bench(PROMPTS, SETTINGS, tmp_path / "out.json")
    bench.run(pair)
    saved = json.loads((tmp_path / "out.json").read_text())
    assert len(saved["rows"]) == 4 * 2 * 2
    assert all(set(row) >= ROW for row in saved["rows"])
    greedy = [row for row in saved["rows"] if row["temperature"] == 0]
    assert all(row["identical"] is True and row["speedup"] > 0 for row in greedy)
    assert all(row["identical"] is None for row in saved["rows"] if row["temperature"] > 0)
    assert {item["category"] for item in saved["summary"]} == {"overall", "a", "b"}
    overall = saved["summary"][0]
    assert (overall["category"], overall["k"], overall["temperature"]) == ("overall", 2, 0)
    assert overall["identical"] == 4
    assert overall["speedup"]["q1"] <= overall["speedup"]["median"] <= overall["speedup"]["q3"]
    assert saved["environment"]["precision"] == "fp32"
    assert "4 of 4" in bench.table() and "by distribution" in bench.table()


def test_a_summary_separates_repetitive_outputs(pair, tmp_path):
    bench = Bench(
        PROMPTS, replace(SETTINGS, ks=[2], temperatures=[0.0], max_new_tokens=24), tmp_path / "out.json"
    )
    bench.run(pair)
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert all(0 < row["distinct_share"] <= 1 for row in rows)
    for row, share in zip(rows, (1.0, 0.5, None, 0.9), strict=True):
        row["distinct_share"] = share
    found = {item["category"]: item for item in summary_of(rows)}
    assert [found[name]["prompts"] for name in ("overall", "varied", "repetitive")] == [4, 2, 1]
    assert found["repetitive"]["tau"]["median"] == rows[1]["tau"]
    del rows[1]["distinct_share"]
    assert "repetitive" not in {item["category"] for item in summary_of(rows)}, "all are varied or unknown"


def measured(name):
    """Return the rows of a file of measurements, and their overall summaries by drafter."""
    rows = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return rows, {item["drafter"]: item for item in summary_of(rows) if item["category"] == "overall"}


def speed(item):
    return f"{item['tokens_per_s']['median']:.0f} ({item['speedup']['median']:.2f}×)"


@pytest.mark.parametrize("name", ["zen5", "zen5-avx2", "zen4", "zen4-avx2", "h100"])
def test_the_tables_have_the_speeds_of_the_measurements(name):
    rows, overall = measured(name)
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    table = text.partition(f"`{name}.json`")[2].split("`", 1)[0].splitlines()
    lines = [line.split(" | ")[1:] for line in table[1:] if line.startswith("| | ")]
    shown = {drafter: cells for drafter, *cells in lines}
    assert shown and shown.keys() <= overall.keys()
    for drafter, cells in shown.items():
        item, own = overall[drafter], [row for row in rows if row["drafter"] == drafter]
        assert item["identical"] == item["prompts"] == len(own) == 48
        found = [speed(item), f"{min(row['speedup'] for row in own):.2f}×"]
        found += [f"{item['alpha_compared']['median']:.0%}", f"{item['tau']['median']:.2f}"]
        c = median_low(row["c"] for row in own)
        found += [f"{c:.3f} |" if c else "0 |"]
        assert cells == found, f"| | {drafter} | {' | '.join(found)}"
    alone = f"{median_low(row['baseline_tokens_per_s'] for row in rows):.0f}"
    assert table[0] == f" | target alone | {alone} | | | | |"
    cells = [alone, *(speed(overall[d]) for d in list(shown)[:3])]
    assert f"| {' | '.join(cells)} |" in README.read_text(encoding="utf-8")


def test_the_tables_of_kinds_and_of_repetition_have_the_speedups_of_the_measurements():
    rows, _ = measured("zen5")
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    found = {(item["drafter"], item["category"]): item for item in summary_of(rows)}
    for category, name in (("overall", "all"), ("varied", "varied"), ("repetitive", "repetitive")):
        shown = [f"{found[drafter, category]['speedup']['median']:.2f}×" for drafter in DRAFTERS]
        line = f"| {name} | {found['combined', category]['prompts']} | {' | '.join(shown)} |"
        assert line in text, line
    kinds = ["creative", "code", "lists", "boilerplate", "facts", "edit"]
    for drafter in DRAFTERS:
        shown = [f"{found[drafter, kind]['speedup']['median']:.2f}×" for kind in kinds]
        line = f"| {drafter} | {' | '.join(shown)} |"
        assert line in text, line


def test_interrupted_bench_resumes_without_repeating(pair, tmp_path, monkeypatch):
    out, calls, measure = tmp_path / "out.json", [], measuring.measured_rows

    def interrupted(*arguments):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(arguments)
        return measure(*arguments)

    monkeypatch.setattr(measuring, "measured_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Bench(PROMPTS, SETTINGS, out).run(pair)
    first = json.loads(out.read_text())["rows"]
    assert len(first) == 3 * 2
    out.write_text(
        "\ufeff" + out.read_text(encoding="utf-8"), encoding="utf-8"
    )  # an editor's byte order mark
    monkeypatch.setattr(measuring, "measured_rows", measure)
    Bench(PROMPTS, SETTINGS, out).run(pair)
    rows = json.loads(out.read_text())["rows"]
    assert rows[:6] == first and len(rows) == 16
    with pytest.raises(UserError, match="different settings; choose another"):
        Bench(PROMPTS, replace(SETTINGS, ks=[1]), out)


def test_another_file_is_not_overwritten(tmp_path):
    out = tmp_path / "out.json"
    out.write_text("{}")
    with pytest.raises(UserError, match="contains no results of `specdemo bench`"):
        Bench(PROMPTS, SETTINGS, out)


@pytest.mark.parametrize(
    "line", ["{}", "nonsense", '{"id":1,"category":"a","mode":"b","prompt":"c"}', "[" * 100_000]
)
def test_bad_prompt_line_is_named(tmp_path, line):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    with pytest.raises(UserError, match=r"^Line 1 of "):
        read_prompts(path)


def test_a_prompt_file_may_have_a_byte_order_mark_and_any_line_separator_in_its_texts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    line = '{"id": "%s", "category": "a", "mode": "raw", "prompt": "one\u2028two\x85"}'
    path.write_text(f"\ufeff{line % 1}\r\n\n{line % 2}\n", encoding="utf-8")
    assert [(one.id, one.prompt) for one in read_prompts(path)] == [(n, "one\u2028two\x85") for n in "12"]


@pytest.mark.parametrize(
    ("changes", "words"), [({"ks": [99]}, "k must be from"), ({"repeats": 0}, "repeats")]
)
def test_bad_settings_are_refused_before_any_model_is_loaded(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        Bench(PROMPTS, replace(SETTINGS, **changes), tmp_path / "out.json")


@pytest.mark.parametrize(
    ("runs", "same"), [((True, True), True), ((True, False), False), ((None, None), None)]
)
def test_a_setting_is_identical_only_if_every_repeat_is(runs, same):
    assert all_identical([SimpleNamespace(identical=one) for one in runs]) is same


def test_builtin_prompts_cover_six_categories_and_limit_spreads_over_them():
    prompts = builtin_prompts()
    assert len(prompts) >= 48
    categories = {prompt.category for prompt in prompts}
    assert categories == {"facts", "boilerplate", "code", "lists", "creative", "edit"}
    assert {prompt.category for prompt in builtin_prompts(6)} == categories


# Measurements with a target that has no chat template, or that reads too few tokens

NOTICE = next(
    number for number, one in enumerate(QUESTIONS, 1) if any(side.prompt.id == "notice" for side in one.sides)
)
CHATS = [Prompt(f"chat-{n}", "a", "chat", "Why? " * n) for n in (1, 30, 40)]
BRIEF = Settings(["draft-model"], [2], [0.0], None, 4, 1, 0)


def bench(pair, folder):
    Bench(CHATS, BRIEF, folder / "bench.json").run(pair)
    return json.loads((folder / "bench.json").read_text())["rows"]


def peers(pair, folder):
    PeerBench(CHATS, BRIEF, folder / "peers.json").run(pair, [])
    return json.loads((folder / "peers.json").read_text())["rows"]


def proof(kind):
    return lambda pair, _: list(proof_events(pair, parse_proof({"proof": kind, "prompts": 48}), never))


def lab(pair, _):
    request = {"max_new_tokens": 4, "drafter": "draft-model"}
    return list(measure_experiment(pair, plan_experiment("category", pair, request, CHATS)))


def contrasts(pair, _):
    return list(measure_experiment(pair, plan_experiment("contrasts", pair, {"max_new_tokens": 4})))


def quiz(pair, _):
    return list(quiz_events(pair, NOTICE, QUESTIONS[NOTICE - 1]))


MEASUREMENTS = {
    "bench": bench,
    "peers": peers,
    "audit": proof("greedy"),
    "other libraries": proof("other-libraries"),
    "lab": lab,
    "contrasts": contrasts,
    "quiz": quiz,
}


@pytest.mark.parametrize("name", ["bench", "peers", "audit", "other libraries", "lab", "quiz"])
def test_without_a_chat_template_prompts_are_continued(name, tmp_path, monkeypatch):
    pair = tiny_pair()
    pair.tokenizer.chat_template = "" if name == "bench" else None
    monkeypatch.setattr("specdemo.proof.proof_request.TOKENS", 4)
    assert MEASUREMENTS[name](pair, tmp_path)


def failing_template():
    pair = tiny_pair()
    pair.tokenizer.chat_template = "{{ raise_exception('No visitors.') }}"
    return pair


def short_context():
    pair = tiny_pair()
    small = tiny_llama(len(pair.tokenizer), 0, pair.target.dtype, context=32)
    return replace(pair, target=small, draft=nearby(small, 1, 0.05))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (failing_template, "^The target's chat template fails: No visitors; set the prompt mode"),
        (short_context, "can read at most 31 tokens, but these prompts are longer: "),
    ],
)
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_prompts_that_cannot_be_read_are_refused_before_the_first_run(
    name, make, words, tmp_path, monkeypatch
):
    for lane in ("speculative", "baseline"):
        monkeypatch.setattr(Lanes, lane, lambda *_: pytest.fail("a lane started"))
    with pytest.raises(UserError, match=words):
        MEASUREMENTS[name](make(), tmp_path)


def test_only_the_first_ids_of_many_long_prompts_are_named(tmp_path):
    prompts = [Prompt(f"p{n}", "a", "raw", "x" * 600) for n in range(20)]
    with pytest.raises(UserError, match="longer: p0, p1, p2, p3, p4, p5, p6, p7 and 12 more"):
        Bench(prompts, BRIEF, tmp_path / "out.json").run(tiny_pair())


def test_a_line_shows_the_speedup_and_both_rates_of_one_row():
    common = dict.fromkeys(("k", "temperature", "rule", "identical", *FIGURES)) | {"drafter": "draft-model"}
    common |= {"category": "a", "temperature": 0.0}
    speeds = {"slow": (1.5, 30.0, 20.0), "none": (None, 9.0, 3.0), "fast": (1.2, 60.0, 50.0)}
    rows = [common | {"id": name} | dict(zip(SPEEDS, made, strict=True)) for name, made in speeds.items()]
    shown = summary_of(rows)[0]["median_run"]
    assert shown == {"id": "fast", "speedup": 1.2, "tokens_per_s": 60.0, "baseline_tokens_per_s": 50.0}
    assert median_run(rows[1:2]) == {}


def test_overlap_is_that_of_the_distributions_that_a_run_draws_from(pair, tmp_path):
    settings = replace(SETTINGS, ks=[2])
    measure_overlap(pair, PROMPTS[:2], settings, tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["temperature"], row["seed"]) for row in rows] == [(0.0, 0), (0.8, 0), (0.8, 1)] * 2
    for row in rows:
        assert row["overlap"] < 1 and row["accepted"] <= row["compared"]
        greedy = row["temperature"] == 0
        assert (row["target_entropy"] == 0) == greedy and (row["overlap"] == row["agreement"]) == greedy
    same = replace(pair, draft=pair.target, id_map=None)
    measure_overlap(same, PROMPTS[:2], settings, tmp_path / "same.json")
    for item in json.loads((tmp_path / "same.json").read_text())["summary"]:
        assert item["alpha"] == item["agreement"] == 1 and item["overlap"] == pytest.approx(1)
