"""Settings that must be made before other libraries are imported; an app imports this first.

No library reports on visitors; the package of a host that lends its GPU by the call (ZeroGPU
Spaces) has to be imported before torch.
"""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

ZERO_GPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
"""True if this host's GPU is there only inside a call."""

if ZERO_GPU:
    import spaces  # noqa: F401  # pyright: ignore[reportMissingImports]
