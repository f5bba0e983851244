"""The servers that a host lets visitors watch, by name and address, from the command line."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from specdemo.records.limits import UserError

PREFIX = "watch:"
"""Starts the name of a watched server among the names of pairs."""
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][\w .-]{0,39})=(?P<url>https?://\S+)", re.ASCII)
_HOST = re.compile(r"[\w.:%-]+", re.ASCII)
USAGE = "--watch takes NAME=URL, separated by commas, such as llama=http://127.0.0.1:8080"


@dataclass(frozen=True)
class Server:
    """One server.

    Attributes:
        name: Its name for visitors.
        url: Its address without a slash or ``/v1`` at the end; never shown to visitors.
        alone_url: The address of the same model without drafts, for the race, or None.
    """

    name: str
    url: str
    alone_url: str | None = None

    @property
    def pair(self) -> str:
        """Its name among the pairs."""
        return PREFIX + self.name


def parse_servers(text: str, alone: str = "") -> tuple[Server, ...]:
    """Parse ``NAME=URL,NAME=URL``.

    Args:
        text: The servers.
        alone: Servers of the same models without drafts, by the same names.

    Raises:
        UserError: An entry is no server, or a name occurs twice or in ``alone`` only.
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
    """Return whether a URL has a host, and neither a user nor a query nor a fragment."""
    try:
        split = urlsplit(url)
        return bool(split.port != 0 and _HOST.fullmatch(split.hostname or "") and not set("@?#") & set(url))
    except ValueError:  # the port is no number, or a bracket is not closed
        return False
