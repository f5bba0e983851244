"""Rounds and figures as Plotly charts; the page fills the same charts in the browser as a run goes.

Layout, trace styles and colours are said here only: ``skeletons()`` is what the stage embeds. Each
trace carries a ``uid`` by which the browser finds it. Computes no figure and knows no UI.
"""

import json
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from specdemo.metrics import Totals
from specdemo.palette import THEMES, Palette
from specdemo.trace import Round, Status

FONT_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FONT_SIZE = 15
MARK_LIFT = 0.4
"""How far above its bar, in tokens, the mark of the target's own token sits."""


def acceptance_figure(rounds: Sequence[Round], theme: str = "light") -> go.Figure:
    """Accepted and discarded tokens of each round, stacked; the target's own token marked on top."""
    colours = THEMES[theme]
    numbers = [round_.index + 1 for round_ in rounds]
    accepted = [round_.accepted for round_ in rounds]
    discarded = [len(round_.drafted) - round_.accepted for round_ in rounds]
    figure = go.Figure(
        [
            _bars("accepted", numbers, accepted, colours.accepted, ""),
            _bars("discarded", numbers, discarded, colours.discarded, "/"),
            _marks(rounds, Status.CORRECTED, colours.corrected, "diamond"),
            _marks(rounds, Status.BONUS, colours.bonus, "star"),
        ]
    )
    figure.update_layout(_layout("Drafted tokens per round", colours), barmode="stack", bargap=0.18)
    figure.update_xaxes(_axis("round", colours), tickformat="d", autorangeoptions={"include": [0.5, 12.5]})
    figure.update_yaxes(_axis("tokens", colours), tickformat="d", autorangeoptions={"include": [0, 4]})
    return figure


def speedup_figure(totals_per_round: Sequence[Totals], theme: str = "light") -> go.Figure:
    """Speedup over the target alone after each speculative round, with 1× and the theory."""
    colours = THEMES[theme]
    numbers = list(range(1, len(totals_per_round) + 1))
    measured = {"color": colours.accepted, "width": 3}
    theory = {"color": colours.muted, "width": 2, "dash": "dot"}
    figure = go.Figure(
        [
            _line("speedup", "measured", numbers, [totals.speedup for totals in totals_per_round], measured),
            _line("theory", "theory", numbers, [totals.s_theory for totals in totals_per_round], theory),
        ]
    )
    figure.update_layout(_layout("Speedup over the target alone, so far", colours))
    figure.update_xaxes(_axis("round", colours), tickformat="d", autorangeoptions={"include": [0.5, 12.5]})
    figure.update_yaxes(_axis("", colours), ticksuffix="×", autorangeoptions={"include": [0, 1.5]})
    line = {"color": colours.ink, "width": 2, "dash": "dash"}
    figure.add_hline(y=1, line=line, name="1× = target alone", showlegend=True)
    return figure


def skeletons() -> dict[str, dict[str, Any]]:
    """Theme -> chart -> empty Plotly figure (``data``, ``layout``) for the browser to fill."""
    return {
        theme: {
            "acceptance": json.loads(acceptance_figure([], theme).to_json(remove_uids=False)),
            "speedup": json.loads(speedup_figure([], theme).to_json(remove_uids=False)),
        }
        for theme in THEMES
    }


def _bars(name: str, x: Sequence[int], y: Sequence[int], colour: str, pattern: str) -> go.Bar:
    marker = {
        "color": colour,
        "pattern": {"shape": pattern, "fillmode": "replace" if pattern else "overlay", "size": 6},
    }
    hover = f"round %{{x}}: %{{y}} {name}<extra></extra>"
    return go.Bar(uid=name, name=name, x=x, y=y, marker=marker, hovertemplate=hover)


def _marks(rounds: Sequence[Round], status: Status, colour: str, symbol: str) -> go.Scatter:
    chosen = [round_ for round_ in rounds if round_.emission and round_.emission.status is status]
    return go.Scatter(
        uid=str(status),
        name=str(status),
        mode="markers",
        x=[round_.index + 1 for round_ in chosen],
        y=[len(round_.drafted) + MARK_LIFT for round_ in chosen],
        marker={"color": colour, "symbol": symbol, "size": 10},
        hovertemplate=f"round %{{x}}: {status} by the target<extra></extra>",
    )


def _line(
    uid: str, name: str, x: Sequence[int], y: Sequence[float | None], line: dict[str, Any]
) -> go.Scatter:
    hover = f"after round %{{x}}: %{{y:.2f}}× {name}<extra></extra>"
    return go.Scatter(uid=uid, name=name, mode="lines", x=x, y=y, line=line, hovertemplate=hover)


def _layout(title: str, colours: Palette) -> dict[str, Any]:
    return {
        "template": go.layout.Template(),
        "title": {"text": title, "x": 0.02, "y": 0.97, "yanchor": "top", "font": {"size": FONT_SIZE + 2}},
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
        "hoverlabel": {"font": {"size": FONT_SIZE}},
        "showlegend": True,
    }


def _axis(title: str, colours: Palette) -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": FONT_SIZE}},
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "automargin": True,
    }
