"""The chart of a finding: a round, and what the target alone needs for the same tokens."""

import plotly.graph_objects as go

from specdemo.charts.palette import Palette
from specdemo.charts.style import Themed, axis_of, filling, frame, themed
from specdemo.doctor.finding import Finding

ALONE, ROUND = "target alone", "one round"


def round_chart(found: Finding) -> Themed | None:
    """Draw the two times as bars in parts; None if one of the speeds or τ is unknown."""
    tau, pass_ms, rest_ms = found.tau, found.pass_ms, found.rest_ms
    if tau is None or pass_ms is None or rest_ms is None:
        return None

    def draw(colours: Palette) -> go.Figure:
        figure = go.Figure()
        for uid, name, times, marker in (
            ("pass", "target pass", (tau * pass_ms, pass_ms), filling(colours.accepted)),
            ("draft", "drafting", (0.0, found.draft_ms or 0.0), filling(colours.pending, "/")),
            ("rest", "the rest", (0.0, rest_ms), filling(colours.rejected, "x")),
        ):
            figure.add_bar(
                uid=uid,
                name=name,
                orientation="h",
                x=times,
                y=[ALONE, ROUND],
                marker=marker,
                hovertemplate=f"{name}: %{{x:.1f}} ms<extra></extra>",
                showlegend=times[1] > 0,
            )
        title = f"Time for {tau:.2f} tokens"
        figure.update_layout(frame(title, colours) | {"hovermode": "closest", "barmode": "stack"})
        figure.update_xaxes(axis_of("milliseconds", colours), rangemode="tozero")
        return figure.update_yaxes(axis_of("", colours), autorange="reversed", showgrid=False)

    return themed(draw)
