"""The servers that visitors may watch, parsed from the host's command line."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from specdemo.records.limits import UserError

PREFIX = "watch:"
"""The prefix of a watched server's name in the list of pairs."""
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][\w .-]{0,39})=(?P<url>https?://\S+)", re.ASCII)
_HOST = re.compile(r"[\w.:%-]+", re.ASCII)
USAGE = "--watch takes NAME=URL, separated by commas, such as llama=http://127.0.0.1:8080"


@dataclass(frozen=True)
class Server:
    """One watched server.

    Attributes:
        name: The name that visitors see.
        url: The address, without a slash or ``/v1`` at the end. It is never shown to visitors.
        alone_url: The address of a server with the same model and no drafts, which provides the baseline of a
            race; None if there is none.
    """

    name: str
    url: str
    alone_url: str | None = None

    @property
    def pair(self) -> str:
        """The server's name in the list of pairs."""
        return PREFIX + self.name


def parse_servers(text: str, alone: str = "") -> tuple[Server, ...]:
    """Parse the settings ``--watch`` and ``--watch-alone``, both in the form ``NAME=URL,NAME=URL``.

    Args:
        text: The servers to watch.
        alone: Servers with the same models and no drafts. Each one has the name of a server in ``text``.

    Raises:
        UserError: An entry has another form, a name occurs twice, or a name occurs only in ``alone``.
    """
    urls, alone_urls = _addresses(text), _addresses(alone)
    if unknown := sorted(set(alone_urls) - set(urls)):
        raise UserError(
            f"--watch-alone names {unknown[0]}, which --watch does not; use the same names in both."
        )
    return tuple(Server(name, url, alone_urls.get(name)) for name, url in urls.items())


def _addresses(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _NAMED.fullmatch(part)
        if match is None or not _is_plain(match["url"]):
            raise UserError(f"{USAGE}; got {part[:80]!r}.")
        name = match["name"]
        if name in found:
            raise UserError(f"{USAGE}; {name} occurs twice.")
        found[name] = match["url"].rstrip("/").removesuffix("/v1")
    return found


def _is_plain(url: str) -> bool:
    """Return True if a URL has a host and a valid port, but no user, query or fragment."""
    try:
        split = urlsplit(url)
        return bool(split.port != 0 and _HOST.fullmatch(split.hostname or "") and not set("@?#") & set(url))
    except ValueError:  # the port is not a number, or a bracket is not closed
        return False
