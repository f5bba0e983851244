"""Every Plotly chart: layout, trace styles and colours, said here only.

``skeletons()`` are the stage's charts as they look before a run, which is what the page embeds; the browser
fills each trace, found by its ``uid``, from the rounds played so far. The lab's charts come filled. Knows the
names of lanes and statuses but no round, computes no figure, and knows no UI.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import plotly.graph_objects as go

from specdemo.charts.palette import THEMES, Palette
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
from specdemo.records.metrics import OracleLength, TheorySurface
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Status

FONT_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 15
LINE_WIDTH = 4
MARK_LIFT = 0.4
"""How far above its bar, in tokens, the mark of the target's own token sits."""
LANE_NAMES = {SPECULATIVE: "speculative", BASELINE: "target alone", DRAFT: "draft alone"}
BLANK = {"x": [None], "y": [None]}
"""A trace without even an empty point would be missing from the legend until it has one."""
SELECTED = "selected"
"""Name of the shape that marks a round; the browser moves it."""
NO_BASELINE = "no-baseline"
"""Name of the annotation that the browser shows where a run has nothing to compare with."""


def skeletons() -> dict[str, dict[str, Any]]:
    """Theme -> chart -> empty figure for the browser to fill, in plain JSON values.

    Of each figure ``data`` and ``layout`` are Plotly's. ``narrow`` is what a narrow chart (a phone, three
    columns) changes in the layout; ``dense`` what too many bars for its width change in the traces, by
    ``uid``. Each has a trace ``room``, never seen: the axes reach over its points whatever else there is.
    """
    return {
        theme: {
            "acceptance": _plain(_acceptance(colours), _acceptance_dense(colours)),
            "rates": _plain(_rates(colours)),
            "speedup": _plain(_speedup(colours)),
            "race": _plain(_race(colours)),
            "time": _plain(_time(colours)),
            "position": _plain(_position(colours), {"position": {"textposition": "none"}}),
        }
        for theme, colours in THEMES.items()
    }


def _plain(figure: go.Figure, dense: dict[str, Any] | None = None) -> dict[str, Any]:
    narrow = _legend_below() if figure.layout.showlegend else {}
    return json.loads(figure.to_json(remove_uids=False)) | {"narrow": narrow, "dense": dense or {}}


def _acceptance(colours: Palette) -> go.Figure:
    """Accepted and discarded tokens of each round, stacked; the target's own token marked on top."""
    figure = go.Figure(
        [
            _bars("accepted", "%{y} accepted", _fill(colours.accepted)),
            _bars("discarded", "%{y} discarded", _fill(colours.discarded, "/")),
            _marks(Status.CORRECTED, colours.corrected, "diamond"),
            _marks(Status.BONUS, colours.bonus, "star"),
            _room([0.5, 12.5], [0, 4]),
        ]
    )
    figure.update_layout(_layout("Drafted tokens per round", colours), barmode="stack", bargap=0.18)
    figure.update_xaxes(_rounds(colours), showgrid=False)
    figure.update_yaxes(_axis("tokens", colours), tickformat="d", rangemode="tozero")
    return _selectable(figure, colours)


def _acceptance_dense(colours: Palette) -> dict[str, dict[str, Any]]:
    """Rounds too thin to be told apart: two stepped areas, which draw fast, and no marks."""
    steps = {"type": "scatter", "mode": "none", "stackgroup": "rounds", "line": {"shape": "hvh"}}
    hatched = {"fgcolor": colours.discarded, "bgcolor": colours.surface, "shape": "/", "size": 6}
    return {
        "accepted": steps | {"fillcolor": colours.accepted},
        "discarded": steps | {"fillpattern": hatched},
        str(Status.CORRECTED): {"visible": False},
        str(Status.BONUS): {"visible": False},
    }


def _rates(colours: Palette) -> go.Figure:
    """α above and τ below, over the same rounds."""
    figure = go.Figure(
        [
            _line("alpha", "α", "α %{y:.0%}", {"color": colours.accepted}),
            _line("tau", "τ", "τ %{y:.2f} tokens", {"color": colours.bonus}).update(yaxis="y2"),
            _room([0.5, 12.5], [0, 4]).update(yaxis="y2"),
        ]
    )
    alpha = {"domain": [0.57, 1], "range": [-0.04, 1.04], "tickformat": ".0%", "dtick": 0.5}
    tau = {"domain": [0, 0.36], "nticks": 4, "rangemode": "tozero"}
    figure.update_layout(
        _layout("Acceptance so far: α and τ", colours) | {"showlegend": False},
        xaxis=_rounds(colours) | {"anchor": "y2"},
        yaxis=_axis("", colours) | alpha,
        yaxis2=_axis("tokens", colours) | tau,
        margin={"t": 66},
        hoversubplots="axis",
    )
    heading = {"xref": "paper", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(heading, text="α: compared drafts accepted", yref="y domain")
    figure.add_annotation(heading, text="τ: tokens per target pass", yref="y2 domain")
    return _selectable(figure, colours)


def _speedup(colours: Palette) -> go.Figure:
    """Speedup over the target alone after each speculative round, with 1× and the theory."""
    figure = go.Figure(
        [
            _line("speedup", "measured", "%{y:.2f}× measured", {"color": colours.accepted}),
            _line("theory", "theory", "%{y:.2f}× in theory", {"color": colours.muted, "dash": "dot"}),
            _room([0.5, 12.5], [0, 1.5]),
        ]
    )
    figure.update_layout(_layout("Speedup over the target alone, so far", colours))
    figure.update_xaxes(_rounds(colours))
    figure.update_yaxes(_axis("", colours), ticksuffix="×", rangemode="tozero")
    figure.add_hline(y=1, line=_alone(colours), name="1×: as fast", showlegend=True)
    below = {"xref": "paper", "x": 0.5, "yref": "paper", "y": 0.03, "yanchor": "bottom", "showarrow": False}
    figure.add_annotation(below, name=NO_BASELINE, text="no baseline in this run", visible=False)
    return _selectable(figure, colours)


def _race(colours: Palette) -> go.Figure:
    """Tokens of each lane over its own decode seconds; a mark of its own leads each line."""
    styles = {
        SPECULATIVE: (colours.accepted, "solid", "circle"),
        BASELINE: (colours.ink, "dash", "square"),
        DRAFT: (colours.pending, "dot", "diamond"),
    }
    figure = go.Figure()
    for lane, (colour, dash, symbol) in styles.items():
        name = LANE_NAMES[lane]
        line = _line(lane, name, f"{name}: %{{y}} tokens in %{{x:.2f}} s", {"color": colour, "dash": dash})
        figure.add_trace(line.update(legendgroup=lane))
        figure.add_scatter(
            **BLANK,
            uid=f"{lane}-lead",
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 13},
            cliponaxis=False,
            legendgroup=lane,
            showlegend=False,
            hoverinfo="skip",
        )
    figure.add_trace(_room([0], [0]))
    figure.update_layout(_layout("The race: tokens over time", colours) | {"hovermode": "closest"})
    figure.update_xaxes(_seconds(colours))
    figure.update_yaxes(_axis("tokens", colours), rangemode="tozero")
    return figure


def _time(colours: Palette) -> go.Figure:
    """Decode seconds of both lanes, stacked by what they were spent on; their sum at the end."""
    figure = go.Figure(
        [
            _spans("drafting", "draft", _fill(colours.pending, "/")),
            _spans("verifying", "verify", _fill(colours.bonus)),
            _spans("rest", "rest", _fill(colours.discarded, "x")).update(_label_outside()),
            _room([0], [LANE_NAMES[SPECULATIVE]]),
        ]
    )
    figure.update_layout(_layout("Where the time goes", colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="stack", bargap=0.35, margin={"r": 72})
    figure.update_xaxes(_seconds(colours))
    figure.update_yaxes(_axis("", colours), range=[1.5, -0.5], showgrid=False)
    return figure


def _position(colours: Palette) -> go.Figure:
    """Acceptance at each place of the draft, among the tokens that were compared there."""
    bars = _bars("position", "%{y:.0%}, %{text} compared", _fill(colours.accepted)).update(_label_outside())
    figure = go.Figure([bars, _room([0.5, 4.5], [0, 1])])
    figure.update_layout(_layout("Acceptance by place in the draft", colours) | {"showlegend": False})
    figure.update_layout(bargap=0.18, hovermode="closest", margin={"t": 50})
    figure.update_xaxes(_axis("place in the draft", colours), dtick=1, showgrid=False)
    figure.update_yaxes(_axis("accepted", colours), tickformat=".0%", range=[0, 1.15], dtick=0.5)
    return figure


def _bars(uid: str, hover: str, marker: dict[str, Any]) -> go.Bar:
    return go.Bar(BLANK, uid=uid, name=uid, marker=marker, hovertemplate=f"{hover}<extra></extra>")


def _spans(uid: str, name: str, marker: dict[str, Any]) -> go.Bar:
    hover = f"%{{y}}: %{{x:.2f}} s {name}<extra></extra>"
    lanes = [LANE_NAMES[SPECULATIVE], LANE_NAMES[BASELINE]]
    return go.Bar(uid=uid, name=name, orientation="h", x=[0, 0], y=lanes, marker=marker, hovertemplate=hover)


def _fill(colour: str, pattern: str = "") -> dict[str, Any]:
    mode = "replace" if pattern else "overlay"
    return {"color": colour, "pattern": {"shape": pattern, "fillmode": mode, "size": 6, "solidity": 0.4}}


def _label_outside() -> dict[str, Any]:
    return {"textposition": "outside", "textangle": 0, "textfont": {"size": FONT_SIZE}, "cliponaxis": False}


def _marks(status: Status, colour: str, symbol: str) -> go.Scatter:
    marker = {"color": colour, "symbol": symbol, "size": 10}
    name = str(status)
    return go.Scatter(BLANK, uid=name, name=name, mode="markers", marker=marker, hoverinfo="skip")


def _line(uid: str, name: str, hover: str, line: dict[str, Any]) -> go.Scatter:
    line = {"width": LINE_WIDTH} | line
    hover = f"{hover}<extra></extra>"
    return go.Scatter(BLANK, uid=uid, name=name, mode="lines", line=line, hovertemplate=hover)


def _room(x: list[float], y: list[float] | list[str]) -> go.Scatter:
    return go.Scatter(uid="room", mode="none", x=x, y=y, hoverinfo="skip", showlegend=False)


def _selectable(figure: go.Figure, colours: Palette) -> go.Figure:
    """With the band that marks one round, hidden until the browser places it."""
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


def _layout(title: str, colours: Palette) -> dict[str, Any]:
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
    """On a narrow chart the legend takes several rows, which would cover the title."""
    return {
        "legend": {"xref": "container", "x": 0.02, "yref": "container", "y": 0.01, "yanchor": "bottom"},
        "margin": {"t": 44, "b": 96},
    }


def _rounds(colours: Palette) -> dict[str, Any]:
    first = {"tickformat": "d", "autorangeoptions": {"clipmin": 0.5}}
    return _axis("round", colours) | first | {"unifiedhovertitle": {"text": "round %{x}"}}


def _seconds(colours: Palette) -> dict[str, Any]:
    return _axis("decode seconds", colours) | {"rangemode": "tozero"}


def _axis(title: str, colours: Palette) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": FONT_SIZE}},
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "automargin": True,
    }


Themed = dict[str, dict[str, Any]]
"""Theme -> figure in plain JSON values, as in ``skeletons()``."""


def theory_figure(
    theme: str, surface: TheorySurface, chosen: tuple[float, int], run: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Speedup in theory over α and k, with the lines where it pays and where it is best; of one theme.

    Args:
        surface: From ``metrics.theory_surface``.
        chosen: α and draft length to be marked.
        run: α and mean draft length of a run, to be marked too.
    """
    figure = deepcopy(_theory_skeleton(theme))
    points = _theory_points(surface, chosen, run, THEMES[theme])
    for trace in figure["data"]:
        trace |= points[trace["uid"]]
    return figure


Spot = tuple[float | None, str]
"""Where a point of a sweep belongs, before it is measured: ``x`` and ``label`` of ``SweepPoint``."""


def sweep_chart(points: Sequence[SweepPoint], title: str, axis: str, spots: Sequence[Spot]) -> Themed:
    """Speedup of every point with its quartiles, 1× and the theory; α below.

    Points with a number are joined by a line, those with a name stand behind them by themselves.

    Args:
        spots: Of all points there will be; ``points`` are the first of them.
    """
    return _themed(lambda colours: _sweep(points, title, axis, spots, colours))


def contrast_chart(points: Sequence[ContrastPoint]) -> Themed:
    """Of each condition two bars: the speedup where it helps and where it hurts."""
    return _themed(lambda colours: _contrast(points, colours))


def throughput_chart(points: Sequence[ThroughputPoint]) -> Themed:
    """Speedup in theory over the number of texts in a batch; the price of verification below."""
    return _themed(lambda colours: _throughput(points, colours))


def distribution_chart() -> Themed:
    """Two bars a continuation, how often each way drew it; for the browser to fill.

    The traces ``speculative`` and ``baseline`` hold counts (x) at places from 0 (y), which the browser names.
    """
    return _themed(_distribution)


def oracle_chart(oracle: OracleLength) -> Themed:
    """How often each draft length would have been the best one of its round."""
    return _themed(lambda colours: _oracle(oracle, colours))


def _themed(draw: Callable[[Palette], go.Figure]) -> Themed:
    return {theme: _plain(draw(colours)) for theme, colours in THEMES.items()}


@cache
def _theory_skeleton(theme: str) -> dict[str, Any]:
    """The figure without a point in it: Plotly takes ten times as long to make one as to fill it."""
    colours = THEMES[theme]
    even = _line("break-even", "1×: as fast", "α %{x:.0%}, k %{y}", {"color": colours.ink, "dash": "dash"})
    best = _line("best", "best k", "α %{x:.0%}, k %{y}", {"color": colours.corrected, "shape": "hv"})
    ring = {"symbol": "circle-open", "size": 25, "color": colours.ink, "line": {"width": 4}}
    star = {"symbol": "star", "size": 18, "color": colours.accent, "line": _outline(colours)}
    spots = [_spot("chosen", "chosen", ring), _spot("run", "the last run", star)]
    figure = go.Figure([_contours(colours), even, best, *spots])
    figure.update_layout(_layout("Speedup in theory", colours) | {"hovermode": "closest"})
    figure.update_xaxes(
        _axis("α: share of compared drafts accepted", colours), tickformat=".0%", range=[-0.01, 1.01]
    )
    figure.update_yaxes(_axis("draft length k", colours), dtick=1, tickformat="d", range=[0.6, MAX_K + 0.4])
    return _plain(figure)


def _theory_points(
    surface: TheorySurface, chosen: tuple[float, int], run: tuple[float, float] | None, colours: Palette
) -> dict[str, dict[str, Any]]:
    """What the traces of the skeleton show, by uid."""
    reached = [
        (alpha, k) for alpha, k in zip(surface.break_even, surface.ks, strict=True) if alpha is not None
    ]
    pays = [(alpha, k) for alpha, k in zip(surface.alphas, surface.best, strict=True) if k]
    return {
        "theory-surface": _heights(surface, colours),
        "break-even": _points(reached),
        "best": _points(pays),
        "run": _points([run]) if run else {"visible": False},
        "chosen": _points([chosen]),
    }


def _points(points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {"x": [x for x, _ in points], "y": [y for _, y in points]}


def _spot(uid: str, name: str, marker: dict[str, Any]) -> go.Scatter:
    """A marked point of α and k."""
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
    """Lines of equal speedup; what is slower than the target alone is tinted like what was refused."""
    return go.Contour(
        uid="theory-surface",
        zmin=0.0,
        showscale=False,
        contours={"showlabels": True, "labelformat": ".3~g", "labelfont": {"size": FONT_SIZE}},
        line={"width": 2, "color": colours.muted},
        ncontours=12,
        hovertemplate="α %{x:.0%}, k %{y}: %{z:.2f}×<extra></extra>",
    )


def _heights(surface: TheorySurface, colours: Palette) -> dict[str, Any]:
    highest = max(max(row) for row in surface.speedups)
    even = min(1.0 / highest, 1.0)
    slower, faster = f"{colours.rejected}66", f"{colours.accepted}66"
    return {
        "x": list(surface.alphas),
        "y": list(surface.ks),
        "z": [list(row) for row in surface.speedups],
        "zmax": max(highest, 1.0),
        "colorscale": [
            [0.0, slower],
            [even, colours.surface],
            [1.0, faster if even < 1.0 else colours.surface],
        ],
    }


def _sweep(
    points: Sequence[SweepPoint], title: str, axis: str, spots: Sequence[Spot], colours: Palette
) -> go.Figure:
    places = _places(spots)
    placed = list(zip(places, points, strict=False))
    numbered = [pair for pair in placed if pair[1].x is not None]
    named = [pair for pair in placed if pair[1].x is None]
    traces = _sweep_traces("", "circle", numbered, colours) if numbered else []
    if named:
        traces += [t.update(mode="markers") for t in _sweep_traces("-named", "diamond", named, colours)]
    for place, trace in enumerate(traces):
        trace.showlegend = place < 2  # the first group's measured and theory speak for both
    figure = go.Figure(traces)
    _panels(figure, title, axis, colours, "α: compared drafts accepted", {"tickformat": ".0%", "dtick": 0.5})
    figure.update_layout(yaxis2_range=[-0.04, 1.04])
    if places:  # the axis holds still while points come
        edge = (places[-1] - places[0]) / 25 or 1
        figure.update_xaxes(range=[places[0] - edge, places[-1] + edge])
    return figure.update_xaxes(tickvals=places, ticktext=[_tick(spot) for spot in spots])


def _sweep_traces(
    suffix: str, symbol: str, placed: Sequence[tuple[float, SweepPoint]], colours: Palette
) -> list[go.Scatter]:
    """Measured speedup, theory (hollow) and α of some points, each joined by a line."""
    points = [point for _, point in placed]
    theory, measured = {"color": colours.muted, "dash": "dot"}, {"color": colours.accepted}
    traces = [
        _line(f"speedup{suffix}", "measured", "%{text}: %{y:.2f}× measured", measured).update(
            y=[point.speedup for point in points], error_y=_quartiles(points, colours)
        ),
        _line(f"theory{suffix}", "theory", "%{text}: %{y:.2f}× in theory", theory).update(
            y=[point.s_theory for point in points]
        ),
        _line(f"alpha{suffix}", "α", "%{text}: α %{y:.0%}", measured).update(
            y=[point.alpha for point in points], yaxis="y2"
        ),
    ]
    common = {"x": [x for x, _ in placed], "text": [point.label for point in points], "mode": "lines+markers"}
    for trace, shape in zip(traces, (symbol, f"{symbol}-open", symbol), strict=True):
        trace.update(common, marker={"symbol": shape, "size": 12, "color": trace.line.color})
    return traces


def _places(spots: Sequence[Spot]) -> list[float]:
    """Where each point stands on the axis: at its number, or, one apart, behind the last one."""
    places: list[float] = []
    behind = max((x for x, _ in spots if x is not None), default=0.0)
    for x, _ in spots:
        if x is None:
            behind += 1
        places.append(behind if x is None else x)
    return places


def _tick(spot: Spot) -> str:
    x, label = spot
    return label if x is None else f"{x:g}"


def _quartiles(points: Sequence[SweepPoint], colours: Palette) -> dict[str, Any]:
    """Error bars from the first to the third quartile, where there are any."""

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


def _contrast(points: Sequence[ContrastPoint], colours: Palette) -> go.Figure:
    sides = {HELPS: ("helps", _fill(colours.accepted)), HURTS: ("hurts", _fill(colours.rejected, "/"))}
    figure = go.Figure()
    for side, (name, marker) in sides.items():
        chosen = [point for point in points if point.side == side]
        figure.add_bar(
            uid=side,
            name=name,
            orientation="h",
            x=[point.point.speedup for point in chosen],
            y=[point.title for point in chosen],
            customdata=[point.point.label for point in chosen],
            text=[_bar_label(point.point) for point in chosen],
            marker=marker,
            hovertemplate="%{customdata}: %{x:.2f}×<extra></extra>",
            **_label_outside(),
        )
    figure.update_layout(_layout(TITLES[CONTRASTS], colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="group", bargap=0.3, margin={"r": 120})
    figure.update_xaxes(_axis("speedup over the target alone", colours), ticksuffix="×", rangemode="tozero")
    figure.update_yaxes(_axis("", colours), autorange="reversed", showgrid=False)
    return figure.add_vline(x=1, line=_alone(colours), name="1×: as fast", showlegend=True)


def _bar_label(point: SweepPoint) -> str:
    return "" if point.speedup is None else f"{point.speedup:.2f}×"


def _throughput(points: Sequence[ThroughputPoint], colours: Palette) -> go.Figure:
    rows = [point.rows for point in points]
    marker = {"symbol": "circle", "size": 12}
    speedup = _line("batch-speedup", "theory", "%{y:.2f}× in theory", {"color": colours.accepted})
    price = _line("batch-v", "v", "a pass costs %{y:.2f}", {"color": colours.bonus, "dash": "dot"})
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
    heading = f"v({points[0].k + 1}): a verifying pass, in plain ones" if points else "v"
    _panels(figure, TITLES[THROUGHPUT], "texts in the batch", colours, heading, {"rangemode": "tozero"})
    return figure.update_xaxes(type="log", tickvals=rows, ticktext=[str(value) for value in rows])


def _distribution(colours: Palette) -> go.Figure:
    fills = {SPECULATIVE: _fill(colours.accepted), BASELINE: _fill(colours.muted, "/")}
    bars = [
        go.Bar(
            BLANK,
            uid=lane,
            name=LANE_NAMES[lane],
            orientation="h",
            marker=marker,
            hovertemplate=f"%{{customdata}}<br>{LANE_NAMES[lane]}: %{{x:,}}<extra></extra>",
        )
        for lane, marker in fills.items()
    ]
    figure = go.Figure(bars)
    figure.update_layout(_layout("How often each continuation was drawn", colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="group", bargap=0.28, bargroupgap=0.06)
    figure.update_xaxes(_axis("draws", colours), rangemode="tozero", tickformat=",d")
    figure.update_yaxes(_axis("", colours), autorange="reversed", showgrid=False, tickmode="array")
    return figure


def _oracle(oracle: OracleLength, colours: Palette) -> go.Figure:
    told, whole = Counter(), Counter()
    for length, is_whole in zip(oracle.lengths, oracle.whole, strict=True):
        (whole if is_whole else told)[length] += 1
    lengths = list(range(max(oracle.lengths, default=0) + 1))
    figure = go.Figure()
    for uid, name, counts, marker in (
        ("told", "just so long", told, _fill(colours.accepted)),
        ("whole", "at least so long", whole, _fill(colours.bonus, "/")),
    ):
        hover = f"k %{{x}} {name}: %{{y}} rounds<extra></extra>"
        counted = [counts[length] for length in lengths]
        figure.add_bar(uid=uid, name=name, x=lengths, y=counted, marker=marker, hovertemplate=hover)
    figure.update_layout(_layout("Best draft length of each round", colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="stack", bargap=0.18)
    figure.update_xaxes(_axis("drafted tokens that paid", colours), dtick=1, tickformat="d", showgrid=False)
    return figure.update_yaxes(_axis("rounds", colours), tickformat="d", rangemode="tozero")


def _panels(
    figure: go.Figure, title: str, axis: str, colours: Palette, below: str, scale: dict[str, Any]
) -> None:
    """Lay out speedups above, with a line at 1×, and what ``below`` names under them."""
    figure.update_layout(
        _layout(title, colours) | {"hovermode": "closest"},
        xaxis=_axis(axis, colours) | {"anchor": "y2"},
        yaxis=_axis("", colours) | {"domain": [0.47, 1], "ticksuffix": "×", "rangemode": "tozero"},
        yaxis2=_axis("", colours) | {"domain": [0, 0.3]} | scale,
    )
    figure.add_hline(y=1, line=_alone(colours), name="1×: as fast", showlegend=True)
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


def _alone(colours: Palette) -> dict[str, Any]:
    return {"color": colours.ink, "width": 3, "dash": "dash"}


def _outline(colours: Palette) -> dict[str, Any]:
    return {"color": colours.surface, "width": 2}
