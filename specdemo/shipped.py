"""Paths of the files that ship with the program: drafts, prompts, recorded runs. No torch."""

from pathlib import Path

_INSTALLED = Path(__file__).parent / "assets"
ASSETS = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parent.parent / "assets"
"""Inside the package where it is installed, beside it in a checkout."""
EMBEDDED = "embedded"
"""The name of the shipped pair's models in requests and options."""
EMBEDDED_DRAFT = ASSETS / "draft"
EMBEDDED_FEATURE_DRAFT = ASSETS / "feature-draft"
EMBEDDED_N_GRAM = ASSETS / "n-gram"
PROMPTS = ASSETS / "prompts.jsonl"
RECORDINGS = ASSETS / "recordings"
