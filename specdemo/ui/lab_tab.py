"""The tab "Lab"."""

from specdemo.ui.component import component
from specdemo.ui.runs import EventSource, Stops


def build_lab(service: EventSource) -> Stops:
    """The tab's widgets and what pressing them does; whoever left is to be forgotten in what it returns."""
    stops = Stops()
    component("lab", "lab.js", "mountLab")
    return stops
