"""The page on other sites: the preview of its link, and a replay that any site may show in a frame."""

import os
import re
from functools import cache
from html import escape
from string import Template

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.charts.palette import css_variables
from specdemo.ui import stage
from specdemo.ui.component import DRESS, PREFIX, inline_json, static_text

EMBED = "embed"
"""The parameter of the address; ``?embed=1`` is a page that only replays a recorded run."""
PICTURE = "common/preview.png"
PICTURE_SIZE = (1200, 630)
PICTURE_WORDS = "A run: draft tokens with their verdicts, the target alone below, and the speedup."
FAVICON = "common/favicon.svg"
_GRADIOS_TAGS = re.compile(r"\s*<meta\s+(?:property=\"og:|name=\"twitter:)[^>]*>")


class Sharing:
    """ASGI middleware that replies to ``?embed=1``, and gives the page's HTML its own preview.

    Gradio adds ``launch(head=...)`` by a script, which crawlers do not run, and its HTML describes Gradio.
    """

    def __init__(self, app: ASGIApp, title: str, claim: str):
        self._app = app  # inside Gradio's middleware, so its replies are not compressed yet
        self._title = title
        self._claim = claim

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) != "/":
            return await self._app(scope, receive, send)
        if is_embedded(scope):
            return await HTMLResponse(embedded_page(self._title))(scope, receive, send)
        begin: Message = {}
        body = bytearray()

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                begin.update(message)
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, collect)
        if not begin:  # the visitor has gone
            return
        headers = MutableHeaders(raw=begin["headers"])
        if headers.get("content-type", "").startswith("text/html"):
            query = scope["query_string"].decode("latin-1")
            page = with_preview(body.decode(), self._title, self._claim, address_of(scope), query)
            body = bytearray(page.encode())
            headers["content-length"] = str(len(body))
        await send(begin)
        await send({"type": "http.response.body", "body": bytes(body)})


def path_of(scope: Scope) -> str:
    """Return the path of a request below the folder that a proxy may have left in it."""
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def is_embedded(scope: Scope) -> bool:
    return path_of(scope) == "/" and QueryParams(scope["query_string"]).get(EMBED) == "1"


def address_of(scope: Scope) -> str:
    """Return the page's address as visitors know it, with a slash at the end."""
    root = scope.get("root_path", "").rstrip("/")
    if "://" in root:
        return f"{root}/"
    if space := os.environ.get("SPACE_HOST"):
        return f"https://{space.split(',')[0]}/"
    headers = Headers(scope=scope)
    host = headers.get("x-forwarded-host") or headers.get("host") or "{}:{}".format(*scope["server"])
    scheme = headers.get("x-forwarded-proto") or scope["scheme"]
    return f"{scheme}://{host}{root}/"


def with_preview(page: str, title: str, claim: str, address: str, query: str) -> str:
    picture = f"{address}{PREFIX}/{PICTURE}"
    width, height = PICTURE_SIZE
    tags = {
        "og:type": "website",
        "og:title": title,
        "og:description": claim,
        "og:url": f"{address}?{query}" if query else address,
        "og:image": picture,
        "og:image:width": str(width),
        "og:image:height": str(height),
        "og:image:alt": PICTURE_WORDS,
    }
    lines = [
        f"<title>{escape(title)}</title>",
        f'<meta name="description" content="{escape(claim)}">',
        *(f'<meta property="{name}" content="{escape(value)}">' for name, value in tags.items()),
        '<meta name="twitter:card" content="summary_large_image">',
        f'<link rel="icon" type="image/svg+xml" href="{escape(address)}{PREFIX}/{FAVICON}">',
    ]
    # First in the head, because some crawlers read only the first kilobytes.
    before, head, rest = _GRADIOS_TAGS.sub("", page).partition("<head>")
    return "\n".join([before + head, *lines]) + rest


@cache
def embedded_page(title: str) -> str:
    """Return the page for frames on other sites: the stage, without Gradio."""
    sheets = (f'<link rel="stylesheet" href="{PREFIX}/{name}.css">' for name in stage.STAGE_SHEETS)
    return Template(static_text("stage/embed.html")).substitute(
        title=escape(title),
        dress=DRESS,
        palette=css_variables(),
        sheets="\n".join(sheets),
        files=PREFIX,
        stage=static_text("stage/stage.html"),
        settings=inline_json(stage.settings()),
    )
