"""Models shared by many visitors: the queue of jobs, the pairs in memory, and the host's settings."""

import os

# Other libraries read these variables when imported, so an app imports this package first. The first two turn
# off usage reports to Gradio and to the hub.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

# After each event, Gradio builds a table of the latest 10,000 events for its dashboard, which nobody can open
# here. The table takes processor time and fragments memory, which the process then never gives back.
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "1")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(2**62))

ZERO_GPU = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
"""True on ZeroGPU Spaces, which give a program a GPU only during marked function calls."""

if ZERO_GPU:  # spaces must be imported before torch
    import spaces  # noqa: F401  # pyright: ignore[reportMissingImports]
