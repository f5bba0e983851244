"""Runs of watched servers on the stage: what the server reports is shown, the rest is unknown."""

import json

from helpers.visitor import assert_figures, open_round, press, run_to_end, saved
from helpers.watched_runs import undrafted, watched_events

from specdemo.records.trace_file import load


def speculative(events):
    return [event["round"] for event in events if event["type"] == "round" and event["lane"] == "speculative"]


def help_on_the_run(page):
    page.click("[data-help=run]")
    words = page.inner_text(".sd-help")
    page.keyboard.press("Escape")
    return words


def test_a_run_of_llama_cpp_marks_rejected_tokens_and_is_saved_as_a_trace(open_page, service, tmp_path):
    llama = service.replayed = watched_events("llama-models.json", "llama-ngram-text-code")
    page = open_page()
    run_to_end(page)
    rounds = speculative(llama)
    rejected = sum(token["status"] == "discarded" for round_ in rounds for token in round_["drafted"])
    kept = sum(token["status"] == "accepted" for round_ in rounds for token in round_["drafted"])
    lane = "[data-lane=speculative]"
    assert page.locator(f"{lane} .sd-token[data-status=discarded]").count() == rejected > 0
    assert page.locator(f"{lane} .sd-token[data-status=accepted]").count() == kept > 0
    page.check("[data-role=show-discards]")
    assert set(page.locator(f"{lane} .sd-token[data-status=discarded]").all_inner_texts()) == {"▢"}
    assert_figures(page, llama[-1]["totals"])
    unknown = help_on_the_run(page)
    assert "rejected tokens (▢)" in unknown and "there is no baseline" not in unknown

    index = next(number for number, one in enumerate(rounds) if any(t["rejected"] for t in one["drafted"]))
    open_round(page, index, len(rounds))
    title = page.inner_text("[data-role=microscope-title]")
    assert title.endswith("ms in all.") and "Rule" not in title
    cards = page.inner_text("[data-role=microscope-cards]")
    assert "The server does not report which token it was" in cards
    assert "null" not in cards and "NaN" not in cards and "undefined" not in cards
    page.keyboard.press("Escape")

    file = saved(page, "save-trace", tmp_path)
    run = load(file.read_bytes())
    assert run.watched is not None and run.watched.server == "lab"
    shown = json.loads(file.read_text(encoding="utf-8"))["totals"]
    names = ("tau", "alpha_compared", "tokens")
    assert {name: run.totals[name] for name in names} == {name: shown[name] for name in names}
    page.set_input_files("[data-role=trace-file]", str(file))
    page.wait_for_selector(".sd[data-state=playing]")
    press(page, "to-end")
    assert_figures(page, llama[-1]["totals"])


def test_the_targets_own_alternatives_of_vllm_are_shown(open_page, service):
    events = watched_events("vllm-models.json", "vllm-chat-mixed-logprobs")
    service.replayed = events
    page = open_page()
    run_to_end(page)
    rounds = speculative(events)
    place = next(
        index for index, round_ in enumerate(rounds) if round_["emission"]["top"] and round_["drafted"]
    )
    open_round(page, place, len(rounds))
    assert page.locator("[data-role=microscope-cards] .sd-top").count() > 0
    assert page.locator("[data-role=microscope-cards] h4:has-text('draft')").count() == 0
    assert events[0]["run"]["watched"]["engine"] in help_on_the_run(page)


def test_a_race_with_a_server_without_drafts_has_its_speedup(open_page, service):
    events = watched_events(
        "llama-models.json", "llama-ngram-chat-numbers", undrafted("llama-ngram-chat-numbers")
    )
    service.replayed = events
    page = open_page()
    run_to_end(page)
    assert events[-1]["totals"]["speedup"] is not None
    assert_figures(page, events[-1]["totals"])


def test_without_rounds_there_is_text_and_no_figure_of_rounds(open_page, service):
    events = watched_events("lmstudio-models.json", "documented-lmstudio-chat-plain")
    service.replayed = events
    page = open_page()
    run_to_end(page)
    for figure in ("tau", "alpha_compared", "passes"):
        assert page.inner_text(f"[data-figure={figure}]") == "–"
    assert "does not report its rounds" in help_on_the_run(page)
    open_round(page, 0, len(speculative(events)))
    assert page.inner_text("[data-role=microscope-title]").startswith("Piece 1 of the text.")
