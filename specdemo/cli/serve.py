"""``specdemo serve``: check the settings before torch and Gradio are imported, so that errors appear at once,
then load the models in the background and serve the page."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from specdemo import __version__
from specdemo.asset_paths import BUILT_IN
from specdemo.cli.exits import INTERRUPTED, exit_status
from specdemo.cli.options import DEVICE, FEATURE_DRAFT, N_GRAM, RECALIBRATE, THREADS, check_models
from specdemo.cluster.plan import parse_replicas, require_ray
from specdemo.pairs.presets import OWN, OfferedPairs
from specdemo.records.limits import AUTO_PRECISION, PAIRS, PRECISIONS, UserError, show
from specdemo.records.output import remove_scratch
from specdemo.service import ZERO_GPU
from specdemo.service.queue import Bounds
from specdemo.ui.http.hosts import parse_framers, parse_names, parse_root_path, require_networks
from specdemo.watch.servers import parse_servers

if TYPE_CHECKING:
    from specdemo.service.hosting import Hosting
    from specdemo.service.service import Service

ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def environment_arguments() -> list[str]:
    """Return arguments from the environment: ``SPECDEMO_MAX_SECONDS=60`` is ``--max-seconds=60``, and
    ``SPECDEMO_MCP=true`` is ``--mcp``."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    arguments = []
    for name, default in vars(parser.parse_args([])).items():
        variable, flag = "SPECDEMO_" + name.upper(), "--" + name.replace("_", "-")
        value = os.environ.get(variable, "").strip()
        if not isinstance(default, bool):
            arguments += [f"{flag}={value}"] if value else []
        elif value.lower() in ON:
            arguments.append(flag)
        elif value.lower() not in OFF:
            raise UserError(f"{variable} must be true or false, got {show(value)}.")
    return arguments


def add_to(commands: Any) -> None:
    parser = commands.add_parser("serve", help="start the web page")
    parser.set_defaults(command=run)
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--version", action="version", version=f"specdemo {__version__}")
    own = os.environ.get("GRADIO_SERVER_NAME")
    host = "address to listen on, such as 0.0.0.0 or :: (default: 127.0.0.1)"
    add("--host", default=own, type=lambda text: text.strip("[]"), help=host)
    add("--port", type=int, help="port to listen on (default: the first free one from 7860)")
    root = "path of the page behind a proxy, such as /specdemo"
    add("--root-path", default=os.environ.get("GRADIO_ROOT_PATH", ""), help=root)
    add("--trust-proxy", help="addresses or networks of trusted proxies, separated by commas")
    allowed = "additional host names of this page, separated by commas"
    add("--allow-host", default="", help=allowed)
    framers = "sites that may show this page in a frame, separated by commas"
    add("--allow-frame", default="", help=framers)
    pairs = f"pair of models that is always loaded (default: %(default)s); one of: {', '.join(PAIRS)}"
    add("--pair", default=BUILT_IN, choices=PAIRS, metavar="NAME", help=pairs)
    add("--target", help="your own target: hub id or folder; needs --draft")
    add("--draft", help="your own draft model: hub id, folder or none")
    add("--feature-draft", help=FEATURE_DRAFT)
    add("--n-gram", help=N_GRAM)
    add("--device", **DEVICE)
    add(
        "--precision",
        default=AUTO_PRECISION,
        choices=PRECISIONS,
        help="precision of the models (default: %(default)s)",
    )
    add("--threads", **THREADS)
    add("--recalibrate", action="store_true", help=RECALIBRATE)
    waiting = "maximum number of waiting jobs (default: %(default)s)"
    add("--max-waiting", type=int, default=Bounds.max_waiting, help=waiting)
    seconds = "time limit of a job in seconds, without waiting (default: %(default)s)"
    add("--max-seconds", type=float, default=Bounds.max_seconds, help=seconds)
    add("--only-pair", action="store_true", help="offer only the default pair of models")
    add("--allow-any-model", action="store_true", help="let visitors load models from the Hugging Face hub")
    add("--mcp", action="store_true", help="also offer the API as an MCP server")
    live = "also serve a live copy (115 MB), which runs the built-in models in visitors' browsers"
    add("--live", action="store_true", help=live)
    watch = "servers to watch, each with an optional baseline server, separated by commas"
    add("--watch", default="", metavar="NAME=URL[,URL]", help=watch)
    add(
        "--cluster",
        metavar="ADDRESS",
        help="Ray cluster: auto, or the address of the head node, such as host:6379",
    )
    replicas = "replicas: 2, 1..4 by demand, or by pair: built-in=2,smollm2-1.7b=1 (default: %(default)s)"
    add("--replicas", default="1", metavar="N", help=replicas)


def run(options: argparse.Namespace) -> int:
    """Serve the page until a signal or a failed device ends the process."""
    check_settings(options)
    # Importing the libraries and building the page takes seconds. During that time a library may catch an
    # exception such as KeyboardInterrupt and continue, so both signals end the process directly.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: _end(0))
    signal.signal(signal.SIGINT, lambda _signal, _frame: _end(INTERRUPTED))
    _end(exit_status(lambda: serve(options)))


def _end(status: int) -> NoReturn:
    remove_scratch()
    # Do not wait for other threads: one may still be loading models, or hang because its device failed.
    os._exit(status)


def check_settings(settings: argparse.Namespace) -> None:
    """Check the settings without importing torch or Gradio."""
    check_models(settings)
    if settings.target and not settings.draft:
        raise UserError("--target needs --draft; set --draft to a model of the same family, or to none.")
    Bounds(settings.max_waiting, settings.max_seconds)
    parse_names(settings.allow_host)
    parse_framers(settings.allow_frame)
    parse_servers(settings.watch)
    require_networks(settings.trust_proxy or "")
    parse_root_path(settings.root_path)
    default = default_pair(settings)
    replicas = parse_replicas(settings.replicas, default)
    for name in {*replicas} - {default, *PAIRS}:
        raise UserError(f"--replicas contains the unknown pair {name}; choose from: {', '.join(PAIRS)}.")
    if settings.cluster is not None:
        if ZERO_GPU or settings.allow_any_model:
            raise UserError(
                "--cluster does not work with --allow-any-model or on ZeroGPU; leave out --cluster."
            )
        require_ray()
    if settings.mcp and importlib.util.find_spec("mcp") is None:
        raise UserError("--mcp needs the package mcp; install the package with: pip install 'gradio[mcp]'.")
    check_address(settings.host, settings.port)


def default_pair(settings: argparse.Namespace) -> str:
    return OWN if settings.target or settings.draft else settings.pair


def check_address(host: str | None, port: int | None) -> None:
    """Check that the page can listen there. A host of None is 127.0.0.1, a port of None any free one."""
    if port is not None and not 1 <= port <= 65_535:
        raise UserError(f"--port must be between 1 and 65535, got {port}.")
    if "%" in (host or ""):
        raise UserError(f"--host must be an address without a zone such as %eth0, got {show(host)}.")
    asked = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
    try:
        family, *_, address = socket.getaddrinfo(host or "127.0.0.1", port or 0, **asked)[0]
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # as the web server does
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
    except UnicodeError:
        raise UserError(
            f"--host must be an IP address or a host name of this machine, got {show(host)}."
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"Port {port} is in use; choose another port with --port.") from None
        if error.errno == errno.EACCES:
            raise UserError(
                f"Port {port} needs administrator rights; choose 1024 or more with --port."
            ) from None
        raise UserError(
            f"Cannot listen on {host} ({error.strerror}); choose an address of this machine with --host."
        ) from None


def serve(settings: argparse.Namespace) -> int:
    from specdemo.service.hosting import Hosting
    from specdemo.service.service import RunService

    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("specdemo.service.service").setLevel(logging.INFO)
    hosting = Hosting(
        pair=settings.pair,
        target=settings.target,
        draft=settings.draft,
        feature_draft=settings.feature_draft,
        n_gram=settings.n_gram,
        device=settings.device,
        precision=settings.precision,
        threads=settings.threads,
        recalibrate=settings.recalibrate,
        any_model=settings.allow_any_model,
        only_default=settings.only_pair,
        bounds=Bounds(settings.max_waiting, settings.max_seconds),
    )
    offer, service, close = service_for(settings, hosting)
    service.load()
    # Import Gradio, which takes seconds, while the models load.
    from specdemo.classroom.rooms import Rooms
    from specdemo.ui.api_endpoints import with_mcp
    from specdemo.ui.http.class_routes import class_routes, submit_with
    from specdemo.ui.http.gradio_internals import untested_version
    from specdemo.ui.http.own_routes import health_route
    from specdemo.ui.http.visitors import TRUSTED
    from specdemo.ui.live_copy import LiveCopy
    from specdemo.ui.page import build_page, launch_options
    from specdemo.ui.serving import addresses_for_others, serve_until_ended
    from specdemo.watch.service import Watching, with_servers

    if warning := untested_version():
        print(f"specdemo: {warning}", file=sys.stderr)
    if settings.trust_proxy is not None:
        os.environ[TRUSTED] = settings.trust_proxy
    # Otherwise the web server would trust the proxy headers of every program on this machine.
    os.environ.setdefault(TRUSTED, "")
    source: RunService = service
    if servers := parse_servers(settings.watch):
        source, offer = Watching(service, servers, hosting.bounds), with_servers(offer, servers)
    has_live_copy = settings.live and default_pair(settings) == BUILT_IN
    page = build_page(source, hosting.drafters, offer, has_live_copy)
    rooms = Rooms(submit_for=None if ZERO_GPU else partial(submit_with, source))
    addresses = partial(addresses_for_others, page)
    routes = [health_route(service), *class_routes(rooms, addresses, has_live_copy)]
    if has_live_copy:
        live_copy = LiveCopy()
        live_copy.write_soon(service)
        routes += live_copy.routes()
    elif settings.live:
        print("specdemo: No live copy is served: --live works with the built-in pair only.", file=sys.stderr)
    framed_by = parse_framers(settings.allow_frame)
    options = launch_options(routes, parse_names(settings.allow_host), settings.host or "", framed_by)
    if settings.mcp:
        options = with_mcp(page, options)
    host = f"[{settings.host}]" if ":" in (settings.host or "") else settings.host
    root_path = parse_root_path(settings.root_path)
    address = {"server_name": host, "server_port": settings.port, "root_path": root_path}
    try:
        return serve_until_ended(page, source, {**address, **options})
    finally:
        close()


def service_for(
    settings: argparse.Namespace, hosting: Hosting
) -> tuple[OfferedPairs, Service, Callable[[], None]]:
    """Return the offered pairs, the service, and a function to call at the end.

    On a cluster, the signal SIGHUP replaces all replicas, one after the other.
    """
    from specdemo.cluster.service import cluster_service, plan_for

    if settings.cluster is None:
        offer = hosting.offered_pairs()
        return offer, hosting.service(offer), lambda: None
    plan, offer = plan_for(hosting, settings.cluster, settings.replicas)
    service, connection = cluster_service(plan, offer, hosting.bounds)
    signal.signal(signal.SIGHUP, lambda _signal, _frame: connection.restart())
    return offer, service, connection.close
