"""The page that replays a run with no server and no network: one HTML file with everything in it.

It is the stage of the live page, its style and modules inlined. The run stands as NDJSON in one
script element that no browser executes; the live page fills it in and saves the file.
"""

import re
from collections import Counter
from pathlib import Path
from string import Template

from specdemo.charts.palette import css_variables
from specdemo.ui.component import DRESS, STATIC, inline_json, static_text
from specdemo.ui.stage import PLOTLY_JS, STAGE_SHEETS, settings

ENTRY = "stage.js"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'unsafe-inline'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
)
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) )", re.MULTILINE)
_DECLARATION = r"(?:(?:async )?function|class|const|let|var) ([\w$]+)"
_DECLARED = re.compile(rf"^(?:export )?{_DECLARATION}", re.MULTILINE)
_EXPORTED = re.compile(rf"^export {_DECLARATION}", re.MULTILINE)
_UNKNOWN = re.compile(
    r"^(?:import\b|export\b|await\b|(?:const|let|var) (?:[\[{]|[\w$]+ = await\b)).*", re.MULTILINE
)
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
body > h1 { font-size: 24px; font-weight: 750; letter-spacing: -.01em; margin: 0 0 8px; line-height: 1.35; }
@media (max-width: 900px) { body { padding: 8px 12px; } }
</style>
</head>
<body>
<script type="application/x-ndjson" id="specdemo-events">$events</script>
$dress
<h1>Speculative decoding, a recorded run</h1>
$stage
<script>$plotly</script>
<script type="module">
$modules
modules["$entry"].mountOffline({
  root: document.querySelector(".sd"),
  text: document.getElementById("specdemo-events").textContent,
  settings: $settings,
});
</script>
</body>
</html>
""")


def player_page(events: str = "") -> str:
    """The whole page.

    Args:
        events: NDJSON of a run as ``replay_events`` tells it; without it the page waits to be filled.
    """
    return _PAGE.substitute(
        policy=POLICY,
        dress=DRESS,
        style="\n".join([css_variables(), *(static_text(f"{name}.css") for name in STAGE_SHEETS)]),
        events=events.replace("<", r"\u003c"),
        stage=static_text("stage.html"),
        plotly=_inline(PLOTLY_JS.read_text(encoding="utf-8")),
        modules=_inline(bundle(STATIC, ENTRY)),
        entry=ENTRY,
        settings=inline_json(settings()),
    )


def bundle(folder: Path, entry: str) -> str:
    """``entry`` and all it imports as one script: each file once, after those it needs, in its own scope.

    It reads the plain subset of JavaScript that the stage is written in: imports of named values from
    files of the same folder, and ``export`` before a declaration of what is not assigned again.

    Returns:
        Statements that leave in ``modules`` what each file exports, by the file's name.

    Raises:
        ValueError: A file uses another form, imports what is not exported, imports in a circle, or has
            one top-level name twice.
    """
    sources = _in_order(folder, entry)
    exports = {name: _EXPORTED.findall(source) for name, source in sources.items()}
    wrapped = [_wrapped(name, source, exports) for name, source in sources.items()]
    return "\n".join(["const modules = {};", *wrapped])


def _in_order(folder: Path, name: str, importers: tuple[str, ...] = ()) -> dict[str, str]:
    """The source of a module and of all it imports, each after those it needs."""
    if name in importers:
        raise ValueError(f"{name} imports itself by way of {importers[-1]}.")
    source = (folder / name).read_text(encoding="utf-8")
    modules: dict[str, str] = {}
    for _, other in _IMPORT.findall(source):
        modules |= _in_order(folder, other, (*importers, name))
    return modules | {name: source}


def _wrapped(name: str, source: str, exports: dict[str, list[str]]) -> str:
    """A module as a call of a function: from the exports of the modules it imports to its own."""
    imports = [(_names(listed), other) for listed, other in _IMPORT.findall(source)]
    for wanted, other in imports:
        if lacking := set(wanted) - set(exports[other]):
            raise ValueError(f"{name} imports {min(lacking)}, which {other} does not export.")
    bound = Counter([*(value for wanted, _ in imports for value in wanted), *_DECLARED.findall(source)])
    if twice := [value for value, times in bound.items() if times > 1]:
        raise ValueError(f"{name} imports or declares {twice[0]} twice.")
    parameters = ", ".join(f"{{ {', '.join(wanted)} }}" for wanted, _ in imports)
    arguments = ", ".join(f'modules["{other}"]' for _, other in imports)
    returned = f"return {{ {', '.join(exports[name])} }};"
    body = _body(name, source)
    return f'modules["{name}"] = (({parameters}) => {{\n{body}\n{returned}\n}})({arguments});'


def _names(listed: str) -> list[str]:
    """What stands between the braces of an import."""
    return [name for name in map(str.strip, listed.split(",")) if name]


def _body(name: str, source: str) -> str:
    """A module without its imports and the word ``export``."""
    body = _EXPORT.sub("", _IMPORT.sub("", source))
    if left := _UNKNOWN.search(body):
        raise ValueError(f"{name} has a form that cannot be bundled: {left[0]}")
    return body.strip()


def _inline(script: str) -> str:
    """JavaScript that may stand inside a script element; the escapes hold in strings and patterns."""
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE).replace("<!--", r"<\x21--")
