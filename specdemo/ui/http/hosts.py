"""The host names that the page answers to, and the other sites whose pages may call it.

The header ``Host`` reveals DNS rebinding, and ``Origin`` a request from a page of another site.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import httpx

from specdemo.records.limits import UserError, show

ANY = "*"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HUB = "huggingface.co"
_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|\*")
_ROOT = re.compile(r"(https?://(?P<host>[^/]+))?(/(?!\.\.?(/|$))[^/?#%\\]+)*")
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[\w.-]{1,253})(:\d{1,5})?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Hosts:
    """Host names in lower case; ``*.x`` stands for every subdomain of x, ``*`` for any name."""

    names: frozenset[str] = frozenset()
    callers: frozenset[str] = frozenset()  # the names of other sites whose pages may call this page

    def answers_to(self, name: str) -> bool:
        return _is_address(name) or _among(name, self.names)  # DNS cannot rebind an IP address

    def admits(self, origin: str, asked: Collection[str]) -> bool:
        """Return whether a page of ``origin`` may call this page by the host names ``asked``."""
        scheme, _, host = origin.partition("://")
        name = name_in(host) if scheme in ("http", "https") else None
        if name is None:
            return False
        on_this_machine = name in LOOPBACK and not LOOPBACK.isdisjoint(asked)
        return on_this_machine or name in asked or _among(name, self.callers)


def hosts_for(allowed: Iterable[str] = (), root_path: str = "", listening: str = "") -> Hosts:
    """Return the names of the page: of this machine, of a Space, of a proxy, and those in ``allowed``."""
    own = socket.gethostname().lower()
    callers = set(allowed)
    names = {"localhost", "*.localhost", own, f"{own}.local"}
    names.add(listening.lower().rstrip("."))  # Gradio calls its own server by the name that it listens on
    _, scheme, shown_at = root_path.rpartition("://")
    if scheme:
        callers.add(name_in(shown_at.partition("/")[0]) or "")
    elif root_path and not callers:
        names.add(ANY)  # the proxy is expected to check the name
    if os.environ.get("SPACE_ID"):
        callers.update([HUB, *os.environ.get("SPACE_HOST", "").lower().split(",")])
        names.add("*.hf.space")
    return Hosts(frozenset(names | callers) - {""}, frozenset(callers) - {""})


def parse_names(text: str, option: str = "--allow-host") -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    for name in names:
        if not (_NAME.fullmatch(name) or _is_address(name)):
            raise UserError(
                f"{option} must be host names such as demo.example.org or *.example.org, got {show(name)}."
            )
    return names


def parse_framers(text: str) -> tuple[str, ...]:
    """Return the names in ``text``; IPv6 addresses are refused, which browsers do not accept here."""
    names = parse_names(text, "--allow-frame")
    for name in names:
        if ":" in name:
            raise UserError(
                f"--allow-frame must not contain IPv6 addresses such as {show(name)}; use a host name."
            )
    return names


def parse_root_path(text: str) -> str:
    """Return the path or full address under which a proxy shows the page, without a slash at its end."""
    root = text.strip().rstrip("/")
    found = _ROOT.fullmatch(root)
    if not found or (found["host"] and not name_in(found["host"])) or not root.isprintable():
        raise UserError(
            "--root-path must be a path such as /specdemo or an address such as "
            f"https://example.org/specdemo, got {show(text)}."
        )
    return root


def name_in(host: str) -> str | None:
    """Return the name in a ``Host`` header in lower case; None if no browser would send this header."""
    if not _HOST.fullmatch(host):
        return None
    try:
        url = httpx.URL(f"http://{host}")
    except httpx.InvalidURL:
        return None
    return url.raw_host.decode().rstrip(".") or None if (url.port or 0) < 1 << 16 else None


def _among(name: str, names: Iterable[str]) -> bool:
    return any(
        one in (name, ANY) or (one.startswith("*.") and name.endswith(one.removeprefix("*"))) for one in names
    )


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def require_networks(addresses: str) -> None:
    """Raise ``UserError`` unless the text lists IP addresses or networks, separated by commas."""
    for address in filter(None, addresses.split(",")):
        try:
            ipaddress.ip_network(address.strip())
        except ValueError:
            raise UserError(
                "--trust-proxy must be IP addresses or networks such as 127.0.0.1,10.0.0.0/8, "
                f"got {show(address)}."
            ) from None
