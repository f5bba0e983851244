"""The page that replays a run without server or network: one HTML file with the stage, styles and modules.

The live page inserts the run as NDJSON, and saves the file.
"""

import posixpath
import re
from base64 import b64encode
from pathlib import Path
from string import Template

from specdemo.charts.palette import css_variables
from specdemo.ui.component import CLAIM, DRESS, STATIC, inline_json, static_text
from specdemo.ui.stage import PLOTLY_JS, STAGE_SHEETS, settings

ENTRY = "stage/stage.js"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'unsafe-inline' data:",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
)
_IMPORT = re.compile(r'\bfrom "(\.{1,2}/[\w/-]+\.js)";')
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A recorded run of speculative decoding</title>
<style>$style
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1480px; padding: 8px 24px 10px; background: var(--sd-page);
  color: var(--sd-ink);
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
body > header { display: flex; flex-wrap: wrap; gap: 0 18px; align-items: center; font-size: 15px; }
h1 { flex: 1 1 auto; font-size: 21px; font-weight: 750; letter-spacing: -.01em; margin: 0; }
body > header > p { flex-basis: 100%; margin: 0 0 4px; }
body > header a { color: var(--sd-accent); }
.sd-tools :is(.sd-select, .sd-menu) { display: none; }
@media (max-width: 900px) { body { padding: 8px 12px; } h1 { font-size: 18px; } }
</style>
</head>
<body>
<script type="application/x-ndjson" id="specdemo-events">$events</script>
$dress
<header>
<h1>Speculative decoding, a recorded run</h1>
<div class="sd-header-tools"></div>
<p>$claim <a data-live hidden>Open the live page</a></p>
</header>
$stage
<script>$plotly</script>
<script type="importmap">$modules</script>
<script type="module">
import { mountOffline } from "$entry";
mountOffline({
  root: document.querySelector(".sd"),
  text: document.getElementById("specdemo-events").textContent,
  settings: $settings,
});
</script>
</body>
</html>
""")


def player_page(events: str = "") -> str:
    """Return the page as HTML; ``events`` is the NDJSON of a run, as ``replay_lines`` returns it."""
    return _PAGE.substitute(
        policy=POLICY,
        claim=CLAIM,
        dress=DRESS,
        style="\n".join([css_variables(), *(static_text(f"{name}.css") for name in STAGE_SHEETS)]),
        events=events.replace("<", r"\u003c"),
        stage=static_text("stage/stage.html"),
        plotly=_inline(PLOTLY_JS.read_text(encoding="utf-8")),
        modules=inline_json({"imports": module_urls(STATIC, ENTRY)}),
        entry=ENTRY,
        settings=inline_json(settings()),
    )


def module_urls(folder: Path, entry: str) -> dict[str, str]:
    """Return the data URLs of a module and of its direct and indirect imports, by path in ``folder``."""

    # A module with a data URL cannot import from a relative address. So the modules import each other by
    # path, and the page has an import map from these paths to the URLs.
    def url(name: str, source: str) -> str:
        absolute = _IMPORT.sub(lambda found: f'from "{_imported(name, found[1])}";', source)
        return f"data:text/javascript;base64,{b64encode(absolute.encode()).decode()}"

    return {name: url(name, source) for name, source in module_sources(folder, entry).items()}


def module_sources(folder: Path, entry: str) -> dict[str, str]:
    """Return the sources of a module and of its direct and indirect imports, by path in ``folder``."""
    sources: dict[str, str] = {}
    needed = [entry]
    while needed:
        name = needed.pop()
        if name not in sources:
            sources[name] = (folder / name).read_text(encoding="utf-8")
            needed += [_imported(name, address) for address in _IMPORT.findall(sources[name])]
    return sources


def _imported(module: str, address: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(module), address))


def _inline(script: str) -> str:
    """Return JavaScript that is safe inside a script element."""
    # The replaced text occurs only in strings and regular expressions, where the escapes mean the same.
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE).replace("<!--", r"<\x21--")
