"""Runs of watched servers on the stage: what the server reports is shown, the rest is unknown."""

import pytest
from helpers.visitor import assert_figures, open_round, press, run_to_end, saved
from helpers.watched_runs import undrafted, watched_events

from specdemo.records.trace_file import load

TITLE, CARDS = "[data-role=microscope-title]", "[data-role=microscope-cards]"


def speculative(events):
    return [event["round"] for event in events if event["type"] == "round" and event["lane"] == "speculative"]


def help_on_the_run(page):
    page.click("[data-help=run]")
    words = page.inner_text(".sd-help")
    page.keyboard.press("Escape")
    return words


@pytest.mark.slow
def test_a_run_of_llama_cpp_marks_rejected_tokens_and_is_saved_as_a_trace(open_page, service, tmp_path):
    llama = service.replayed = watched_events("llama-models.json", "llama-ngram-text-code")
    page = open_page()
    run_to_end(page)
    rounds = speculative(llama)
    tokens = [token["status"] for round_ in rounds for token in round_["drafted"]]
    shown = "[data-lane=speculative] .sd-token"
    for status in ("discarded", "accepted"):
        assert page.locator(f"{shown}[data-status={status}]").count() == tokens.count(status) > 0
    page.check("[data-role=show-discards]")
    assert set(page.locator(f"{shown}[data-status=discarded]").all_inner_texts()) == {"▢"}
    assert_figures(page, llama[-1]["totals"])
    unknown = help_on_the_run(page)
    assert "rejected tokens (▢)" in unknown and "there is no baseline" not in unknown

    index = next(number for number, one in enumerate(rounds) if any(t["rejected"] for t in one["drafted"]))
    open_round(page, index, len(rounds))
    title = page.inner_text(TITLE)
    assert title.endswith("ms in total.") and "Rule" not in title
    cards = page.inner_text(CARDS)
    assert "The server does not report which token it was" in cards
    assert not any(word in cards for word in ("null", "NaN", "undefined"))
    page.keyboard.press("Escape")

    file = saved(page, "save-trace", tmp_path)
    run = load(file.read_bytes())
    assert run.watched is not None and run.watched.server == "lab"
    page.set_input_files("[data-role=trace-file]", str(file))
    page.wait_for_selector(".sd[data-state=playing]")
    press(page, "to-end")
    assert_figures(page, llama[-1]["totals"])


@pytest.mark.slow
def test_other_servers_show_what_they_report(open_page, service):
    page = open_page()
    vllm = service.replayed = watched_events("vllm-models.json", "vllm-chat-mixed-logprobs")
    run_to_end(page)
    rounds = speculative(vllm)
    place = next(index for index, one in enumerate(rounds) if one["emission"]["top"] and one["drafted"])
    open_round(page, place, len(rounds))
    assert page.locator(f"{CARDS} .sd-top").count() > 0
    assert page.locator(f"{CARDS} h4:has-text('draft')").count() == 0
    assert vllm[0]["run"]["watched"]["engine"] in help_on_the_run(page)

    numbers = "llama-ngram-chat-numbers"
    race = service.replayed = watched_events("llama-models.json", numbers, undrafted(numbers))
    run_to_end(page)
    assert race[-1]["totals"]["speedup"] is not None
    assert_figures(page, race[-1]["totals"])

    summed = service.replayed = watched_events("llama-models.json", "odd-llama-held-back")
    run_to_end(page)
    assert_figures(page, summed[-1]["totals"])
    open_round(page, 1, len(speculative(summed)))
    assert "only in a sum with others" in page.inner_text(TITLE)
    words = page.inner_text(CARDS)
    assert "only in a sum with others" in words and "▢" in words
    assert not any(word in words for word in ("null", "NaN", "undefined"))
    page.keyboard.press("Escape")

    plain = service.replayed = watched_events("lmstudio-models.json", "documented-lmstudio-chat-plain")
    run_to_end(page)
    for figure in ("tau", "alpha_compared", "passes"):
        assert page.inner_text(f"[data-figure={figure}]") == "–"
    assert page.inner_text("[data-lane=speculative] .sd-passes b") == "–"
    assert "does not report its rounds" in help_on_the_run(page)
    open_round(page, 0, len(speculative(plain)))
    assert page.inner_text(TITLE).startswith("Piece 1 of the text.")
