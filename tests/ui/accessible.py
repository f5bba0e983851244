"""What axe finds wrong with a page, in light and in dark."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT

SHOW_THEME = """dark => {
    document.body.classList.toggle('dark', dark);
    const changing = () => document.getAnimations().filter(one => one instanceof CSSTransition);
    const shown = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return shown().then(() => Promise.allSettled(changing().map(one => one.finished))); }"""
GRAVE = """async parts => {
    const { violations } = await axe.run({ include: parts }, { resultTypes: ['violations'] });
    return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
        .map(({ id, nodes }) => [id, nodes[0].target]); }"""


def assert_accessible(page: Any, *parts: str, state: str = "") -> None:
    """Axe finds nothing serious in these parts, whatever the theme; the page's own is shown again."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    own = page.evaluate("document.body.classList.contains('dark')")
    for dark in (own, not own):
        page.evaluate(SHOW_THEME, dark)
        assert page.evaluate(GRAVE, [[part] for part in parts]) == [], (state, "dark" if dark else "light")
    page.evaluate(SHOW_THEME, own)
