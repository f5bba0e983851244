"""The charts of the stage without data. The page embeds them; the browser fills traces by their ``uid``."""

from typing import Any

import plotly.graph_objects as go

from specdemo.charts.palette import THEMES, Palette
from specdemo.charts.style import (
    BLANK,
    FONT_SIZE,
    alone_style,
    as_plain,
    axis_of,
    curve,
    filling,
    frame,
    label_outside,
    room_for,
)
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE

BAR_GAP = 0.18  # share of each bar's slot that stays empty
LEAD_SIZE = 13  # diameter in pixels of the mark at the end of a line
BESIDE_HELP = 0.95  # right end of the race's legend, as a share of the width; the help button is to its right
# On narrow screens, the legend of the race is a column to the right of the title, with a row for each lane.
RACE_NARROW = {"legend": {"orientation": "v"}, "margin": {"t": 78}}
ROUND_HOVER = {"unifiedhovertitle": {"text": "round %{x}"}}
LANE_NAMES = {SPECULATIVE: "speculative", BASELINE: "target alone", DRAFT: "draft model"}
SELECTED = "selected"  # the shape that marks the selected round; the browser moves it
NO_BASELINE = "no-baseline"  # the annotation that the browser shows if a run has no baseline


def skeletons() -> dict[str, dict[str, Any]]:
    """Return the charts without data, by theme and then by name, as plain JSON values.

    ``narrow`` contains layout changes for narrow charts, ``dense`` changes to traces, by ``uid``, for charts
    with more bars than fit. The browser sets the axes of ``race``; the other axes always include the trace
    ``room``.
    """
    return {
        theme: {
            "rates": as_plain(_rates(colours)),
            "speedup": as_plain(_speedup(colours)),
            "race": as_plain(_race(colours), narrow=RACE_NARROW),
            "time": as_plain(_time(colours)),
            "position": as_plain(_position(colours), {"position": {"textposition": "none"}}),
            "ranks": as_plain(_ranks(colours)),
            "entropy": as_plain(_entropy(colours)),
        }
        for theme, colours in THEMES.items()
    }


def _rates(colours: Palette) -> go.Figure:
    """Draw α in the upper half and τ in the lower half, over the same axis of rounds."""
    figure = go.Figure(
        [
            curve("alpha", "α", "α %{y:.0%}", {"color": colours.accepted}),
            curve("tau", "τ", "τ %{y:.2f} tokens", {"color": colours.bonus}).update(yaxis="y2"),
            room_for([0.5, 12.5], [0, 4]).update(yaxis="y2"),
        ]
    )
    rounds = {"anchor": "y2", "tickformat": "d", "autorangeoptions": {"clipmin": 0.5}}
    alpha = {"domain": [0.57, 1], "range": [-0.04, 1.04], "tickformat": ".0%", "dtick": 0.5}
    tau = {"domain": [0, 0.36], "nticks": 4, "rangemode": "tozero"}
    figure.update_layout(
        frame("Acceptance so far: α and τ", colours) | {"showlegend": False},
        xaxis=axis_of("round", colours) | rounds | ROUND_HOVER,
        yaxis=axis_of("", colours) | alpha,
        yaxis2=axis_of("tokens", colours) | tau,
        margin={"t": 66},
        hoversubplots="axis",
    )
    heading = {"xref": "paper", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(heading, text="α: acceptance rate", yref="y domain")
    figure.add_annotation(heading, text="τ: tokens per target pass", yref="y2 domain")
    return _selectable(figure, colours)


def _speedup(colours: Palette) -> go.Figure:
    lead = {"color": colours.accepted, "size": LEAD_SIZE}
    figure = go.Figure(
        [
            curve("speedup", "measured", "%{y:.2f}× measured", {"color": colours.accepted}),
            curve("theory", "theory", "%{y:.2f}× in theory", {"color": colours.muted, "dash": "dot"}),
            _lead("speedup-lead", lead).update(legendgroup="speedup"),
            room_for([0.5, 12.5], [1, 1]),
        ]
    )
    figure.update_layout(frame("Speedup so far", colours))
    rounds = {"tickformat": "d", "autorangeoptions": {"clipmin": 0.5}}
    figure.update_xaxes(axis_of("round", colours) | rounds | ROUND_HOVER)
    figure.update_yaxes(axis_of("", colours), ticksuffix="×", rangemode="tozero")
    figure.add_hline(y=1, line=alone_style(colours))
    below = {"xref": "paper", "x": 0.5, "yref": "paper", "y": 0.03, "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(below, name=NO_BASELINE, text="the target alone did not run", visible=False)
    return _selectable(figure, colours)


def _race(colours: Palette) -> go.Figure:
    """Draw each lane's tokens over that lane's decode seconds, with a mark at the end of each line."""
    styles = {
        SPECULATIVE: (colours.accepted, "solid", "circle"),
        BASELINE: (colours.ink, "dash", "square"),
        DRAFT: (colours.pending, "dot", "diamond"),
    }
    figure = go.Figure()
    for lane, (colour, dash, symbol) in styles.items():
        name = LANE_NAMES[lane]
        line = curve(lane, name, f"{name}: %{{y}} tokens in %{{x:.2f}} s", {"color": colour, "dash": dash})
        figure.add_trace(line.update(legendgroup=lane))
        marker = {"color": colour, "symbol": symbol, "size": LEAD_SIZE}
        figure.add_trace(_lead(f"{lane}-lead", marker).update(legendgroup=lane))
    # The chart is low, so its title and legend share a row. The legend is transparent, because the topmost
    # axis label reaches into this row. The margins are fixed, because the browser draws over the chart and
    # must know the position of the axes.
    figure.update_layout(
        frame("The race", colours) | {"hovermode": "closest"},
        title={"y": 1, "pad": {"t": 10}, "font": {"size": FONT_SIZE + 1}},
        margin={"l": 56, "r": 14, "t": 32, "b": 44, "autoexpand": False},
        legend={"x": BESIDE_HELP, "xanchor": "right", "y": 1, "bgcolor": "rgba(0, 0, 0, 0)"},
    )
    low = {"automargin": False, "title_standoff": 3}
    figure.update_xaxes(axis_of("decode seconds", colours), **low)
    figure.update_yaxes(axis_of("tokens", colours), **low)
    return figure


def _time(colours: Palette) -> go.Figure:
    """Draw the decode seconds of both lanes as bars, stacked by activity, with the total next to each bar."""
    figure = go.Figure(
        [
            _spans("drafting", "draft", filling(colours.pending, "/")),
            _spans("verifying", "verify", filling(colours.bonus)),
            _spans("rest", "rest", filling(colours.discarded, "x")).update(label_outside()),
            room_for([0], [LANE_NAMES[SPECULATIVE]]),
        ]
    )
    figure.update_layout(frame("Where the time goes", colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="stack", bargap=0.35, margin={"r": 72})
    figure.update_xaxes(axis_of("decode seconds", colours), rangemode="tozero")
    figure.update_yaxes(axis_of("", colours), range=[1.5, -0.5], showgrid=False)
    return figure


def _position(colours: Palette) -> go.Figure:
    bars = _bars("position", "%{y:.0%}, %{text} compared", filling(colours.accepted)).update(label_outside())
    figure = go.Figure([bars, room_for([0.5, 4.5], [0, 1])])
    figure.update_layout(frame("Acceptance by draft position", colours) | {"showlegend": False})
    figure.update_layout(bargap=BAR_GAP, hovermode="closest", margin={"t": 50})
    figure.update_xaxes(axis_of("position in the draft", colours), dtick=1, showgrid=False)
    figure.update_yaxes(axis_of("accepted", colours), tickformat=".0%", range=[0, 1.15], dtick=0.5)
    return figure


def _ranks(colours: Palette) -> go.Figure:
    """Draw how often the target's choice had each rank in the draft's list, where a token was rejected."""
    bars = _bars("ranks", "%{y} rejected", filling(colours.corrected)).update(label_outside())
    figure = go.Figure([bars, room_for([0.5, 6.5], [0, 4])])
    figure.update_layout(frame("Rank of the target's choice", colours) | {"showlegend": False})
    figure.update_layout(bargap=BAR_GAP, hovermode="closest", margin={"t": 50})
    ticks = {"tickvals": [1, 2, 3, 4, 5, 6], "ticktext": ["1st", "2nd", "3rd", "4th", "5th", "beyond"]}
    figure.update_xaxes(axis_of("rank in the draft's list", colours) | ticks, showgrid=False)
    figure.update_yaxes(axis_of("rejected tokens", colours), tickformat="d", rangemode="tozero")
    return figure


def _entropy(colours: Palette) -> go.Figure:
    bars = _bars("entropy", "%{y:.0%}, %{text} compared", filling(colours.accepted)).update(label_outside())
    figure = go.Figure([bars, room_for([0.5, 5.5], [0, 1])])
    figure.update_layout(frame("Acceptance by target entropy", colours) | {"showlegend": False})
    figure.update_layout(bargap=BAR_GAP, hovermode="closest", margin={"t": 50})
    # The browser's BITS_PER_BAR is the width of these intervals.
    ticks = {"tickvals": [1, 2, 3, 4, 5], "ticktext": ["0–0.5", "0.5–1", "1–1.5", "1.5–2", "over 2"]}
    figure.update_xaxes(axis_of("target entropy in bits, at least", colours) | ticks, showgrid=False)
    figure.update_yaxes(axis_of("accepted", colours), tickformat=".0%", range=[0, 1.15], dtick=0.5)
    return figure


def _bars(uid: str, hover: str, marker: dict[str, Any]) -> go.Bar:
    return go.Bar(BLANK, uid=uid, name=uid, marker=marker, hovertemplate=f"{hover}<extra></extra>")


def _spans(uid: str, name: str, marker: dict[str, Any]) -> go.Bar:
    hover = f"%{{y}}: %{{x:.2f}} s {name}<extra></extra>"
    lanes = [LANE_NAMES[SPECULATIVE], LANE_NAMES[BASELINE]]
    return go.Bar(uid=uid, name=name, orientation="h", x=[0, 0], y=lanes, marker=marker, hovertemplate=hover)


def _lead(uid: str, marker: dict[str, Any]) -> go.Scatter:
    return go.Scatter(
        BLANK,
        uid=uid,
        mode="markers",
        marker=marker,
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )


def _selectable(figure: go.Figure, colours: Palette) -> go.Figure:
    """Add the band that marks the selected round. It is hidden until the browser places it."""
    return figure.add_shape(
        name=SELECTED,
        type="rect",
        visible=False,
        layer="above",
        xref="x",
        x0=0.5,
        x1=1.5,
        yref="paper",
        y0=0,
        y1=1,
        fillcolor=f"{colours.accent}33",
        line={"color": colours.accent, "width": 2},
    )
