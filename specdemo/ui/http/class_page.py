"""The page that a student opens: the stage without Gradio, the lessons to read, and what is asked.

It is the same for every class; which one it is about stands in its address. Where that names none, it asks.
"""

from functools import cache
from string import Template

from specdemo.charts.palette import css_variables
from specdemo.ui.component import DRESS, PREFIX, inline_json, static_text
from specdemo.ui.stage import STAGE_SHEETS, settings

SHEETS = (*STAGE_SHEETS, "learn", "class", "class-student")


@cache
def student_page(root: str) -> str:
    """The whole page.

    Args:
        root: The way from its address to the folder of the live page, such as ``../``: a proxy may show both
            anywhere.
    """
    files = f"{root}{PREFIX}"
    return Template(static_text("class-student.html")).substitute(
        dress=DRESS,
        palette=css_variables(),
        sheets="\n".join(f'<link rel="stylesheet" href="{files}/{name}.css">' for name in SHEETS),
        files=files,
        root=root,
        stage=static_text("stage.html"),
        lessons=static_text("lessons.html"),
        settings=inline_json(settings()),
    )
