"""Download of a file from a package index, with the settings of pip and uv and without either."""

import configparser
import html
import os
import re
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

PYPI = "https://pypi.org/simple"
ADDRESSES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE")
# Pip's configuration files on Linux and macOS; later ones override earlier ones.
CONFIGURATIONS = (
    "/etc/xdg/pip/pip.conf",
    "/etc/pip.conf",
    "~/.pip/pip.conf",
    "~/.config/pip/pip.conf",
    "~/Library/Application Support/pip/pip.conf",
    f"{sys.prefix}/pip.conf",
)
ACCEPT = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}
TIMEOUT_S = 30  # per answer of the package index
PART_BYTES = 2**20


class UnavailableError(Exception):
    """The package index cannot be reached or does not have the file."""


def download(project: str, path: Path, max_bytes: int, on_bytes: Callable[[int], None]) -> None:
    """Download the file of ``project`` that is called ``path.name``; the caller checks its content.

    A file larger than ``max_bytes`` is cut off. ``on_bytes`` gets the number of bytes written so far.
    """
    address = "the configuration of pip"
    try:
        address = index_address()
        index = httpx.URL(address)
        with httpx.Client(timeout=TIMEOUT_S, verify=_certificates(), follow_redirects=True) as client:
            page = client.get(f"{address.rstrip('/')}/{project}/", headers=ACCEPT)
            _require_success(page)
            found = _link_to(path.name, page)
            # Links of an index with a password lack the password. Other servers must not get it.
            own = index.username and _server(found) == _server(index)
            auth = (index.username, index.password) if own else None
            with client.stream("GET", found, auth=auth) as reply, path.open("wb") as file:
                _require_success(reply)
                for part in reply.iter_bytes(PART_BYTES):
                    file.write(part)
                    on_bytes(file.tell())
                    if file.tell() > max_bytes:
                        break
    except (httpx.HTTPError, httpx.InvalidURL, UnavailableError, configparser.Error, UnicodeError) as error:
        words = " ".join(str(error).split())  # in one line
        reason = re.sub(r"^\[Errno -?\d+\] ", "", words) or type(error).__name__
        raise UnavailableError(f"{re.sub('//[^/]*@', '//', address)}: {reason}") from error


def index_address() -> str:
    """Return the address of the package index that pip or uv would use."""
    for name in ADDRESSES:
        if address := os.environ.get(name):
            return re.sub(r"^[\w.-]+=", "", address)  # uv lets an index have a name
    added = os.environ.get("PIP_CONFIG_FILE", "")
    files = [] if added == os.devnull else [*map(os.path.expanduser, CONFIGURATIONS), added]
    configuration = configparser.RawConfigParser()
    configuration.read(files, encoding="utf-8")
    spelled = configuration.get("global", "index_url", fallback=PYPI)  # pip knows both spellings
    return configuration.get("global", "index-url", fallback=spelled)


def _certificates() -> ssl.SSLContext:
    """Return the authorities to trust: httpx's, the system's, and those named for pip."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    for name in CERTIFICATES:
        if path := os.environ.get(name):
            try:
                context.load_verify_locations(**{"capath" if os.path.isdir(path) else "cafile": path})
            except OSError as error:
                raise UnavailableError(f"{name} is {path}, which contains no certificates") from error
    return context


def _server(address: httpx.URL) -> tuple[str, str, int | None]:
    return address.scheme, address.host, address.port


def _require_success(reply: httpx.Response) -> None:
    if not reply.is_success:
        raise UnavailableError(f"{reply.status_code} {reply.reason_phrase}")


def _link_to(name: str, page: httpx.Response) -> httpx.URL:
    """Return the address of the file called ``name`` on a project's page, which is JSON or HTML."""
    if "json" in page.headers.get("Content-Type", ""):
        try:
            links = [file["url"] for file in page.json()["files"]]
        except (ValueError, KeyError, TypeError):  # for example the page of a network that asks for a login
            raise UnavailableError("the index sent no list of files") from None
    else:
        links = map(html.unescape, re.findall(r"""href\s*=\s*["']([^"']+)""", page.text))
    for address in map(page.url.join, links):
        if address.path.endswith(f"/{name}"):
            return address
    raise UnavailableError(f"the index does not have {name}")
