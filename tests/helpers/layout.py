"""Find parts of a page that are cut, covered or overwritten, at any size."""

from pathlib import Path
from typing import Any

from helpers.visitor import FRAMES

FAULTS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
LANES = """() => [...document.querySelectorAll('.sd-text')].filter(box => box.clientHeight).map(box => {
    const { fontSize, lineHeight } = getComputedStyle(box);
    return { lines: Math.floor(box.clientHeight / parseFloat(lineHeight)), size: parseFloat(fontSize) }; })"""


def faults(page: Any) -> list[str]:
    page.wait_for_function(
        "!document.querySelector('.html-container > [inert]')"
    )  # parts whose script is not there yet
    return page.evaluate(FAULTS)


def resize(page: Any, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(250)  # resize observers run
    page.evaluate(FRAMES)


def assert_in_the_window(page: Any, height: int, *parts: str) -> None:
    for part in parts:
        box = page.locator(part).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, part
