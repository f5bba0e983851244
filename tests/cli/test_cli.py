"""The command line end to end on a tiny pair."""

import base64
import json
from dataclasses import replace

import pytest
from helpers.tiny import tiny_pair
from helpers.tiny_runs import finished

import specdemo.pairs.load
from specdemo.cli.main import main
from specdemo.records import recordings
from specdemo.records.figures import first_difference
from specdemo.records.trace_file import load

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def pair(monkeypatch):
    loaded = tiny_pair()
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: loaded)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return loaded


def test_generate_prints_text_sentence_and_badge(capsys):
    assert main(["generate", "hello", "--raw", "--max-new-tokens", "9", "--baseline"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "Same text" in out and "× the speed" in out
    assert "Identical to the target alone, token for token." in out


def test_generate_shows_the_draft_alone_and_its_divergence(capsys, pair):
    arguments = ["generate", "hello", "--raw", "--max-new-tokens", "20", "--draft-alone", "--json", "-"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    lanes = {name: lane.ids for name, lane in load(captured.out).lanes.items()}
    assert set(lanes) == {"speculative", "draft"}
    draft_divergence = first_difference(lanes["speculative"], lanes["draft"])
    assert f"differs from the target's text from token {draft_divergence + 1} on." in captured.err
    shown = captured.err.rpartition("\n\n")[2]
    assert shown.count("⟨≠⟩") == 1
    before, after = (
        pair.pieces.text(ids)
        for ids in (lanes["draft"][:draft_divergence], lanes["draft"][draft_divergence:])
    )
    visible = {code: chr(0x2400 + code) for code in range(32)}
    assert shown == f"{before}⟨≠⟩{after}".translate(visible) + "\n"


def test_a_draft_without_divergence_has_no_mark(capsys, monkeypatch, pair):
    same = replace(pair, draft=pair.target)
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: same)
    assert main(["generate", "hello", "--raw", "--max-new-tokens", "9", "--baseline", "--draft-alone"]) == 0
    out = capsys.readouterr().out
    assert "The draft alone wrote the same 9 tokens." in out and "⟨≠⟩" not in out
    first, last = out.split("\n\n")[0], out.rpartition("\n\n")[2]
    assert first.strip() == last.strip() != ""


def test_without_the_flag_the_draft_alone_is_not_mentioned(capsys):
    main(["generate", "hello", "--raw", "--max-new-tokens", "5"])
    sentence, end = capsys.readouterr().out.rpartition("\n\n")[2].split("\n")
    assert " target passes instead of 5. " in sentence and end == ""


def test_colours_follow_the_status_and_control_characters_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["generate", "hello", "--raw", "--max-new-tokens", "40", "--seed", "3"])
    out = capsys.readouterr().out
    assert "\x1b[1;33;4m" in out and "\x1b[2;31;9m" in out
    assert "\x1b[33m" not in out
    main(["generate", "hello", "--raw", "--max-new-tokens", "20", "--draft-alone"])
    assert "\x1b[33m⟨≠⟩" in capsys.readouterr().out
    assert not {chr(code) for code in range(32)} & set(out) - {"\x1b", "\n", "\t"}


def test_a_trace_of_somebody_else_neither_reverses_text_nor_controls_the_terminal(capsys, tmp_path):
    trace = json.loads(recordings.load("story-sampled").to_json())
    harmful = "\x1b[2J\x9b2J\u202e\u2066\u200f"
    trace["pieces"] = dict.fromkeys(trace["pieces"], base64.b64encode(harmful.encode()).decode())
    (tmp_path / "run.json").write_text(json.dumps(trace))
    assert main(["replay", str(tmp_path / "run.json")]) == 0
    out = capsys.readouterr().out
    assert "⟨U+202E⟩" in out and not set(harmful) - set("[2J") & set(out)


def test_json_contains_the_whole_run(capsys, tmp_path):
    main(["generate", "hi", "--max-new-tokens", "6", "--json", "-", "--temperature", "0.7"])
    captured = capsys.readouterr()
    run = load(captured.out)
    assert run.config.prompt == "hi" and len(run.lanes["speculative"].ids) == 6
    assert " instead of 6. " in captured.err
    path = tmp_path / "run.json"
    main(["generate", "hi", "--max-new-tokens", "6", "--json", str(path)])
    assert load(path.read_text()).config.rule == "greedy"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", ""], "prompt is empty"),
        (["generate", "x", "--k", "0"], "k must be from 1"),
        (["generate", "x", "--k", "x"], "k must be a whole number from 1 to 12, or auto; not 'x'."),
        (["lab", "draft-length", "--k", "x"], "k must be a whole number from 1 to 12, or auto; not 'x'."),
        (["lab", "temperature", "--k", "x"], "k must be a whole number from 1 to 12, or auto; not 'x'."),
        (["generate", "x", "--rule", "rejection", "--temperature", "0.0005"], "temperature of 0.001 or more"),
        (["generate", "x", "--rule", "rejection"], "needs a temperature of 0.001 or more"),
        (["generate", "x", "--drafter", "oracle"], "Unknown drafter"),
        (["generate", "x", "--max-new-tokens", "2", "--json", "/nowhere/x.json"], "Cannot write"),
        (["replay", "/nowhere/x.json"], "Cannot read /nowhere/x.json: No such file"),
        (["replay", "/"], "Cannot read /: Is a directory"),
        (["replay", __file__], "This file is not a trace"),
        (["bench", "--prompts", "/nowhere", "--out", "x.json"], "Cannot read the prompts"),
        (["bench", "--peers", "--prompts", "/nowhere", "--out", "x.json", "--k", "2,4"], "at one --k"),
        (["bench", "--peers", "--prompts", "/nowhere", "--out", "x.json", "--k", "x"], "separated by commas"),
    ],
)
def test_a_user_s_error_gets_one_sentence_and_status_2(arguments, words, capsys):
    assert main(arguments) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specdemo: ") and words in message


def test_bench_writes_its_file_and_prints_the_table(capsys, tmp_path):
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.json"
    prompts.write_text('{"id": "a", "category": "facts", "mode": "raw", "prompt": "abc"}\n')
    assert (
        main(["bench", "--prompts", str(prompts), "--out", str(out), "--k", "1,2", "--max-new-tokens", "6"])
        == 0
    )
    assert len(json.loads(out.read_text())["rows"]) == 2
    assert "1 of 1" in capsys.readouterr().out
    assert main(["bench", "--prompts", str(prompts), "--out", str(out), "--k", "1,x"]) == 2


def test_replay_prints_what_generate_printed(capsys, tmp_path):
    path = tmp_path / "run.json"
    arguments = ["generate", "hello", "--raw", "--max-new-tokens", "9", "--baseline", "--json", str(path)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out == printed


def test_replay_writes_a_page_with_the_run_in_it(capsys, tmp_path):
    path, page = tmp_path / "run.json", tmp_path / "run.html"
    path.write_text(finished().to_json(), encoding="utf-8")
    assert main(["replay", str(path), "--html", str(page)]) == 0
    assert '{"type":"end","sentence":"Same text' in page.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""


def test_replay_takes_the_name_of_a_builtin_recording(capsys, tmp_path, monkeypatch):
    (tmp_path / "demo.json").write_text(finished().to_json(), encoding="utf-8")
    (tmp_path / "index.json").write_text('[{"name":"demo","title":"Demo","about":"A run."}]')
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    assert main(["replay", "demo"]) == 0
    assert "target passes instead of 24" in capsys.readouterr().out
    assert main(["replay", "other"]) == 2
    assert capsys.readouterr().err == (
        "specdemo: Cannot read other: No such file or directory; give a trace file or a recording (demo).\n"
    )


def test_a_pair_can_be_named(monkeypatch, capsys, pair):
    asked = []
    monkeypatch.setattr(
        specdemo.pairs.load, "load_sources", lambda sources, **_: asked.append(sources) or pair
    )
    assert main(["generate", "hello", "--raw", "--max-new-tokens", "4", "--pair", "smollm2-1.7b"]) == 0
    assert asked[0].target == "HuggingFaceTB/SmolLM2-1.7B-Instruct" and len(asked[0].target_revision) == 40
    assert main(["generate", "hello", "--pair", "nope"]) != 0
    assert "choose one of: built-in, qwen2.5-7b" in capsys.readouterr().err
