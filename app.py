"""Start the web page: settings in, a service loading in the background, a page around it.

``python app.py`` is what Hugging Face Spaces runs. Each option can also be set by an environment variable:
``--max-seconds`` is ``SPECDEMO_MAX_SECONDS``; a switch is on where its variable is 1.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import specdemo.service.startup  # noqa: F401  (before any other library)
from specdemo.pairs.arithmetic import PRECISIONS
from specdemo.records.limits import UserError
from specdemo.service.hosting import NAMES, Hosting
from specdemo.service.queue import Bounds
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.http.health import with_health
from specdemo.ui.http.hosts import parse_names
from specdemo.ui.http.visitors import TRUSTED, trust_proxies
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.serving import serve_until_ended


def parse_settings(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line first, then environment, then defaults."""
    parser = argparse.ArgumentParser(description="Speculative decoding, live, in the browser.")

    def add(flag: str, default: str | None = None, **options: object) -> None:
        parser.add_argument(flag, default=os.environ.get(_variable(flag)) or default, **options)

    def switch(flag: str, text: str) -> None:
        on = os.environ.get(_variable(flag)) == "1"
        parser.add_argument(flag, action="store_true", default=on, help=text)

    add("--host", help="address to listen on (default 127.0.0.1)")
    add("--port", type=int, help="port to listen on (default: 7860 or next free)")
    add("--root-path", help="path under which a proxy shows the page, such as /specdemo")
    add("--trust-proxy", help="addresses of proxies whose word on where visitors come from is taken")
    add("--allow-host", "", help="further names of this page, whose pages may call it, separated by commas")
    add("--pair", "embedded", choices=NAMES, help="the models that are always there")
    add("--target", help="a target model of your own: hub id or folder; with --draft")
    add("--draft", help="its draft model: hub id or folder, or none")
    add("--feature-draft", help="feature draft of the target: folder")
    add("--device", help="cpu, cuda, cuda:1 (default: CUDA where there is one)")
    add("--precision", "auto", choices=PRECISIONS)
    switch("--remeasure", "measure this machine again instead of remembering what was measured")
    add("--max-waiting", str(Bounds.most_waiting), type=int, help="visitors who may wait for the device")
    add("--max-seconds", str(Bounds.most_seconds), type=float, help="seconds one job may hold the device")
    switch("--only-pair", "offer visitors no other models")
    switch("--allow-any-model", "let visitors load any two models of the hub")
    switch("--mcp", "be an MCP server as well")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the page until the program is told to end or its device is lost.

    Returns:
        The exit status.
    """
    settings = parse_settings(arguments)
    if settings.trust_proxy is not None or TRUSTED not in os.environ:
        trust_proxies(settings.trust_proxy or "")
    hosting = Hosting(
        pair=settings.pair,
        target=settings.target,
        draft=settings.draft,
        feature_draft=settings.feature_draft,
        device=settings.device,
        precision=settings.precision,
        remeasure=settings.remeasure,
        any_model=settings.allow_any_model,
        only_home=settings.only_pair,
        bounds=Bounds(settings.max_waiting, settings.max_seconds),
    )
    offer = hosting.offered_pairs()
    service = hosting.service(offer)
    page = build_page(service, hosting.drafters, offer)
    options = with_health(launch_options(parse_names(settings.allow_host), settings.host or ""), service)
    if settings.mcp:
        options = with_mcp(page, options)
    address = {"server_name": settings.host, "server_port": settings.port, "root_path": settings.root_path}
    service.load()
    return serve_until_ended(page, service, {**address, **options})


def _variable(flag: str) -> str:
    return "SPECDEMO_" + flag.removeprefix("--").replace("-", "_").upper()


if __name__ == "__main__":
    try:
        status = main()
    except UserError as error:
        sys.exit(f"specdemo: {error}")
    sys.stdout.flush()
    # Without waiting for threads: one may be in the middle of a load, or hang on a lost device.
    os._exit(status)
