"""Every colour of the page and the plots, light and dark, in one place.

The hues are those of Okabe & Ito's colour-blind-safe set, darkened for light paper and lightened for
dark paper until text in them reaches WCAG AA (4.5:1). Knows nothing of plots, pages or models.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Palette:
    """One theme. The five status colours are named after ``trace.Status``; ``rejected`` is the one
    discarded token that the target refused."""

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
    rejected: str
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
    """The palette as CSS custom properties ``--sd-…``; Gradio marks dark mode with ``.dark``."""
    return f":root{{{_properties(LIGHT)}}}.dark{{{_properties(DARK)}}}"


def _properties(palette: Palette) -> str:
    return "".join(f"--sd-{name}:{colour};" for name, colour in asdict(palette).items())
