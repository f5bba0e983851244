"""Built-in recordings: the index, the figures of the runs, and no access to other files."""

import json
from dataclasses import replace

import pytest
from helpers.tiny_runs import finished

from specdemo.engine.race import replay_events
from specdemo.records import recordings
from specdemo.records.limits import UserError
from specdemo.records.trace import SPECULATIVE, Lane, Rule

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "recordings"
    place.mkdir()
    for name, rule in (("sampled", Rule.REJECTION), ("copied", Rule.GREEDY), ("private", Rule.GREEDY)):
        (place / f"{name}.json").write_text(finished(rule).to_json(), encoding="utf-8")
    entries = [{"name": name, "title": name.title(), "about": "Why."} for name in ("sampled", "copied")]
    (place / "index.json").write_text(json.dumps(entries), encoding="utf-8")
    (tmp_path / "outside.json").write_text(finished().to_json(), encoding="utf-8")
    monkeypatch.setattr(recordings, "FOLDER", place)
    return place


def test_the_menu_has_the_order_of_the_index_and_the_figures_of_the_runs(folder):
    first, second = recordings.listed()
    run = finished(Rule.REJECTION)
    assert recordings.names() == ["sampled", "copied"]
    assert (first.name, first.title, first.about) == ("sampled", "Sampled", "Why.")
    assert (first.device, first.pair, first.precision) == (run.device, run.pair, run.precision)
    assert (first.rule, first.drafter, first.k) == (Rule.REJECTION, "draft-model", 3)
    assert (first.speedup, first.tokens) == (run.totals["speedup"], 24)
    assert second.rule is Rule.GREEDY


def test_a_recording_loads_as_it_was_saved_and_is_read_once(folder):
    run = recordings.load("copied")
    assert run == finished()
    (folder / "copied.json").unlink()
    assert recordings.load("copied") is run


@pytest.mark.parametrize("name", ["private", "../outside", "index", "", "/etc/passwd", "sampled.json"])
def test_only_what_the_index_names_can_be_loaded(folder, name):
    with pytest.raises(UserError, match=r"no recording named .*; choose one of: sampled, copied"):
        recordings.load(name)


def test_without_the_folder_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", tmp_path / "nowhere")
    assert recordings.listed() == []
    with pytest.raises(UserError, match="no recordings are installed"):
        recordings.load("copied")


def test_everything_that_ships_loads():
    for recording in recordings.listed():
        assert recording.title and recording.about.endswith(".")
        assert recordings.load(recording.name).totals["tokens"] == recording.tokens


@pytest.mark.parametrize("times", [1, 3])
def test_a_replayed_run_that_repeats_its_text_says_so(times):
    run = recordings.load("days")
    rounds = run.lanes[SPECULATIVE].rounds * times
    *_, end = replay_events(replace(run, lanes={SPECULATIVE: Lane(rounds)}))
    assert ("output repeats itself" in end["remarks"]) == (times == 3)
