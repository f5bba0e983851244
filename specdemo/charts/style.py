"""The layout, axes and trace styles that all Plotly charts share."""

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from specdemo.charts.palette import THEMES, Palette

FONT_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 15
LINE_WIDTH = 4
CLEAR = "rgba(0, 0, 0, 0)"
BESIDE_HELP = 0.95
"""Right end of a low chart's legend, as a share of its width; the help button is to the right of it."""
BLANK = {"x": [None], "y": [None]}
"""One empty point: a trace without any would be missing from the legend."""


def as_plain(
    figure: go.Figure, dense: dict[str, Any] | None = None, narrow: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a figure as plain JSON values.

    Args:
        figure: The figure on a wide screen.
        dense: Changes to the traces, by ``uid``, if points are dense.
        narrow: Changes to the layout on narrow screens; by default the legend, if any, goes below.
    """
    written = figure.to_json(remove_uids=False)
    assert isinstance(written, str)
    plain = json.loads(written)
    if narrow is None:
        narrow = _legend_below() if plain["layout"].get("showlegend") else {}
    return plain | {"narrow": narrow, "dense": dense or {}}


def filling(colour: str, pattern: str = "") -> dict[str, Any]:
    """Return the marker of a bar; a pattern replaces the plain color."""
    mode = "replace" if pattern else "overlay"
    return {"color": colour, "pattern": {"shape": pattern, "fillmode": mode, "size": 6, "solidity": 0.4}}


def label_outside() -> dict[str, Any]:
    """Return trace settings that put numbers beyond the ends of bars."""
    return {"textposition": "outside", "textangle": 0, "textfont": {"size": FONT_SIZE}, "cliponaxis": False}


def curve(uid: str, name: str, hover: str, line: dict[str, Any]) -> go.Scatter:
    """Return an empty line, which the browser fills by its ``uid``."""
    line = {"width": LINE_WIDTH} | line
    hover = f"{hover}<extra></extra>"
    return go.Scatter(BLANK, uid=uid, name=name, mode="lines", line=line, hovertemplate=hover)


def room_for(x: list[float], y: list[float] | list[str]) -> go.Scatter:
    """Return an invisible trace whose points the axes always include."""
    return go.Scatter(uid="room", mode="none", x=x, y=y, hoverinfo="skip", showlegend=False)


def frame(title: str, colours: Palette) -> dict[str, Any]:
    """Return the layout of a chart: title, fonts, colors, margins."""
    return {
        "template": go.layout.Template(),
        "title": {
            "text": title,
            "x": 0.02,
            "y": 0.97,
            "yanchor": "top",
            "font": {"size": FONT_SIZE + 2, "weight": 600},
        },
        "font": {"family": FONT_FAMILY, "size": FONT_SIZE, "color": colours.ink},
        "paper_bgcolor": colours.surface,
        "plot_bgcolor": colours.surface,
        "margin": {"l": 52, "r": 14, "t": 72, "b": 48},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": colours.surface,
            "bordercolor": colours.muted,
            "font": {"family": FONT_FAMILY, "size": FONT_SIZE, "color": colours.ink},
        },
        "showlegend": True,
    }


def _legend_below() -> dict[str, Any]:
    # On a narrow chart the legend takes several rows, which would cover the title.
    return {
        "legend": {"xref": "container", "x": 0.02, "yref": "container", "y": 0.01, "yanchor": "bottom"},
        "margin": {"t": 44, "b": 96},
    }


def low_frame(title: str, colours: Palette) -> dict[str, Any]:
    """Return the layout of a low and wide chart: title and legend share a row.

    The margins are fixed, so that the place of the axes is known to code that draws over the chart.
    """
    whole = frame(title, colours)
    return whole | {
        "title": whole["title"] | {"y": 1, "pad": {"t": 10}, "font": {"size": FONT_SIZE + 1, "weight": 600}},
        "margin": {"l": 56, "r": 14, "t": 32, "b": 44, "autoexpand": False},
        # Transparent, because the topmost axis label reaches into its row.
        "legend": whole["legend"] | {"x": BESIDE_HELP, "xanchor": "right", "y": 1, "bgcolor": CLEAR},
    }


def low_narrow() -> dict[str, Any]:
    """Return the layout changes of a low chart on a narrow screen: the legend gets a row of its own."""
    return {"legend": {"xref": "container", "x": 0.02, "xanchor": "left"}, "margin": {"t": 54}}


def low_axis_of(title: str, colours: Palette) -> dict[str, Any]:
    """Return an axis of a low chart; the browser sets its range and ticks."""
    axis = axis_of(title, colours)
    return axis | {"automargin": False, "title": axis["title"] | {"standoff": 3}}


def axis_of(title: str, colours: Palette) -> dict[str, Any]:
    """Return an axis with its title and grid."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": FONT_SIZE}},
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "automargin": True,
    }


Themed = dict[str, dict[str, Any]]
"""Figure by theme, in plain JSON values, as in ``stage.skeletons``."""


def themed(draw: Callable[[Palette], go.Figure]) -> Themed:
    """Return a chart in both themes."""
    return {theme: as_plain(draw(colours)) for theme, colours in THEMES.items()}


def alone_style(colours: Palette) -> dict[str, Any]:
    """Return the style of the line at 1×, the speed of the target alone."""
    return {"color": colours.ink, "width": 3, "dash": "dash"}


def outline_style(colours: Palette) -> dict[str, Any]:
    """Return the style of an outline that separates overlapping marks."""
    return {"color": colours.surface, "width": 2}
