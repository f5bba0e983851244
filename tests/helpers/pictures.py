"""The pictures of the README, taken of the page in Chromium while it replays recorded runs.

In ``tests``, ``python -m helpers.pictures`` writes them to ``assets/screenshots``: a moving picture of a run,
a lesson, a recorded test and the lab's theory. The picture for previews of the page's link goes to the page's
own files.
"""

import io
import itertools
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.stand_in import StandIn
from PIL import Image
from playwright.sync_api import sync_playwright

from specdemo.pairs.sources import Sources
from specdemo.ui.component import STATIC
from specdemo.ui.http.sharing import PICTURE, PICTURE_SIZE
from specdemo.ui.page import build_page, launch_options

FOLDER = Path(__file__).parents[2] / "assets" / "screenshots"
SIZE = {"width": 1280, "height": 720}
MOVING = "code"
"""The recording of the moving picture: predictable text, so that many draft tokens are accepted."""
FRAME_MS = 120
MOVING_S = 14.0
MOVING_WIDTH = 1024
LAB_MS = 1500
"""Until its first chart stands."""
PREVIEW_SCALE = 1.2
"""The preview is enlarged, because it is shown small."""
PREVIEW_STYLE = """
.sd-embed a, .sd-foot, .sd-help-button { display: none !important; }
.sd-embed h1 { font-size: 24px; }
"""
HOLD_MS = 2500
"""Milliseconds for which the last frame stands still."""


@contextmanager
def pages() -> Iterator[Any]:
    """``opened(query, theme)``: the page replaying what the query names."""
    page = build_page(StandIn(), Sources().drafters)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opened(
            query: str,
            theme: str = "light",
            seen: str = "[data-lane=speculative] .sd-token",
            size: Any = SIZE,
            scale: float = 1,
        ) -> Any:
            visitor = chromium.new_page(viewport=size, device_scale_factor=scale)
            visitor.goto(f"{url}?__theme={theme}&{query}")
            visitor.wait_for_selector(seen)
            return visitor

        yield opened
        chromium.close()
    page.close()


def still(visitor: Any, name: str) -> None:
    """Write what is seen now."""
    visitor.wait_for_timeout(700)  # charts settle
    visitor.screenshot(path=FOLDER / f"{name}.png")


def preview(opened: Any) -> None:
    """Write the picture for previews of the page's link, with few colors to be small."""
    width, height = (round(length / PREVIEW_SCALE) for length in PICTURE_SIZE)
    visitor = opened(f"embed=1&trace={MOVING}", size={"width": width, "height": height}, scale=PREVIEW_SCALE)
    visitor.click("[data-role=to-end]")
    visitor.add_style_tag(content=PREVIEW_STYLE)
    visitor.wait_for_timeout(LAB_MS)
    picture = Image.open(io.BytesIO(visitor.screenshot())).convert("RGB")
    picture.quantize(128).save(STATIC / PICTURE, optimize=True)


def moving(visitor: Any, path: Path) -> None:
    """Write what is seen until the run is over, as a WebP that moves."""
    frames, times = [], [time.monotonic()]
    while times[-1] - times[0] < MOVING_S and not visitor.locator(".sd[data-state=ended]").count():
        picture = Image.open(io.BytesIO(visitor.screenshot()))
        frames.append(picture.resize((MOVING_WIDTH, MOVING_WIDTH * SIZE["height"] // SIZE["width"])))
        time.sleep(max(0.0, times[-1] + FRAME_MS / 1000 - time.monotonic()))
        times.append(time.monotonic())
    # Each frame stands as long as it took to take: the picture moves as the page did.
    lasting = [round(1000 * (then - now)) for now, then in itertools.pairwise(times)]
    lasting[-1] = HOLD_MS
    first, *others = frames
    first.save(path, save_all=True, append_images=others, duration=lasting, loop=0, quality=60, method=4)


def main() -> None:
    """Take them all."""
    with pages() as opened:
        preview(opened)
        moving(opened(f"trace={MOVING}"), FOLDER / "run.webp")
        page = opened("trace=code")
        page.click("[data-role=to-end]")
        page.click("#tab-lab-button")
        page.click("[data-role=take-run]")
        page.wait_for_timeout(LAB_MS)
        still(page, "lab")
        page = opened("lesson=3", seen="#lessons h2 >> visible=true")
        page.click("[data-lesson='3'] button[data-show*=editor] >> nth=0")
        still(page, "learn")
        still(opened("proof=other-libraries", seen=".sd-proof[data-state=ended]:visible"), "proof")


if __name__ == "__main__":
    main()
