"""The tab "Class". Most of its code is in ``static/class/`` and ``http/class_routes.py``."""

from specdemo.ui.component import component
from specdemo.ui.tabs.quiz import shown_questions


def build_class() -> None:
    """Add the tab's component to the page that is being built."""
    component("class", "class/class.js", "mountClass", {"questions": shown_questions()})
