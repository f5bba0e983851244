"""The tab "Class", which opens a room for students; ``class.js`` and ``http/class_routes.py`` do the rest."""

from specdemo.ui.component import component
from specdemo.ui.tabs.quiz import shown_questions


def build_class() -> None:
    """Add the tab's component to the page that is being built."""
    component("class", "class.js", "mountClass", {"questions": shown_questions()})
