"""The page within what its policy allows: nothing of it is blocked, and nothing could call out."""

import pytest
from helpers.visitor import run_to_end


@pytest.mark.slow
def test_the_page_breaks_no_policy_and_could_not_call_out(open_page, url):
    page = open_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.reload()
    run_to_end(page)
    for tab in ("Learn", "Play", "Is it the same?", "Lab", "Class", "Run"):
        page.get_by_role("tab", name=tab).click()
    page.locator("[data-plot=speedup]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-plot=speedup].js-plotly-plot")
    for role, words in (("save-page", "Page saved"), ("copy-image", "Image"), ("save-trace", "Trace saved")):
        page.click("[data-role=save-menu] summary")
        page.click(f"[data-role={role}]")
        page.wait_for_function(
            f"document.querySelector('[data-role=told]').textContent.startsWith('{words}')"
        )
    assert not [text for text in told if "Content Security Policy" in text]
    blocked = page.evaluate(
        """async () => {
            const seen = new Promise(done => addEventListener("securitypolicyviolation", done));
            const stolen = await fetch("http://127.0.0.1:9/?" + document.title).catch(() => null);
            return [stolen, (await seen).effectiveDirective];
        }"""
    )
    assert blocked == [None, "connect-src"]
    assert page.evaluate("eval('1 + 1')") == 2, "which Gradio's templates need"
