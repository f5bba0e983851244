"""All colors of the page and the charts. Text in these colors meets WCAG AA contrast (4.5:1).

The hues are from Okabe & Ito's color-blind-safe palette.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Palette:
    """The colors of one theme. The last six are colors of tokens, named like ``trace.Status``."""

    page: str
    surface: str
    ink: str
    muted: str
    line: str
    accent: str
    button: str
    pending: str
    accepted: str
    discarded: str
    rejected: str  # the discarded token that the target rejected
    corrected: str
    bonus: str


LIGHT = Palette(
    page="#f3f5f7",
    surface="#ffffff",
    ink="#141c24",
    muted="#525e6a",
    line="#d5dbe1",
    accent="#0b5cad",
    button="#0b5cad",
    pending="#5c5470",
    accepted="#00664b",
    discarded="#65707b",
    rejected="#a01f68",
    corrected="#8f4a00",
    bonus="#0b5cad",
)

DARK = Palette(
    page="#0e1318",
    surface="#161d24",
    ink="#edf1f5",
    muted="#a3b0bc",
    line="#2f3a45",
    accent="#7fbcff",
    button="#1767b5",
    pending="#c0b6dc",
    accepted="#4fd3a6",
    discarded="#98a4af",
    rejected="#f59bcb",
    corrected="#ffb65c",
    bonus="#7fbcff",
)

THEMES = {"light": LIGHT, "dark": DARK}


def css_variables() -> str:
    """Return both themes as CSS custom properties ``--sd-…``; Gradio sets the class ``dark`` in dark mode.

    Paper is always light.
    """
    light, dark = (
        "".join(f"--sd-{name}:{colour};" for name, colour in asdict(palette).items())
        for palette in (LIGHT, DARK)
    )
    return f":root{{{light}}}@media not print{{.dark{{color-scheme:dark;{dark}}}}}"
