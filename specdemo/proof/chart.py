"""The chart of the two samples of the distribution test, which the page fills draw by draw."""

import plotly.graph_objects as go

from specdemo.charts.palette import Palette
from specdemo.charts.stage import LANE_NAMES
from specdemo.charts.style import BLANK, Themed, axis_of, filling, frame, themed
from specdemo.records.trace import BASELINE, SPECULATIVE


def distribution_chart() -> Themed:
    """Return an empty chart with two bars per continuation: how often each lane drew it.

    The browser fills the traces ``speculative`` and ``baseline`` with counts (x) by rank (y) and labels them.
    """
    return themed(_distribution)


def _distribution(colours: Palette) -> go.Figure:
    fills = {SPECULATIVE: filling(colours.accepted), BASELINE: filling(colours.muted, "/")}
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
    figure.update_layout(frame("How often each continuation was drawn", colours) | {"hovermode": "closest"})
    figure.update_layout(barmode="group", bargap=0.28, bargroupgap=0.06)
    figure.update_xaxes(axis_of("draws", colours), rangemode="tozero", tickformat=",d")
    figure.update_yaxes(axis_of("", colours), autorange="reversed", showgrid=False, tickmode="array")
    return figure
