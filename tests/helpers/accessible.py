"""Check a page with axe, in light and in dark."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT

SHOW_THEME = """dark => {
    document.body.classList.toggle('dark', dark);
    const changing = () => document.getAnimations().filter(one => one instanceof CSSTransition);
    const shown = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return shown().then(() => Promise.allSettled(changing().map(one => one.finished))); }"""
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules that another theme may break alone."""
GRAVE = """async ([parts, rules]) => {
    const { violations } = await axe.run({ include: parts },
        { resultTypes: ['violations'], ...rules && { runOnly: rules } });
    return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
        .map(({ id, nodes }) => [id, nodes[0].target]); }"""


def assert_accessible(page: Any, *parts: str, state: str = "") -> None:
    """Check that axe finds nothing serious in these parts in both themes; restore the theme."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    own = page.evaluate("document.body.classList.contains('dark')")
    for dark, rules in ((own, None), (not own, OF_COLOURS)):
        page.evaluate(SHOW_THEME, dark)
        grave = page.evaluate(GRAVE, [[[part] for part in parts], rules])
        assert grave == [], (state, "dark" if dark else "light", grave)
    page.evaluate(SHOW_THEME, own)
