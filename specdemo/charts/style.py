"""The layout, axes and trace styles that all Plotly charts share."""

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from specdemo.charts.palette import THEMES, Palette

FONT_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 15
LINE_WIDTH = 4
BLANK = {"x": [None], "y": [None]}  # one empty point; Plotly's legend would omit a trace without points


def as_plain(
    figure: go.Figure, dense: dict[str, Any] | None = None, narrow: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a figure as plain JSON values.

    ``dense`` changes traces, by ``uid``, if there are more points than fit; ``narrow`` changes the layout for
    narrow screens, where by default the legend moves below the chart.
    """
    written = figure.to_json(remove_uids=False)
    assert isinstance(written, str)
    plain = json.loads(written)
    if narrow is None:
        narrow = _legend_below() if plain["layout"].get("showlegend") else {}
    return plain | {"narrow": narrow, "dense": dense or {}}


def filling(colour: str, pattern: str = "") -> dict[str, Any]:
    """Return the marker settings of a bar: plain, or hatched if there is a ``pattern``."""
    mode = "replace" if pattern else "overlay"
    return {"color": colour, "pattern": {"shape": pattern, "fillmode": mode, "size": 6, "solidity": 0.4}}


def label_outside() -> dict[str, Any]:
    """Return trace settings that put each bar's number past the end of the bar."""
    return {"textposition": "outside", "textangle": 0, "textfont": {"size": FONT_SIZE}, "cliponaxis": False}


def curve(uid: str, name: str, hover: str, line: dict[str, Any]) -> go.Scatter:
    """Return a line without points. The browser finds it by its ``uid`` and adds the points."""
    line = {"width": LINE_WIDTH} | line
    hover = f"{hover}<extra></extra>"
    return go.Scatter(BLANK, uid=uid, name=name, mode="lines", line=line, hovertemplate=hover)


def room_for(x: list[float], y: list[float] | list[str]) -> go.Scatter:
    """Return an invisible trace. The ranges of the axes always include its points."""
    return go.Scatter(uid="room", mode="none", x=x, y=y, hoverinfo="skip", showlegend=False)


def frame(title: str, colours: Palette) -> dict[str, Any]:
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
    # On a narrow chart the legend has several rows. Above the chart, they would cover the title.
    return {
        "legend": {"xref": "container", "x": 0.02, "yref": "container", "y": 0.01, "yanchor": "bottom"},
        "margin": {"t": 44, "b": 96},
    }


def axis_of(title: str, colours: Palette) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": FONT_SIZE}},
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "automargin": True,
    }


Themed = dict[str, dict[str, Any]]  # a chart as plain JSON values, by theme


def themed(draw: Callable[[Palette], go.Figure]) -> Themed:
    return {theme: as_plain(draw(colours)) for theme, colours in THEMES.items()}


def alone_style(colours: Palette) -> dict[str, Any]:
    """Return the style of the line at 1×, the speed of the target alone."""
    return {"color": colours.ink, "width": 3, "dash": "dash"}


def outline_style(colours: Palette) -> dict[str, Any]:
    """Return the style of an outline that separates overlapping marks."""
    return {"color": colours.surface, "width": 2}
