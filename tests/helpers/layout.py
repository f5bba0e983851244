"""Find parts of a page that are cut, covered or overwritten, at any size and in any font."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.visitor import FRAMES

FAULTS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
# A narrow, a wide and a tall font, as system-ui may be.
FONTS = {
    "Liberation": ("Liberation Sans", "Liberation Mono"),
    "DejaVu": ("DejaVu Sans", "DejaVu Sans Mono"),
    "Noto": ("Noto Sans", "Noto Sans Mono"),
}
LANES = """() => [...document.querySelectorAll('.sd-text')].filter(box => box.clientHeight).map(box => {
    const { fontSize, lineHeight } = getComputedStyle(box);
    return { lines: Math.floor(box.clientHeight / parseFloat(lineHeight)), size: parseFloat(fontSize) }; })"""
INSTALLED = """families => families.filter(family => {
    // Two fallbacks of different widths: a font that is missing follows them.
    const context = new OffscreenCanvas(1, 1).getContext('2d');
    const widths = ['monospace', 'serif'].map(fallback => {
        context.font = `40px "${family}", ${fallback}`;
        return context.measureText('iiiWWW.,0').width; });
    return widths[0] === widths[1]; }).length"""


def write_in(page: Any, font: str) -> bool:
    """Set the page in one of ``FONTS``; return whether this machine has it."""
    sans, mono = FONTS[font]
    page.add_style_tag(
        content=f""":root, body, .gradio-container {{
        --font: "{sans}", sans-serif !important; --font-mono: "{mono}", monospace !important; }}
        body, .gradio-container, .sd {{ font-family: "{sans}", sans-serif !important; }}"""
    )
    return page.evaluate(INSTALLED, [sans]) == 1


def fonts(*pages: Any) -> Iterator[str]:
    """Write the pages in one font after the other, and yield the names; skip fonts that are missing."""
    for font in FONTS:
        if all([write_in(page, font) for page in pages]):
            yield font
        elif os.environ.get("CI"):
            pytest.fail(f"{font} is not installed on this machine")


def faults(page: Any) -> list[str]:
    return page.evaluate(FAULTS)


def resize(page: Any, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(250)  # resize observers run
    page.evaluate(FRAMES)


def assert_in_the_window(page: Any, height: int, *parts: str) -> None:
    for part in parts:
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, part
