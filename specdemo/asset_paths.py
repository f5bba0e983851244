"""Paths of the files that ship with the program: drafts, prompts, recorded runs. Does not import torch."""

from pathlib import Path

_INSTALLED = Path(__file__).parent / "assets"
ASSETS = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parent.parent / "assets"
"""The folder of these files: inside an installed package, next to the package in a checkout."""
BUILT_IN = "built-in"
"""The name of the built-in target and of the built-in draft in requests and options."""
BUILT_IN_DRAFT = ASSETS / "draft"
BUILT_IN_FEATURE_DRAFT = ASSETS / "feature-draft"
BUILT_IN_N_GRAM = ASSETS / "n-gram"
PROMPTS = ASSETS / "prompts.jsonl"
RECORDINGS = ASSETS / "recordings"
