"""Start the web page: settings in, a service loading in the background, a page around it.

``python app.py`` is what Hugging Face Spaces runs. Each option can also be set by an environment variable:
``--max-seconds`` is ``SPECDEMO_MAX_SECONDS``; a switch is on where its variable is 1.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

import specdemo.service.startup  # noqa: F401  (before any other library)
from specdemo.classroom.rooms import Rooms
from specdemo.cluster.service import cluster_service, plan_for
from specdemo.pairs.arithmetic import AUTO_PRECISION, PRECISIONS
from specdemo.records.limits import UserError
from specdemo.service.event_source import Served
from specdemo.service.hosting import NAMES, Hosting
from specdemo.service.jobs import Service
from specdemo.service.learning import Learner
from specdemo.service.offered_pairs import OfferedPairs
from specdemo.service.queue import Bounds
from specdemo.service.startup import ZERO_GPU
from specdemo.shipped import EMBEDDED
from specdemo.ui.api_endpoints import with_mcp
from specdemo.ui.http.class_judge import judge_with
from specdemo.ui.http.class_routes import with_class
from specdemo.ui.http.health import with_health
from specdemo.ui.http.hosts import parse_names
from specdemo.ui.http.lab_routes import with_learned
from specdemo.ui.http.visitors import TRUSTED, trust_proxies
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.serving import serve_until_ended
from specdemo.watch.servers import parse_servers
from specdemo.watch.service import Watching, with_servers


def parse_settings(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line first, then environment, then defaults."""
    parser = settings_parser()
    defaults = vars(parser.parse_args([]))
    told = {name: os.environ.get("SPECDEMO_" + name.upper()) for name in defaults}
    switches = {name for name, default in defaults.items() if isinstance(default, bool)}
    # What is told in words is read by each option's own type, as on the command line.
    parser.set_defaults(
        **{name: value == "1" if name in switches else value for name, value in told.items() if value}
    )
    return parser.parse_args(arguments)


def settings_parser() -> argparse.ArgumentParser:
    """Every setting with its default."""
    parser = argparse.ArgumentParser(prog="app.py", description="Speculative decoding, live, in the browser.")
    add = parser.add_argument
    add("--host", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, help="port to listen on (default: 7860 or next free)")
    add("--root-path", help="path under which a proxy shows the page, such as /specdemo")
    add("--trust-proxy", help="addresses of proxies whose word on where visitors come from is taken")
    add(
        "--allow-host",
        default="",
        help="further names of this page, whose pages may call it, separated by commas",
    )
    add(
        "--pair",
        default=EMBEDDED,
        choices=NAMES,
        metavar="NAME",
        help=f"the models that are always there (default: %(default)s): {', '.join(NAMES)}",
    )
    add("--target", help="a target model of your own: hub id or folder; with --draft")
    add("--draft", help="its draft model: hub id or folder, or none")
    add("--feature-draft", help="feature draft of the target: folder")
    add("--n-gram", help="table of n-grams of the target: folder")
    add("--device", help="cpu, cuda, cuda:1 (default: CUDA where there is one)")
    add("--precision", default=AUTO_PRECISION, choices=PRECISIONS, help="default: %(default)s")
    add(
        "--remeasure",
        action="store_true",
        help="measure this machine again instead of remembering what was measured",
    )
    add(
        "--max-waiting",
        type=int,
        default=Bounds.most_waiting,
        help="visitors who may wait for the device (default: %(default)s)",
    )
    add(
        "--max-seconds",
        type=float,
        default=Bounds.most_seconds,
        help="seconds one job may hold the device (default: %(default)s)",
    )
    add("--only-pair", action="store_true", help="offer visitors no other models")
    add("--allow-any-model", action="store_true", help="let visitors load any two models of the hub")
    add(
        "--learn",
        action="store_true",
        help="let the table of n-grams learn, in memory, from what is written for visitors; its drafts "
        "then show others what that was",
    )
    add("--mcp", action="store_true", help="be an MCP server as well")
    add(
        "--watch", default="", metavar="NAME=URL", help="servers that visitors may watch, separated by commas"
    )
    add(
        "--watch-alone",
        default="",
        metavar="NAME=URL",
        help="where the same models answer without drafts, by the same names, for the race",
    )
    add(
        "--cluster", metavar="ADDRESS", help="run the models on a Ray cluster: auto, or host:6379 of its head"
    )
    add(
        "--replicas",
        default="1",
        metavar="N",
        help="copies of the models there: 2, 1..4 as the queue asks for, or by pair as "
        "embedded=2,smollm2-1.7b=1 (default: %(default)s)",
    )
    add("--replica-cpus", type=float, metavar="N", help="cores of each (default: an even share)")
    add("--replica-gpus", type=float, default=0.0, metavar="N", help="GPUs of each (default: none)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the page until the program is told to end or its device is lost.

    Returns:
        The exit status.
    """
    settings = parse_settings(arguments)
    if settings.trust_proxy is not None or TRUSTED not in os.environ:
        trust_proxies(settings.trust_proxy or "")
    learner = Learner() if settings.learn else None
    hosting = Hosting(
        pair=settings.pair,
        target=settings.target,
        draft=settings.draft,
        feature_draft=settings.feature_draft,
        n_gram=settings.n_gram,
        device=settings.device,
        precision=settings.precision,
        remeasure=settings.remeasure,
        any_model=settings.allow_any_model,
        only_home=settings.only_pair,
        bounds=Bounds(settings.max_waiting, settings.max_seconds),
        learner=learner,
    )
    offer, service, close = service_for(settings, hosting)
    source: Served = service
    if servers := parse_servers(settings.watch, settings.watch_alone):
        source, offer = Watching(service, servers, hosting.bounds), with_servers(offer, servers)
    page = build_page(source, hosting.drafters, offer, learns=settings.learn)
    options = with_health(launch_options(parse_names(settings.allow_host), settings.host or ""), service)
    options = with_class(options, Rooms(judge_for=None if ZERO_GPU else partial(judge_with, service)))
    if learner is not None:
        options = with_learned(options, learner)
    if settings.mcp:
        options = with_mcp(page, options)
    address = {"server_name": settings.host, "server_port": settings.port, "root_path": settings.root_path}
    service.load()
    try:
        return serve_until_ended(page, source, {**address, **options})
    finally:
        close()


def service_for(
    settings: argparse.Namespace, hosting: Hosting
) -> tuple[OfferedPairs, Service, Callable[[], None]]:
    """What visitors may ask for, who does it, and what to call when the page has ended.

    On a cluster SIGHUP puts new replicas in the place of all, one after the other.

    Raises:
        UserError: The settings do not go together.
    """
    if settings.cluster is None:
        offer = hosting.offered_pairs()
        return offer, hosting.service(offer), lambda: None
    resources = settings.replica_cpus, settings.replica_gpus
    plan, offer = plan_for(hosting, settings.cluster, settings.replicas, *resources)
    service, link = cluster_service(plan, offer, hosting.bounds)
    signal.signal(signal.SIGHUP, lambda _signal, _frame: link.restart())
    return offer, service, link.close


if __name__ == "__main__":
    try:
        status = main()
    except UserError as error:
        sys.exit(f"specdemo: {error}")
    sys.stdout.flush()
    # Without waiting for threads: one may be in the middle of a load, or hang on a lost device.
    os._exit(status)
