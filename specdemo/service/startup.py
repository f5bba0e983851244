"""Settings that other libraries read on import, so an app imports this first: no reports on visitors."""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

ZERO_GPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
"""True on ZeroGPU Spaces, which lend the GPU by the call."""

if ZERO_GPU:  # before torch
    import spaces  # noqa: F401  # pyright: ignore[reportMissingImports]
