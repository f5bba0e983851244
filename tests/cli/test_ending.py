"""The end of a command: versions, closed pipes, Ctrl-C, and output that cannot be written."""

import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from helpers.tiny import tiny_pair
from helpers.waiting import PATIENCE_S

import specdemo.pairs.load
from specdemo import __version__
from specdemo.cli import replay
from specdemo.cli.main import main
from specdemo.records.trace_file import load

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "specdemo"]
APP = [sys.executable, str(ROOT / "app.py")]
GENERATE = ["generate", "hello", "--raw", "--max-new-tokens", "6"]
FULL = "Cannot write the output: No space left on device; free some space"


def started(command: list[str], env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
    """Start a program that handles SIGINT even if this process ignores it, as in a background shell."""
    options |= {"cwd": ROOT, "text": True, "stderr": subprocess.PIPE, "env": {**os.environ, **env}}
    return subprocess.Popen(
        command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options
    )


def test_both_programs_print_their_version():
    for program in (COMMAND, APP):
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout == f"specdemo {__version__}\n"


@pytest.mark.parametrize("arguments", [["replay", "story-sampled"], ["--help"]])
def test_a_closed_pipe_ends_a_command_quietly(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    program = started([*COMMAND, *arguments], {"PYTHONUNBUFFERED": ""}, stdout=writing)
    os.close(writing)
    assert (program.communicate(timeout=PATIENCE_S)[1], program.returncode) == ("", 128 + signal.SIGPIPE)


@pytest.mark.parametrize(
    ("output", "unbuffered", "status", "words"),
    [
        (">&-", "", 2, "specdemo: Standard output is closed; redirect it to a file or to /dev/null.\n"),
        (">/dev/full", "", 2, f"specdemo: {FULL} or choose another place.\n"),
        (">/dev/full", "1", 2, f"specdemo: {FULL} or choose another place.\n"),
        ("2>&- >/dev/null", "", 0, ""),
    ],
)
def test_output_that_cannot_be_written_ends_a_command_in_a_sentence(output, unbuffered, status, words):
    command = ["bash", "-c", f"{sys.executable} -m specdemo replay story-sampled {output}"]
    program = started(command, {"PYTHONUNBUFFERED": unbuffered, "PYTHONIOENCODING": "ascii"})
    assert (program.communicate(timeout=PATIENCE_S)[1], program.returncode) == (words, status)


def test_a_missing_folder_for_temporary_files_is_reported_in_a_sentence(monkeypatch, capsys):
    def denied(*_names: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "open", denied)
    monkeypatch.setattr(replay, "run", lambda _options: print(tempfile.gettempdir()))
    assert main(["replay", "story-sampled"]) == 2
    sentence = "No folder for temporary files is writable; set TMPDIR to a writable folder."
    assert capsys.readouterr().err == f"specdemo: {sentence}\n"


@pytest.mark.parametrize("program", [[*COMMAND, *GENERATE], APP], ids=["specdemo", "app.py"])
def test_an_interrupt_ends_a_program_that_still_imports_its_libraries(program, tmp_path):
    for name in ("torch", "gradio", "transformers"):
        (tmp_path / f"{name}.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    running = started(program, {"PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE)
    assert running.stdout is not None and running.stdout.readline() == "importing\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=PATIENCE_S)[1].strip() in ("", "specdemo: interrupted")
    assert running.returncode == 130


@pytest.fixture(scope="module")
def pair():
    return tiny_pair()


@pytest.fixture
def tiny(monkeypatch, pair, one_thread, few_measurements):
    monkeypatch.setattr(specdemo.pairs.load, "load_sources", lambda *_, **__: pair)


@pytest.fixture
def full_disk():
    """Let no file grow beyond 1,000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("tiny", "full_disk")
def test_a_full_disk_leaves_the_old_file_and_ends_a_command_in_a_sentence(tmp_path, capsys):
    out = tmp_path / "run.json"
    out.write_text("old")
    assert main([*GENERATE, "--json", str(out)]) == 2
    assert f"Cannot write {out}: File too large" in capsys.readouterr().err
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]
    assert main(["site", str(tmp_path / "site")]) == 2
    assert "File too large; free some space or choose another place." in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_an_output_file_keeps_its_link_and_its_mode(tmp_path):
    out, link = tmp_path / "run.json", tmp_path / "link.json"
    out.write_text("old")
    out.chmod(0o640)
    link.symlink_to(out)
    assert main([*GENERATE, "--json", str(link)]) == 0
    assert link.is_symlink() and out.stat().st_mode & 0o777 == 0o640
    assert load(out.read_text()).config.prompt == "hello"
    assert main([*GENERATE, "--json", os.devnull]) == 0
    assert Path(os.devnull).is_char_device()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "arguments",
    [GENERATE, ["lab", "category", "--limit", "1", "--max-new-tokens", "2"], ["replay", "story-sampled"]],
    ids=lambda arguments: arguments[0],
)
def test_a_command_replaces_characters_that_the_output_lacks_and_reports_a_full_output(
    arguments, monkeypatch, capsys
):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    assert main(arguments) == 0
    assert output.getvalue().isascii() and output.getvalue()
    with open("/dev/full", "wb", 0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, encoding="utf-8", write_through=True))
        assert main(arguments) == 2
    assert FULL in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("tiny")
def test_json_on_standard_output_is_utf8_whatever_the_terminal_has(monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    assert main(["generate", "naïve 日本", "--raw", "--max-new-tokens", "2", "--json", "-"]) == 0
    assert load(output.getvalue()).config.prompt == "naïve 日本"


@pytest.mark.usefixtures("tiny")
def test_a_failing_chat_template_and_a_prompt_that_is_not_utf8_are_refused(monkeypatch, capsys, pair):
    assert main(["generate", os.fsdecode(b"caf\xe9")]) == 2
    assert "The prompt is not valid UTF-8" in capsys.readouterr().err
    monkeypatch.setattr(pair.tokenizer, "chat_template", "{{ raise_exception('Only one role.') }}")
    assert main(["generate", "hello"]) == 2
    assert "chat template fails: Only one role;" in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_an_interrupt_before_the_first_point_leaves_the_old_table(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("specdemo.lab.experiments.measure_experiment", interrupt)
    out = tmp_path / "table.csv"
    out.write_text("old")
    assert main(["lab", "draft-length", "--limit", "1", "--out", str(out)]) == 130
    assert out.read_text() == "old"
