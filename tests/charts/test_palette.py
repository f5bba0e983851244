"""The palette reaches WCAG AA in both themes, also on the tints behind the stage's text."""

import pytest

from specdemo.charts.palette import THEMES, Palette, css_variables

AA = 4.5
STRONGEST_TINT = 0.24


def luminance(colour: tuple[float, ...]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def rgb(code: str) -> tuple[float, ...]:
    return tuple(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    # as WCAG 2.2 defines it
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def tinted(paper: str, colour: str, share: float) -> tuple[float, ...]:
    # as CSS's color-mix(in srgb, colour share, transparent) on paper
    return tuple(share * c + (1 - share) * p for c, p in zip(rgb(colour), rgb(paper), strict=True))


@pytest.mark.parametrize("palette", THEMES.values(), ids=THEMES)
def test_text_reaches_aa_on_both_backgrounds(palette: Palette):
    for paper in (palette.page, palette.surface):
        for name in ("ink", "muted", "accent", "accepted", "discarded", "rejected", "corrected", "bonus"):
            assert contrast(rgb(getattr(palette, name)), rgb(paper)) >= AA, (name, paper)
    assert contrast(rgb("#ffffff"), rgb(palette.button)) >= AA


@pytest.mark.parametrize("palette", THEMES.values(), ids=THEMES)
def test_tokens_reach_aa_on_their_tints(palette: Palette):
    for name in ("pending", "accepted", "rejected", "corrected", "bonus"):
        paper = tinted(palette.surface, getattr(palette, name), STRONGEST_TINT)
        assert contrast(rgb(palette.ink), paper) >= AA, name
    for name, share in (("pending", 0.09), ("rejected", 0.10)):
        colour = getattr(palette, name)
        assert contrast(rgb(colour), tinted(palette.surface, colour, share)) >= AA, name


def test_css_has_every_colour_in_both_themes():
    css = css_variables()
    for palette in THEMES.values():
        assert f"--sd-corrected:{palette.corrected}" in css
    assert css.count("--sd-ink:") == 2
