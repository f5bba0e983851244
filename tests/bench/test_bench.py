"""The bench: rows with every promised figure, interrupted runs that resume, files that are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.tiny import tiny_pair

from specdemo.bench import bench as measuring
from specdemo.bench.bench import Bench
from specdemo.bench.prompts import Settings, read_prompts
from specdemo.records.limits import UserError

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
SHIPPED = Path(__file__).parents[2] / "assets" / "prompts.jsonl"
SETTINGS = Settings(["draft-model"], [2, 3], [0.0, 0.8], None, 8, 2, 0)
ROW = {"engine", "drafter", "k", "temperature", "rule", "precision", "id", "category", "tokens", "seconds"}
ROW |= {"tokens_per_s", "baseline_tokens_per_s", "speedup", "speedup_end_to_end", "alpha_compared"}
ROW |= {"alpha_drafted", "tau", "c", "v", "overhead", "identical"}


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"id": f"p{i}", "category": "ab"[i % 2], "mode": "raw", "prompt": f"text {i}"} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return read_prompts(path)


def test_rows_have_every_figure_and_the_summary_every_setting(pair, prompts, tmp_path):
    bench = Bench(prompts, SETTINGS, tmp_path / "out.json")
    bench.run(pair)
    saved = json.loads((tmp_path / "out.json").read_text())
    assert len(saved["rows"]) == 4 * 2 * 2
    assert all(set(row) >= ROW for row in saved["rows"])
    greedy = [row for row in saved["rows"] if row["temperature"] == 0]
    assert all(row["identical"] is True and row["speedup"] > 0 for row in greedy)
    assert all(row["identical"] is None for row in saved["rows"] if row["temperature"] > 0)
    assert {item["category"] for item in saved["summary"]} == {"overall", "a", "b"}
    overall = next(
        s for s in saved["summary"] if (s["category"], s["k"], s["temperature"]) == ("overall", 2, 0)
    )
    assert overall["identical"] == 4
    assert overall["speedup"]["q1"] <= overall["speedup"]["median"] <= overall["speedup"]["q3"]
    assert saved["environment"]["precision"] == "fp32"
    assert "4 of 4" in bench.table() and "by distribution" in bench.table()


def test_interrupted_bench_resumes_without_repeating(pair, prompts, tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    measure = measuring.measured_rows
    calls = []

    def interrupted(*arguments):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(arguments)
        return measure(*arguments)

    monkeypatch.setattr(measuring, "measured_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Bench(prompts, SETTINGS, out).run(pair)
    first = json.loads(out.read_text())["rows"]
    assert len(first) == 3 * 2
    monkeypatch.setattr(measuring, "measured_rows", measure)
    Bench(prompts, SETTINGS, out).run(pair)
    rows = json.loads(out.read_text())["rows"]
    assert rows[:6] == first and len(rows) == 16


def test_file_of_another_bench_is_not_overwritten(pair, prompts, tmp_path):
    out = tmp_path / "out.json"
    Bench(prompts[:1], SETTINGS, out).run(pair)
    with pytest.raises(UserError, match="different settings; choose another"):
        Bench(prompts, replace(SETTINGS, ks=[1]), out)
    out.write_text("{}")
    with pytest.raises(UserError, match="is not a bench"):
        Bench(prompts, SETTINGS, out)


@pytest.mark.parametrize(
    ("line", "words"),
    [("{}", "line 1"), ("nonsense", "line 1"), ('{"id":1,"category":"a","mode":"b","prompt":"c"}', "line 1")],
)
def test_bad_prompt_line_is_named(tmp_path, line, words):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    with pytest.raises(UserError, match=words):
        read_prompts(path)


def test_a_prompt_file_may_have_a_byte_order_mark_and_any_line_separator_in_its_texts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    line = '{"id": "%s", "category": "a", "mode": "raw", "prompt": "one\u2028two\x85"}'
    path.write_text(f"\ufeff{line % 1}\r\n\n{line % 2}\n", encoding="utf-8")
    assert [(prompt.id, prompt.prompt) for prompt in read_prompts(path)] == [
        ("1", "one\u2028two\x85"),
        ("2", "one\u2028two\x85"),
    ]


def test_a_bench_file_with_a_byte_order_mark_continues(pair, prompts, tmp_path):
    out = tmp_path / "out.json"
    Bench(prompts[:1], SETTINGS, out).run(pair)
    out.write_text("\ufeff" + out.read_text(encoding="utf-8"), encoding="utf-8")
    assert not Bench(prompts[:1], SETTINGS, out).missing


def test_bad_settings_are_refused_before_any_model_is_loaded(prompts, tmp_path):
    with pytest.raises(UserError, match="k must be from"):
        Bench(prompts, replace(SETTINGS, ks=[99]), tmp_path / "out.json")
    with pytest.raises(UserError, match="repeats"):
        Bench(prompts, replace(SETTINGS, repeats=0), tmp_path / "out.json")


def test_builtin_prompts_cover_six_categories_and_limit_spreads_over_them():
    prompts = read_prompts(SHIPPED)
    assert len(prompts) >= 48
    categories = {prompt.category for prompt in prompts}
    assert categories == {"facts", "boilerplate", "code", "lists", "creative", "edit"}
    assert {prompt.category for prompt in read_prompts(SHIPPED, 6)} == categories
