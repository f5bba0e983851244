"""The command line end to end on a tiny pair; its options correspond to the fields of ``RunConfig``."""

import base64
import json
import re
from dataclasses import MISSING, asdict, fields, replace

import pytest
import torch
from helpers.tiny import tiny_pair
from helpers.tiny_runs import finished

import specdemo.pairs.load
from specdemo.cli.main import command_parser, main
from specdemo.cli.options import RUN_FIELDS
from specdemo.records import recordings
from specdemo.records.figures import first_difference
from specdemo.records.limits import SCRIPTED
from specdemo.records.trace import Mode, Rule, RunConfig
from specdemo.records.trace_file import load

pytestmark = pytest.mark.usefixtures("one_thread")
GENERATE = ["generate", "hello", "--raw", "--max-new-tokens"]
OTHERWISE = {
    "mode": (["--raw"], Mode.RAW),
    "k": (["--k", "auto"], "auto"),
    "temperature": (["--temperature", "0.5"], 0.5),
    "top_k": (["--top-k", "7"], 7),
    "top_p": (["--top-p", "0.9"], 0.9),
    "rule": (["--rule", "shared-noise"], Rule.SHARED_NOISE),
    "drafter": (["--drafter", "scripted"], SCRIPTED),
    "script": (["--script", "abc"], "abc"),
    "seed": (["--seed", "5"], 5),
    "max_new_tokens": (["--max-new-tokens", "6"], 6),
    "baseline": (["--baseline"], True),
    "draft_alone": (["--draft-alone"], True),
    "repeats": (["--repeats", "2"], 2),
}
LEFT_OUT = {"baseline": False, "rule": None}
"""Options whose default differs from the field's; the rule depends on the temperature."""


@pytest.fixture(scope="module")
def tiny():
    return tiny_pair()


@pytest.fixture(autouse=True)
def pair(monkeypatch, tiny):
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: tiny)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return tiny


def test_generate_prints_text_sentence_and_badge_and_replay_prints_the_same(capsys, tmp_path):
    path = tmp_path / "run.json"
    assert main([*GENERATE, "9", "--baseline", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "Same text" in out and "× the speed" in out
    assert "Identical to the target alone, token for token." in out
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out == out


def test_generate_shows_the_draft_alone_and_its_divergence(capsys, pair):
    assert main([*GENERATE, "20", "--draft-alone", "--json", "-"]) == 0
    captured = capsys.readouterr()
    lanes = {name: lane.ids for name, lane in load(captured.out).lanes.items()}
    assert set(lanes) == {"speculative", "draft"}
    divergence = first_difference(lanes["speculative"], lanes["draft"])
    assert f"token {divergence + 1}" in captured.err
    before, after = map(pair.pieces.text, (lanes["draft"][:divergence], lanes["draft"][divergence:]))
    visible = {code: chr(0x2400 + code) for code in range(32)}
    shown = captured.err.rpartition("\n\n")[2]
    assert shown == f"{before}⟨≠⟩{after}".translate(visible) + "\n"


def test_a_draft_without_divergence_has_no_mark(capsys, monkeypatch, pair):
    same = replace(pair, draft=pair.target)
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: same)
    assert main([*GENERATE, "9", "--baseline", "--draft-alone"]) == 0
    out = capsys.readouterr().out
    assert "the same 9" in out and "⟨≠⟩" not in out
    first, last = out.split("\n\n")[0], out.rpartition("\n\n")[2]
    assert first.strip() == last.strip() != ""


def test_without_the_flag_the_draft_alone_is_not_mentioned(capsys):
    main([*GENERATE, "5"])
    sentence, end = capsys.readouterr().out.rpartition("\n\n")[2].split("\n")
    assert " target passes instead of 5. " in sentence and end == ""


def test_colors_follow_the_status_and_control_characters_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    main([*GENERATE, "40", "--seed", "3"])
    out = capsys.readouterr().out
    legend, text = out.split("\n\n", 1)
    assert re.sub(r"\x1b\[[\d;]*m", "", legend) == "accepted  rejected  discarded  ▸corrected  +bonus"
    explained, shown = (set(re.findall(r"\x1b\[[1-9][\d;]*m[▸+]?", part)) for part in (legend, text))
    assert shown == explained
    assert "\x1b[33m" not in out
    assert not {chr(code) for code in range(32)} & set(out) - {"\x1b", "\n", "\t"}
    main([*GENERATE, "20", "--draft-alone"])
    assert "\x1b[33m⟨≠⟩" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main([*GENERATE, "5"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_harmful_trace_neither_reverses_text_nor_controls_the_terminal(capsys, tmp_path):
    trace = json.loads(recordings.load("story-sampled").to_json())
    harmful = "\x1b[2J\x9b2J\u202e\u2066\u200f"
    trace["pieces"] = dict.fromkeys(trace["pieces"], base64.b64encode(harmful.encode()).decode())
    (tmp_path / "run.json").write_text(json.dumps(trace))
    assert main(["replay", str(tmp_path / "run.json")]) == 0
    out = capsys.readouterr().out
    assert "⟨U+202E⟩" in out and not set(harmful) - set("[2J") & set(out)


def test_bench_writes_its_file_and_prints_the_table(capsys, tmp_path):
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.json"
    prompts.write_text('{"id": "a", "category": "facts", "mode": "raw", "prompt": "abc"}\n')
    bench = ["bench", "--prompts", str(prompts), "--out", str(out), "--max-new-tokens", "6"]
    assert main([*bench, "--k", "1,2"]) == 0
    assert len(json.loads(out.read_text())["rows"]) == 2
    assert "1 of 1" in capsys.readouterr().out


def test_replay_writes_a_page_with_the_run_in_it(capsys, tmp_path):
    path, page = tmp_path / "run.json", tmp_path / "run.html"
    path.write_text(finished().to_json(), encoding="utf-8")
    assert main(["replay", str(path), "--html", str(page)]) == 0
    assert '{"type":"end","sentence":"Same text' in page.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""


def test_replay_shows_a_builtin_recording_by_its_name(capsys, tmp_path, monkeypatch):
    (tmp_path / "demo.json").write_text(finished().to_json(), encoding="utf-8")
    (tmp_path / "index.json").write_text('[{"name":"demo","title":"Demo","about":"A run."}]')
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    assert main(["replay", "demo"]) == 0
    assert "target passes instead of 24" in capsys.readouterr().out
    assert main(["replay", "other"]) == 2
    assert "Cannot read other: No such file or directory; choose a trace" in capsys.readouterr().err


def test_every_field_of_a_run_has_an_option_with_its_default():
    options = vars(command_parser().parse_args(["generate", "hello"]))
    defaults = {field.name: field.default for field in fields(RunConfig)} | LEFT_OUT
    assert {name: options[name] for name in defaults} == {**defaults, "prompt": "hello"}
    assert [name for name, default in defaults.items() if default is MISSING] == ["prompt"]


def test_a_run_uses_all_options_and_json_contains_it_whole(monkeypatch, capsys):
    assert set(OTHERWISE) == set(RUN_FIELDS) - {"prompt"}
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    arguments = [word for words, _ in OTHERWISE.values() for word in words]
    assert main(["generate", "hello", *arguments, "--threads", "3", "--json", "-"]) == 0
    captured = capsys.readouterr()
    run = load(captured.out)
    assert asdict(run.config) == {
        "prompt": "hello",
        **{name: value for name, (_, value) in OTHERWISE.items()},
    }
    assert len(run.lanes["speculative"].ids) == 6 and "target passes" in captured.err
    assert torch.get_num_threads() == 3 and run.device.endswith(", 3 threads")


def test_the_options_for_models_arrive_at_the_loader(monkeypatch, pair):
    asked = []
    monkeypatch.setattr(
        specdemo.pairs.load, "load_sources", lambda sources, **_: asked.append(sources) or pair
    )
    more = ["--pair", "smollm2-1.7b", "--precision", "fp32", "--device", "cpu"]
    assert main([*GENERATE, "4", *more]) == 0
    assert asked[0].target == "HuggingFaceTB/SmolLM2-1.7B-Instruct" and len(asked[0].target_revision) == 40
    assert (asked[0].precision, asked[0].device) == ("fp32", "cpu")
