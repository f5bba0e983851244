"""What has to be settled before other libraries are imported; an app imports this first.

Nothing about visitors is reported to anybody, and where a host lends its GPU only for the length of a call
(ZeroGPU of Hugging Face's Spaces) its package has to be there before torch.
"""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

ZERO_GPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
"""Whether this host's GPU is there only inside a call."""

if ZERO_GPU:
    import spaces  # noqa: F401  # pyright: ignore[reportMissingImports]
