"""Which servers a host lets visitors watch: names and addresses, from the command line alone."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from specdemo.records.limits import UserError

PREFIX = "watch:"
"""Before a server's name where pairs are named."""
KEY = "SPECDEMO_WATCH_KEY"
"""Environment variable with the key that servers ask for, if they do (``Authorization: Bearer``)."""
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][\w .-]{0,39})=(?P<url>https?://\S+)", re.ASCII)
_HOST = re.compile(r"[\w.:%-]+", re.ASCII)
HOW = "--watch takes NAME=URL, separated by commas, such as llama=http://127.0.0.1:8080"


@dataclass(frozen=True)
class Server:
    """One server.

    Attributes:
        name: What visitors call it.
        url: Where it answers, without a slash or ``/v1`` at its end; never shown to visitors.
        alone_url: Where the same model answers without drafts, for the race; None where it does not.
    """

    name: str
    url: str
    alone_url: str | None = None

    @property
    def pair(self) -> str:
        """Its name among the pairs."""
        return PREFIX + self.name


def parse_servers(text: str, alone: str = "") -> tuple[Server, ...]:
    """``NAME=URL,NAME=URL``, or ``alone`` likewise.

    Args:
        text: The servers.
        alone: Servers of the same models without drafts, by the same names.

    Raises:
        UserError: One cannot be read, or a name stands twice or in ``alone`` only.
    """
    urls, plain = _addresses(text), _addresses(alone)
    if unknown := sorted(set(plain) - set(urls)):
        raise UserError(
            f"--watch-alone names {unknown[0]}, which --watch does not; use the same names in both."
        )
    return tuple(Server(name, url, plain.get(name)) for name, url in urls.items())


def _addresses(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _NAMED.fullmatch(part)
        if match is None or not _is_plain(match["url"]):
            raise UserError(f"{HOW}; not {part[:80]!r}.")
        name = match["name"]
        if name in found:
            raise UserError(f"{HOW}; {name} stands there twice.")
        found[name] = match["url"].rstrip("/").removesuffix("/v1")
    return found


def _is_plain(url: str) -> bool:
    """Whether this is an address, and has neither a user nor anything behind its path."""
    try:
        split = urlsplit(url)
        plain = split.port != 0 and _HOST.fullmatch(split.hostname or "") and not set("@?#") & set(url)
    except ValueError:  # what is no port, or a bracket that is left open
        return False
    return bool(plain)
