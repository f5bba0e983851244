"""The lab's charts: theory, sweeps, contrasts, batches, best draft lengths."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from specdemo.charts.palette import Palette
from specdemo.charts.style import (
    BLANK,
    FONT_SIZE,
    Themed,
    alone_style,
    axis_of,
    curve,
    filling,
    frame,
    label_outside,
    outline_style,
    themed,
)
from specdemo.lab.points import (
    CONTRASTS,
    HELPS,
    HURTS,
    THROUGHPUT,
    TITLES,
    ContrastPoint,
    SweepPoint,
    ThroughputPoint,
)
from specdemo.records.limits import MAX_K


def theory_chart() -> Themed:
    """Draw the axes of the theoretical speedup by α and k.

    The browser fills the surface, the break-even line and the best k; see ``static/lab/theory_chart.js``.
    """

    def draw(colours: Palette) -> go.Figure:
        even = curve(
            "break-even", "1×: break-even", "α %{x:.0%}, k %{y}", {"color": colours.ink, "dash": "dash"}
        )
        best = curve("best", "best k", "α %{x:.0%}, k %{y}", {"color": colours.corrected, "shape": "hv"})
        ring = {"symbol": "circle-open", "size": 25, "color": colours.ink, "line": {"width": 4}}
        star = {"symbol": "star", "size": 18, "color": colours.accent, "line": outline_style(colours)}
        spots = [_spot("chosen", "chosen", ring), _spot("run", "shown run", star)]
        figure = go.Figure([_contours(colours), even, best, *spots])
        figure.update_layout(frame("Speedup in theory", colours) | {"hovermode": "closest"})
        figure.update_xaxes(axis_of("acceptance rate α", colours), tickformat=".0%", range=[-0.01, 1.01])
        length = axis_of("draft length k", colours)
        return figure.update_yaxes(length, dtick=1, tickformat="d", range=[0.6, MAX_K + 0.4])

    return themed(draw)


def _spot(uid: str, name: str, marker: dict[str, Any]) -> go.Scatter:
    return go.Scatter(
        BLANK,
        uid=uid,
        name=name,
        mode="markers",
        marker=marker,
        hovertemplate=f"{name}: α %{{x:.0%}}, k %{{y:.3~g}}<extra></extra>",
        cliponaxis=False,
    )


def _contours(colours: Palette) -> go.Contour:
    """Return lines of equal speedup, without data. The browser moves the middle color to a speedup of 1."""
    return go.Contour(
        uid="theory-surface",
        zmin=0.0,
        showscale=False,
        colorscale=[[0.0, f"{colours.rejected}66"], [0.5, colours.surface], [1.0, f"{colours.accepted}66"]],
        contours={"showlabels": True, "labelformat": ".3~g", "labelfont": {"size": FONT_SIZE}},
        line={"width": 2, "color": colours.muted},
        ncontours=12,
        hovertemplate="α %{x:.0%}, k %{y}: %{z:.2f}×<extra></extra>",
    )


Spot = tuple[float | None, str]
"""``x`` and ``label`` of a ``SweepPoint``, even of one that is not measured yet."""


def sweep_chart(points: Sequence[SweepPoint], title: str, axis: str, spots: Sequence[Spot]) -> Themed:
    """Draw the measured and theoretical speedups with quartiles, and α below.

    A line joins the points that have a number; points that have only a name follow without a line. ``points``
    are those measured so far, in the order of the sweep's ``spots``.
    """
    places = _places(spots)

    def draw(colours: Palette) -> go.Figure:
        placed = list(zip(places, points, strict=False))
        numbered = [pair for pair in placed if pair[1].x is not None]
        named = [pair for pair in placed if pair[1].x is None]
        traces = _sweep_traces("", "circle", numbered, colours) if numbered else []
        if named:
            traces += [t.update(mode="markers") for t in _sweep_traces("-named", "diamond", named, colours)]
        for place, trace in enumerate(traces):
            trace.showlegend = place < 2  # list only the first group's speedup and theory
        figure = go.Figure(traces)
        _panels(figure, title, axis, colours, "acceptance rate α", {"tickformat": ".0%", "dtick": 0.5})
        figure.update_layout(yaxis2_range=[-0.04, 1.04])
        if places:  # fix the range, so that the axis stays the same while points arrive
            edge = (places[-1] - places[0]) / 25 or 1
            figure.update_xaxes(range=[places[0] - edge, places[-1] + edge])
        ticks = [label if x is None else f"{x:g}" for x, label in spots]
        return figure.update_xaxes(tickvals=places, ticktext=ticks)

    return themed(draw)


def _sweep_traces(
    suffix: str, symbol: str, placed: Sequence[tuple[float, SweepPoint]], colours: Palette
) -> list[go.Scatter]:
    points = [point for _, point in placed]
    theory, measured = {"color": colours.muted, "dash": "dot"}, {"color": colours.accepted}
    traces = [
        curve(f"speedup{suffix}", "measured", "%{text}: %{y:.2f}× measured", measured).update(
            y=[point.speedup for point in points], error_y=_quartiles(points, colours)
        ),
        curve(f"theory{suffix}", "theory", "%{text}: %{y:.2f}× in theory", theory).update(
            y=[point.s_theory for point in points]
        ),
        curve(f"alpha{suffix}", "α", "%{text}: α %{y:.0%}", measured).update(
            y=[point.alpha for point in points], yaxis="y2"
        ),
    ]
    common = {"x": [x for x, _ in placed], "text": [point.label for point in points], "mode": "lines+markers"}
    shapes = ((symbol, measured), (f"{symbol}-open", theory), (symbol, measured))
    for trace, (shape, line) in zip(traces, shapes, strict=True):
        trace.update(common, marker={"symbol": shape, "size": 12, "color": line["color"]})
    return traces


def _places(spots: Sequence[Spot]) -> list[float]:
    """Return each point's position on the axis: its number, or one step after the last for a name."""
    places: list[float] = []
    last = max((x for x, _ in spots if x is not None), default=0.0)
    for x, _ in spots:
        if x is None:
            last += 1
        places.append(last if x is None else x)
    return places


def _quartiles(points: Sequence[SweepPoint], colours: Palette) -> dict[str, Any]:
    def reach(end: float | None, middle: float | None) -> float:
        return 0.0 if end is None or middle is None else abs(end - middle)

    return {
        "type": "data",
        "symmetric": False,
        "array": [reach(point.speedup_q3, point.speedup) for point in points],
        "arrayminus": [reach(point.speedup_q1, point.speedup) for point in points],
        "color": colours.muted,
        "thickness": 2,
        "width": 5,
    }


def contrast_chart(points: Sequence[ContrastPoint]) -> Themed:
    """Draw two bars for each condition: the speedup of the side that helps, and of the other side."""

    def draw(colours: Palette) -> go.Figure:
        fills = {HELPS: filling(colours.accepted), HURTS: filling(colours.rejected, "/")}
        figure = go.Figure()
        for side, marker in fills.items():
            chosen = [point for point in points if point.side == side]
            speedups = [point.point.speedup for point in chosen]
            figure.add_bar(
                uid=side,
                name=side,
                orientation="h",
                x=speedups,
                y=[point.title for point in chosen],
                customdata=[point.point.label for point in chosen],
                text=["" if speedup is None else f"{speedup:.2f}×" for speedup in speedups],
                marker=marker,
                hovertemplate="%{customdata}: %{x:.2f}×<extra></extra>",
                **label_outside(),
            )
        figure.update_layout(frame(TITLES[CONTRASTS], colours) | {"hovermode": "closest"})
        figure.update_layout(barmode="group", bargap=0.3, margin={"r": 120})
        figure.update_xaxes(
            axis_of("speedup over the target alone", colours), ticksuffix="×", rangemode="tozero"
        )
        figure.update_yaxes(axis_of("", colours), autorange="reversed", showgrid=False)
        return figure.add_vline(x=1, line=alone_style(colours), name="1×: target alone", showlegend=True)

    return themed(draw)


def throughput_chart(points: Sequence[ThroughputPoint]) -> Themed:
    """Draw the theoretical speedup against the batch size, and below it the verification cost."""

    def draw(colours: Palette) -> go.Figure:
        rows = [point.rows for point in points]
        marker = {"symbol": "circle", "size": 12}
        speedup = curve("batch-speedup", "theory", "%{y:.2f}× in theory", {"color": colours.accepted})
        price = curve(
            "batch-v", "v", "a verification costs %{y:.2f} passes", {"color": colours.bonus, "dash": "dot"}
        )
        figure = go.Figure(
            [
                speedup.update(
                    x=rows, y=[point.s_theory for point in points], mode="lines+markers", marker=marker
                ),
                price.update(
                    x=rows,
                    y=[point.v for point in points],
                    mode="lines+markers",
                    marker=marker | {"symbol": "square"},
                    yaxis="y2",
                    showlegend=False,
                ),
            ]
        )
        heading = f"v({points[0].k + 1}): cost of verification, in single-token passes" if points else "v"
        _panels(figure, TITLES[THROUGHPUT], "texts in the batch", colours, heading, {"rangemode": "tozero"})
        return figure.update_xaxes(type="log", tickvals=rows, ticktext=[str(value) for value in rows])

    return themed(draw)


def bounds_chart(measured: float, best: float, perfect: Sequence[float], free: Sequence[float]) -> Themed:
    """Draw a run's estimated speedup, and with better drafts: of the best lengths, perfect, perfect and free.

    ``perfect`` and ``free`` have the speedup of each draft length, from 1.
    """
    lengths = list(range(1, len(perfect) + 1))

    def draw(colours: Palette) -> go.Figure:
        figure = go.Figure()
        for uid, name, speedups, line in (
            ("free", "perfect, free", free, {"color": colours.muted, "dash": "dot"}),
            ("perfect", "perfect", perfect, {"color": colours.bonus, "dash": "dash"}),
            ("best", "best lengths", [best] * len(lengths), {"color": colours.corrected, "dash": "dashdot"}),
            ("measured", "as drafted", [measured] * len(lengths), {"color": colours.accepted}),
        ):
            found = curve(uid, name, f"%{{y:.2f}}× {name}", line)
            figure.add_trace(found.update(x=lengths, y=speedups))
        figure.update_layout(frame("Estimated speedup with better drafts", colours))
        figure.add_hline(y=1, line=alone_style(colours))
        figure.update_xaxes(axis_of("draft length k of perfect drafts", colours), dtick=1, tickformat="d")
        return figure.update_yaxes(axis_of("", colours), ticksuffix="×", rangemode="tozero")

    return themed(draw)


def what_if_chart() -> Themed:
    """Draw the axes of a run's speedup by draft length; the browser fills the lines and the chosen point."""

    def draw(colours: Palette) -> go.Figure:
        error = {"color": colours.ink, "thickness": 3, "width": 8, "symmetric": False}
        ring = {"symbol": "circle-open", "size": 20, "color": colours.ink, "line": {"width": 4}}
        figure = go.Figure(
            [
                curve("free", "free", "%{y:.2f}× free", {"color": colours.muted, "dash": "dot"}),
                curve("hidden", "hidden", "%{y:.2f}× hidden", {"color": colours.bonus, "dash": "dash"}),
                curve("measured", "in turns", "%{y:.2f}× in turns", {"color": colours.accepted}),
                _spot("chosen", "chosen", ring).update(hoverinfo="skip", hovertemplate=None, error_y=error),
            ]
        )
        figure.update_layout(frame("Estimated speedup by draft length", colours))
        figure.add_hline(y=1, line=alone_style(colours))
        ticks = {"dtick": 1, "tickformat": "d", "range": [0.6, MAX_K + 0.4]}
        figure.update_xaxes(axis_of("draft length k", colours) | ticks)
        return figure.update_yaxes(axis_of("", colours), ticksuffix="×", rangemode="tozero")

    return themed(draw)


def _panels(
    figure: go.Figure, title: str, axis: str, colours: Palette, below: str, scale: dict[str, Any]
) -> None:
    """Lay out an upper panel for speedups with a line at 1×, and a lower panel titled ``below``."""
    figure.update_layout(
        frame(title, colours) | {"hovermode": "closest"},
        xaxis=axis_of(axis, colours) | {"anchor": "y2"},
        yaxis=axis_of("", colours) | {"domain": [0.47, 1], "ticksuffix": "×", "rangemode": "tozero"},
        yaxis2=axis_of("", colours) | {"domain": [0, 0.3]} | scale,
    )
    figure.add_hline(y=1, line=alone_style(colours), name="1×: target alone", showlegend=True)
    figure.add_annotation(
        text=below,
        xref="paper",
        x=0,
        xanchor="left",
        yref="y2 domain",
        y=1,
        yanchor="bottom",
        showarrow=False,
    )
