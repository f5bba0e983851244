"""The servers that visitors may watch, parsed from the host's command line."""

import re
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from specdemo.records.limits import UserError

PREFIX = "watch:"
_ENTRY = re.compile(r"(?:([A-Za-z0-9][\w .-]{0,39})=)?(https?://\S+)", re.ASCII)
_HOST = re.compile(r"[\w.:%-]+", re.ASCII)
_EXTRA = re.compile(r"[@?#\s]")
FORM = "NAME=URL or NAME=URL,BASELINE-URL, such as llama=http://127.0.0.1:8080"


@dataclass(frozen=True)
class Server:
    """One watched server. URLs have no slash or ``/v1`` at the end and are never shown to visitors."""

    name: str
    url: str
    alone_url: str | None = None
    """A server with the same model and no drafts, which writes the baseline; None if there is none."""

    @property
    def pair(self) -> str:
        """The server's name in the list of pairs."""
        return PREFIX + self.name


def parse_servers(text: str) -> tuple[Server, ...]:
    """Parse ``--watch``: servers ``NAME=URL``, each of which may have its baseline's URL after a comma."""
    servers: list[Server] = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _ENTRY.fullmatch(part)
        name, url = match.groups() if match else (None, "")
        if (short := short_url(url)) is None or not (name or (servers and servers[-1].alone_url is None)):
            raise UserError(f"--watch must be {FORM}, got {part[:80]!r}.")
        if name in [server.name for server in servers]:
            raise UserError(f"--watch has two servers named {name}; rename one server.")
        if name:
            servers.append(Server(name, short))
        else:
            servers[-1] = replace(servers[-1], alone_url=short)
    return tuple(servers)


def short_url(url: str) -> str | None:
    """Return a URL without a slash or ``/v1`` at the end; None if it is not the plain address of a server."""
    try:
        split = urlsplit(url)
        host = _HOST.fullmatch(split.hostname or "")
        plain = split.scheme in ("http", "https") and host and split.port != 0 and not _EXTRA.search(url)
    except ValueError:  # the port is not a number, or a bracket is not closed
        return None
    return url.rstrip("/").removesuffix("/v1") if plain else None
