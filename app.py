"""Start the web page: settings in, a service loading in the background, a page around it.

``python app.py`` is what Hugging Face Spaces runs. Each option can also be set by an environment
variable: ``SPECDEMO_HOST``, ``SPECDEMO_PORT``, ``SPECDEMO_TARGET``, ``SPECDEMO_DRAFT``,
``SPECDEMO_DEVICE``, ``SPECDEMO_PRECISION``, ``SPECDEMO_MCP`` (1 for ``--mcp``).
"""

import argparse
import os
import sys
from collections.abc import Sequence

from specdemo.limits import UserError
from specdemo.models import EMBEDDED, load_pair, offered_drafters
from specdemo.packed import DTYPES
from specdemo.service import Service
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.ways_in import with_mcp


def parse_settings(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line first, then environment, then defaults."""
    parser = argparse.ArgumentParser(description="Speculative decoding, live, in the browser.")
    add = parser.add_argument
    add("--host", default=_environment("HOST"), help="address to listen on (default 127.0.0.1)")
    add(
        "--port",
        type=int,
        default=_environment("PORT"),
        help="port to listen on (default: 7860 or next free)",
    )
    add("--target", default=_environment("TARGET", EMBEDDED), help="target model: embedded, hub id or folder")
    add("--draft", default=_environment("DRAFT", EMBEDDED), help="draft model: the same, or none")
    add("--feature-draft", default=_environment("FEATURE_DRAFT"), help="feature draft of the target: folder")
    add(
        "--device",
        default=_environment("DEVICE"),
        help="cpu, cuda, cuda:1 (default: CUDA where there is one)",
    )
    add("--precision", default=_environment("PRECISION", "bf16"), choices=sorted(DTYPES))
    add("--mcp", action="store_true", default=_environment("MCP") == "1", help="be an MCP server as well")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the page until interrupted."""
    settings = parse_settings(arguments)
    models = {name: getattr(settings, name) for name in ("target", "draft", "feature_draft")}
    service = Service(
        lambda progress: load_pair(
            **models, device=settings.device, precision=settings.precision, progress=progress
        )
    )
    page = build_page(service, offered_drafters(**models))
    options = with_mcp(page, launch_options()) if settings.mcp else launch_options()
    service.load()
    page.launch(server_name=settings.host, server_port=settings.port, **options)


def _environment(name: str, default: str | None = None) -> str | None:
    return os.environ.get(f"SPECDEMO_{name}") or default


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"specdemo: {error}")
